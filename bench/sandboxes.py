"""Cost of stateful sandboxes: a command, and many sandboxes at once.

    python bench/sandboxes.py --url http://127.0.0.1:8080 --pid PID [--live 200] [--execs 20]

Prints machine, date and versions, the cost of a plain process start here (the floor), and a line
for each figure. Ends with status 1 when a command went wrong or a sandbox saw another's files.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import platform
import statistics
import subprocess
import sys
import time
from datetime import UTC, datetime
from pathlib import Path

from proctor_client import AsyncClient, AsyncSandbox, Client

COMMANDS = 300


def floor_seconds() -> float:
    """The median time of `true`, from start to end."""
    seconds = []
    for _ in range(COMMANDS):
        start = time.perf_counter()
        subprocess.run(["true"], check=True)
        seconds.append(time.perf_counter() - start)
    return statistics.median(seconds)


def exec_seconds(url: str) -> list[float]:
    """How long each of many commands took over HTTP, sorted."""
    seconds = []
    with Client(url) as proctor, proctor.sandbox(tags=["bench"]) as sandbox:
        for _ in range(COMMANDS):
            start = time.perf_counter()
            sandbox.exec(["true"])
            seconds.append(time.perf_counter() - start)
    return sorted(seconds)


def resident_mb(pid: int) -> float:
    """Memory of the service's own process."""
    status = Path(f"/proc/{pid}/status").read_text()
    line = next(line for line in status.splitlines() if line.startswith("VmRSS"))
    return int(line.split()[1]) / 1024


async def use(sandbox: AsyncSandbox, name: int, execs: int) -> bool:
    """Return True if the commands of each sandbox saw exactly their own writes."""
    for turn in range(execs):
        code = f"open('mine', 'a').write('{name}.{turn} '); print(open('mine').read())"
        ended = await sandbox.exec(code=code)
        if ended.stdout.split() != [f"{name}.{n}" for n in range(turn + 1)]:
            return False
    listed = await sandbox.exec(["sh", "-c", "ls -A; ls /proc | grep -c '^[0-9]'"])
    files, processes = listed.stdout.split()
    return files == "mine" and int(processes) <= 5  # its first one, the shell, ls, grep, a subshell


async def many(url: str, pid: int, live: int, execs: int) -> bool:
    """Many sandboxes at once, each with some commands."""
    async with AsyncClient(url) as proctor:
        start = time.perf_counter()
        sandboxes = [proctor.sandbox(tags=["bench"]) for _ in range(live)]
        await asyncio.gather(*(sandbox.start() for sandbox in sandboxes))
        print(f"{live} sandboxes made          {time.perf_counter() - start:8.2f} s")
        start = time.perf_counter()
        right = await asyncio.gather(*(use(each, n, execs) for n, each in enumerate(sandboxes)))
        print(f"{live} x {execs} commands            {time.perf_counter() - start:8.2f} s")
        print(f"right, and seen by no other   {sum(right):5} of {live}")
        print(f"memory of the service        {resident_mb(pid):8.1f} MB")
        start = time.perf_counter()
        await asyncio.gather(*(sandbox.close() for sandbox in sandboxes))
        print(f"{live} sandboxes stopped       {time.perf_counter() - start:8.2f} s")
    return all(right)


def main() -> None:
    """Run the benchmark."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--url", default="http://127.0.0.1:8080")
    parser.add_argument("--pid", type=int, required=True)
    parser.add_argument("--live", type=int, default=200)
    parser.add_argument("--execs", type=int, default=20)
    arguments = parser.parse_args()
    print(f"{datetime.now(UTC):%Y-%m-%d}, {platform.platform()}, {os.cpu_count()} cores,")
    print(f"Python {platform.python_version()}")
    floor = floor_seconds()
    seconds = exec_seconds(arguments.url)
    median, last = statistics.median(seconds), seconds[int(0.99 * len(seconds))]
    print(f"floor: a process started     {1000 * floor:8.2f} ms")
    print(
        f"exec of ['true'], p50        {1000 * median:8.2f} ms, {median / floor:.1f} of the floor"
    )
    print(f"exec of ['true'], p99        {1000 * last:8.2f} ms")
    right = asyncio.run(many(arguments.url, arguments.pid, arguments.live, arguments.execs))
    sys.exit(0 if right else 1)


if __name__ == "__main__":
    main()
