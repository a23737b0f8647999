"""Single calls of a client, so many at once, against batches of 1,000 before and after them.

    python bench/client_windows.py [--simulated] [--windows 16,64,256] [--threads 64] [--calls 1000]

Each call of `AsyncClient.reward` (or of `Client.reward` in threads) judges one submission, and a
window is the number of calls at once: `asyncio.gather` over so many of them, again and again until
`--calls` were made; with `--sliding`, each finished call is followed by the next. With
`--simulated`, sandboxes cost no CPU (`simulated.py`), which shows the client and the service's
front alone. Programs are all different, so the cache is unused.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import platform
import resource
import statistics
import sys
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager
from datetime import UTC, datetime
from importlib.metadata import version

import measuring
import simulated

from proctor_client import AsyncClient, Client, wire
from proctor_service.cli.temporary import Running, temporary_service
from proctor_service.version import version as service_version

BATCH = 1000
WINDOWS = "16,32,64,96,128,256,512,2000,5000"
THREADS = "16,64,256,512"
GRADER = {"kind": "asserts", "tests": measuring.ASSERTS}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--windows", default=WINDOWS, help="calls at once in one event loop")
    parser.add_argument("--threads", default=THREADS, help="calls at once in threads")
    parser.add_argument("--calls", type=int, default=BATCH, help="the least number in each window")
    parser.add_argument("--sliding", action="store_true")
    parser.add_argument("--simulated", action="store_true")
    parser.add_argument("--allow-degraded", action="store_true")
    asked = parser.parse_args()
    packages = ", ".join(f"{name} {version(name)}" for name in ("httpx", "httpcore"))
    print(f"{datetime.now(UTC):%Y-%m-%d}, {os.cpu_count()} cores, {platform.platform()}")
    print(f"Python {platform.python_version()}, {packages}, Proctor {service_version()}\n")
    with _service(asked.simulated, asked.allow_degraded) as running:
        _measure(running, asked)


def _service(is_simulated: bool, allow_degraded: bool) -> AbstractContextManager[Running]:
    if not is_simulated:
        return temporary_service(allow_degraded=allow_degraded)
    settings = {"PROCTOR_SLOTS": "8", "PROCTOR_WORKERS": "1"}
    return temporary_service(
        settings=settings, command=(sys.executable, simulated.__file__, "serve")
    )


def _measure(running: Running, asked: argparse.Namespace) -> None:
    print("| calls at once | form | calls | rewards/s | of the batches around | client, peak MB |")
    print("|---|---|---|---|---|---|")
    with Client(running.url, token=running.token) as client:
        _batch_rate(client)  # the first one warms the service
        before = _batch_rate(client)
        for form, window in _windows(asked):
            calls = max(asked.calls, window)
            if form == "tasks":
                rate = asyncio.run(_in_tasks(running, window, calls, asked.sliding))
            else:
                rate = _in_threads(running, window, calls)
            after = _batch_rate(client)
            share = rate / statistics.mean([before, after])
            before = after
            peak_mb = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
            print(
                f"| {window:,} | {form} | {calls:,} | {rate:.0f} | {share:.2f} | {peak_mb:.0f} |",
                flush=True,
            )


def _windows(asked: argparse.Namespace) -> Iterator[tuple[str, int]]:
    for form, listed in (("tasks", asked.windows), ("threads", asked.threads)):
        yield from ((form, int(each)) for each in listed.split(",") if each)


def _batch_rate(client: Client) -> float:
    begun = time.perf_counter()
    _check(client.reward(measuring.sound(BATCH), grader=GRADER, cache=False).results)
    return BATCH / (time.perf_counter() - begun)


async def _in_tasks(running: Running, window: int, calls: int, is_sliding: bool) -> float:
    async with AsyncClient(running.url, token=running.token) as client:
        sound = measuring.sound(calls)
        programs = iter(sound)

        async def one(program: str) -> None:
            _check((await client.reward([program], grader=GRADER, cache=False)).results)

        async def one_after_the_other() -> None:
            for program in programs:
                await one(program)

        begun = time.perf_counter()
        if is_sliding:
            await asyncio.gather(*(one_after_the_other() for _ in range(window)))
        else:
            for first in range(0, calls, window):
                await asyncio.gather(*map(one, sound[first : first + window]))
        return calls / (time.perf_counter() - begun)


def _in_threads(running: Running, window: int, calls: int) -> float:
    with Client(running.url, token=running.token) as client, ThreadPoolExecutor(window) as pool:

        def one(program: str) -> None:
            _check(client.reward([program], grader=GRADER, cache=False).results)

        begun = time.perf_counter()
        for _ in pool.map(one, measuring.sound(calls)):
            pass
        return calls / (time.perf_counter() - begun)


def _check(results: Sequence[wire.Result]) -> None:
    for each in results:
        if each.reward != 1.0:
            raise measuring.WrongReward(f"{each.verdict} {each.message} {each.error}")


if __name__ == "__main__":
    main()
