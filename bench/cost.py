"""Cost of a reward: CPU of the service and of its sandboxes, page faults, system calls.

    python bench/cost.py PID=http://127.0.0.1:8081 PID=http://127.0.0.1:8082 [--rounds 10] [--trace]

Posts batches of different three-assert submissions to several services in turn. A service's CPU and
page faults are the kernel's counts for its processes, free of other loads on the machine. `all` is
the service with all processes below it, and their reaped children.
"""

from __future__ import annotations

import argparse
import collections
import datetime
import json
import os
import platform
import re
import shutil
import signal
import statistics
import subprocess
import sys
import tempfile
import time
import urllib.request
from dataclasses import dataclass
from pathlib import Path

from leaks import descendants

PRIME = """\
def is_prime(n):
    if n < 2: return False
    i = 2
    while i * i <= n:
        if n % i == 0: return False
        i += 1
    return True
# """
TESTS = [f"assert is_prime({n}) == {prime}" for n, prime in ((7, True), (12, False), (101, True))]
TICK_SECONDS = 1 / os.sysconf("SC_CLK_TCK")
_CALL = re.compile(r"(?:\[pid +\d+\] |^\d+ +)?(\w+)\(")


@dataclass(frozen=True, slots=True)
class Counted:
    """The kernel's counts so far: CPU seconds, and page faults of all processes."""

    service_seconds: float
    all_seconds: float
    faults: int


def count(service: int) -> Counted:
    """Counts of a service and all processes below."""
    own = _stat(service)
    each = [own, *map(_stat, descendants(service))]
    return Counted(
        (own[2] + own[3]) * TICK_SECONDS,
        sum(sum(fields[2:6]) for fields in each) * TICK_SECONDS,
        sum(fields[0] + fields[1] for fields in each),
    )


def _stat(pid: int) -> tuple[int, ...]:
    """Minor faults, the children's, and ticks: user, system, children's user and system."""
    try:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return (0,) * 6
    return tuple(int(fields[place]) for place in (7, 8, 11, 12, 13, 14))


def judge(url: str, mark: str, size: int) -> float:
    """Seconds of a batch. Raises SystemExit when a reward is wrong."""
    body = {
        "submissions": [{"completion": f"{PRIME}{mark} {number}"} for number in range(size)],
        "grader": {"kind": "asserts", "tests": TESTS},
        "extract": "none",
        "cache": False,
    }
    request = urllib.request.Request(f"{url}/reward", json.dumps(body).encode())
    request.add_header("Content-Type", "application/json")
    begun = time.perf_counter()
    with urllib.request.urlopen(request) as answer:
        results = json.loads(answer.read())["results"]
    seconds = time.perf_counter() - begun
    if any(result["reward"] != 1.0 for result in results):
        sys.exit(f"wrong rewards: {[r for r in results if r['reward'] != 1.0][:2]}")
    return seconds


def calls_of_service(service: int, url: str, size: int) -> dict[str, float]:
    """System calls of the service's own process for a reward, by name; empty without strace."""
    if shutil.which("strace") is None:
        return {}
    with tempfile.NamedTemporaryFile() as trace:
        tracer = subprocess.Popen(
            ["strace", "-f", "-qq", "-o", trace.name, "-p", str(service)],
            stderr=subprocess.DEVNULL,
        )
        try:
            time.sleep(1)  # it attaches
            judge(url, "traced", size)
        finally:
            tracer.send_signal(signal.SIGINT)
            tracer.wait()
        lines = Path(trace.name).read_text(errors="replace").splitlines()
    names = collections.Counter(m[1] for line in lines if (m := _CALL.match(line)))
    return {name: number / size for name, number in names.most_common()}


def main() -> None:
    """Measures and prints."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("services", nargs="+", metavar="PID=URL")
    parser.add_argument("--rounds", type=int, default=10)
    parser.add_argument("--size", type=int, default=1000)
    parser.add_argument("--trace", action="store_true", help="count system calls, too")
    wanted = parser.parse_args()
    services = [(int(pid), url) for pid, _, url in (x.partition("=") for x in wanted.services)]
    now = datetime.datetime.now(datetime.UTC)
    print(f"{now:%Y-%m-%d %H:%M} UTC, {os.cpu_count()} cores, load {os.getloadavg()[0]:.1f}")
    print(f"{platform.platform()}, Python {platform.python_version()}")
    found: dict[int, list[tuple[float, ...]]] = {pid: [] for pid, _ in services}
    for round_number in range(-1, wanted.rounds):
        turns = services if round_number % 2 else services[::-1]
        for pid, url in turns:
            before = count(pid)
            seconds = judge(url, f"{round_number} {pid}", wanted.size)
            time.sleep(0.2)  # the last sandboxes are replaced
            after = count(pid)
            if round_number >= 0:  # the first round warms
                found[pid].append(
                    (
                        1e3 * (after.service_seconds - before.service_seconds) / wanted.size,
                        1e3 * (after.all_seconds - before.all_seconds) / wanted.size,
                        (after.faults - before.faults) / wanted.size,
                        wanted.size / seconds,
                    )
                )
    print("for each reward, median (least to most)")
    names = ("CPU of the service, ms", "CPU of all, ms", "page faults", "rewards/s")
    for place, name in enumerate(names):
        for pid, url in services:
            values = sorted(each[place] for each in found[pid])
            middle = statistics.median(values)
            digits = 3 if place < 2 else 0
            print(
                f"{name:24} {url:28} {middle:9.{digits}f} "
                f"({values[0]:.{digits}f} to {values[-1]:.{digits}f})"
            )
    for pid, url in services if wanted.trace else ():
        calls = calls_of_service(pid, url, min(wanted.size, 200))
        shown = ", ".join(f"{name} {number:.1f}" for name, number in calls.items() if number >= 0.1)
        print(f"system calls of the service {url}: {sum(calls.values()):.1f}: {shown}")


if __name__ == "__main__":
    main()
