"""Figures of the Aviato backend against the stand-in of the tests, with sandboxes that start after
300 ms.

    PYTHONPATH=client:service:tests:tests/support python bench/aviato.py [--evaluations 300]

Prints machine and date, and a line for each figure. Aviato's own latency and quotas are left out:
they need an account. Faults and a killed service are in
`tests/features/aviato/suite/test_aviato.py`.
"""

from __future__ import annotations

import argparse
import asyncio
import gc
import os
import platform
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from harness import Service, running_service

from aviato_gateway.stand_in import StandIn, stand_in
from core.e2e.test_corpora import corpus, judge, mbpp, rows

START_SECONDS = 0.3
TICK_SECONDS = 0.002
GRADER = {"kind": "asserts", "tests": ["assert f(2) == 4"]}
SLEEPER = "import time\ntime.sleep(2)\ndef f(x):\n    return x * x  # "


def waited_seconds() -> float:
    """How long this thread has waited for a core, which all its sandboxes want too."""
    fields = Path("/proc/thread-self/schedstat").read_text().split()
    return int(fields[1]) / 1e9


@dataclass
class Seen:
    """Observations of the service's loop under load."""

    longest_gap_seconds: float = 0.0
    longest_hold_seconds: float = 0.0
    lowest_ready: int = 1 << 30
    most_busy: int = 0
    done: bool = field(default=False, repr=False)

    async def look(self, service: Service) -> None:
        """Looks at every tick; a busy loop ticks late."""
        loop = asyncio.get_running_loop()
        last, waited = loop.time(), waited_seconds()
        while not self.done:
            await asyncio.sleep(TICK_SECONDS)
            now, waited_now = loop.time(), waited_seconds()
            gap = now - last - TICK_SECONDS
            self.longest_gap_seconds = max(self.longest_gap_seconds, gap)
            hold = gap - (waited_now - waited)
            self.longest_hold_seconds = max(self.longest_hold_seconds, hold)
            last, waited = now, waited_now
            self.lowest_ready = min(
                self.lowest_ready, service.parts.core.machine.backend.census()["ready"]
            )
            self.most_busy = max(self.most_busy, service.parts.core.queue.busy)


@contextmanager
def watched(service: Service) -> Iterator[Seen]:
    """Watches the service's loop for the length of a block."""
    seen = Seen()
    looking = asyncio.run_coroutine_threadsafe(seen.look(service), service.loop)
    try:
        yield seen
    finally:
        seen.done = True
        looking.result()


@contextmanager
def serving(gateway: StandIn, **more: Any) -> Iterator[Service]:
    """A service on the stand-in."""
    gateway.order("start_seconds", START_SECONDS)
    with running_service(gateway.settings(**more), judge=None) as service:
        gc.collect()
        gc.freeze()  # as `proctor serve` does once it is up; here the tests' data is there, too
        yield service


def count(results: list[dict[str, Any]]) -> str:
    """Rewards and errors, in words."""
    found = Counter(
        f"reward {r['reward']}" if r["error"] is None else r["error"]["reason"] for r in results
    )
    return ", ".join(f"{number} {what}" for what, number in found.most_common())


def references(gateway: StandIn) -> None:
    """200 references with a pool of 32, and the hacks."""
    with serving(gateway, pool_size=32, slots=8) as service:
        items = [mbpp(row, row["code"]) for row in rows("mbpp/mbpp.jsonl")[:200]]
        with watched(service) as seen:
            began = time.perf_counter()
            results = judge(service, items)
            seconds = time.perf_counter() - began
        print(f"200 references, pool of 32: {count(results)} in {seconds:.1f} s")
        print(f"  lowest level of the pool: {seen.lowest_ready}")
        print(f"hacks: {count(judge(service, [corpus(entry) for entry in rows('hacks.jsonl')]))}")


def crowd(gateway: StandIn, evaluations: int) -> None:
    """So many evaluations at once."""
    size = {"slots": evaluations, "pool_size": 32, "max_sandboxes": 4 * evaluations + 512}
    with serving(gateway, **size, cpu_seconds=60) as service:
        items = [{"completion": f"{SLEEPER}{n}", "grader": GRADER} for n in range(evaluations)]
        with watched(service) as seen, service.client() as client:
            body = {"submissions": items, "extract": "none", "cache": False}
            began = time.perf_counter()
            results = client.post("/reward", json=body, timeout=600).json()["results"]
            seconds = time.perf_counter() - began
        print(f"{evaluations} evaluations at once: {count(results)} in {seconds:.1f} s")
        print(f"  most at once: {seen.most_busy}")
        print(f"  longest hold-up of the loop: {seen.longest_hold_seconds * 1000:.0f} ms")
        print(f"  with its waiting for a core: {seen.longest_gap_seconds * 1000:.0f} ms")


def main() -> None:
    """Run the benchmark."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--evaluations", type=int, default=300)
    arguments = parser.parse_args()
    print(f"{datetime.now(UTC):%Y-%m-%d}, {os.cpu_count()} cores, {platform.platform()}")
    with stand_in() as gateway:
        references(gateway)
        crowd(gateway, arguments.evaluations)


if __name__ == "__main__":
    main()
