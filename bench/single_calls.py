"""Single calls at once against a batch of the same size: requests sent, and the 95th percentile.

    python bench/single_calls.py [--url http://127.0.0.1:8080] [--calls 256] [--rounds 5]

Without a URL, the script starts a service of its own. Programs are all different. Each round judges
a batch, then the same number of single calls from threads, then from tasks of an event loop.
"""

from __future__ import annotations

import argparse
import asyncio
import itertools
import statistics
import threading
import time
from collections.abc import Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field

from proctor_client import Client
from proctor_service.cli.temporary import temporary_service
from proctor_trainers.batching import RewardBatcher
from proctor_trainers.rewards import Settings

TESTS = ["assert f(7) == 8", "assert f(0) == 1"]


@dataclass
class Figures:
    """The results of a form of call, over all rounds."""

    seconds: list[float] = field(default_factory=list)
    requests: list[int] = field(default_factory=list)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--url")
    parser.add_argument("--calls", type=int, default=256)
    parser.add_argument("--rounds", type=int, default=5)
    args = parser.parse_args()
    if args.url is not None:
        _measure(args.url, None, args.calls, args.rounds)
        return
    with temporary_service() as running:
        _measure(running.url, running.token, args.calls, args.rounds)


def _measure(url: str, token: str | None, calls: int, rounds: int) -> None:
    lines: list[str] = []
    numbers = itertools.count()
    batcher = RewardBatcher(url, token=token, settings=Settings(say=lines.append))
    threads, tasks = Figures(), Figures()
    batches: list[float] = []

    def programs() -> list[str]:
        return [f"# {next(numbers)}\ndef f(n):\n    return n + 1\n" for _ in range(calls)]

    with Client(url, token=token) as client:
        for _ in range(rounds):
            begun = time.perf_counter()
            _check(
                each.reward
                for each in client.reward(
                    [
                        {"completion": each, "grader": {"kind": "asserts", "tests": TESTS}}
                        for each in programs()
                    ]
                ).results
            )
            batches.append(time.perf_counter() - begun)
            for figures, form in ((threads, _in_threads), (tasks, _in_tasks)):
                lines.clear()
                figures.seconds.append(_p95(form(batcher, programs())))
                figures.requests.append(len(lines))
    batcher.close()
    batch = statistics.median(batches)
    print(f"a batch of {calls}: {batch:.3f} s (median of {rounds})")
    for name, figures in (("threads", threads), ("tasks", tasks)):
        p95 = statistics.median(figures.seconds)
        print(
            f"{calls} single calls from {name}: at most {max(figures.requests)} requests, "
            f"p95 {p95:.3f} s, {p95 / batch:.2f} of the batch"
        )


def _in_threads(batcher: RewardBatcher, programs: Sequence[str]) -> list[float]:
    begin = threading.Barrier(len(programs))

    def call(program: str) -> float:
        begin.wait()
        begun = time.perf_counter()
        _check([batcher.judge(program, {"tests": TESTS}).reward])
        return time.perf_counter() - begun

    with ThreadPoolExecutor(len(programs)) as pool:
        return list(pool.map(call, programs))


def _in_tasks(batcher: RewardBatcher, programs: Sequence[str]) -> list[float]:
    async def call(program: str) -> float:
        begun = time.perf_counter()
        _check([(await batcher.judge_async(program, {"tests": TESTS})).reward])
        return time.perf_counter() - begun

    async def all_of_them() -> list[float]:
        return await asyncio.gather(*map(call, programs))

    return asyncio.run(all_of_them())


def _p95(seconds: Sequence[float]) -> float:
    return statistics.quantiles(seconds, n=20)[-1]


def _check(rewards: Iterable[float | None]) -> None:
    for reward in rewards:
        if reward != 1.0:
            raise SystemExit(
                f"a right program has the reward {reward}: the figures count for nothing"
            )


if __name__ == "__main__":
    main()
