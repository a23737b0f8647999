"""Deadlines of waiting futures, served by a single timer, and wake-ups in slices.

A timer for each of 20,000 waiting items would cost more CPU time than the waiting. Deadlines are
rounded up to a tick of 0.1 s, the deadlines of a tick share a bucket, and a timer runs at the
earliest bucket. `set_results` wakes futures in slices, so that the event loop serves other tasks in
between.
"""

from __future__ import annotations

import asyncio
import math
from collections.abc import Iterable, Iterator
from itertools import islice
from typing import TypeVar

from proctor_service.errors import DeadlinePassed

T = TypeVar("T")

TICK_SECONDS = 0.1
AT_ONCE = 32


def set_results(futures: Iterable[asyncio.Future[T]], value: T) -> None:
    """Set `value` on each pending future, in slices of 32 per iteration of the event loop."""
    _settle_slice(asyncio.get_running_loop(), iter(tuple(futures)), value)


def _settle_slice(
    loop: asyncio.AbstractEventLoop, rest: Iterator[asyncio.Future[T]], value: T
) -> None:
    settled = 0
    for future in islice(rest, AT_ONCE):
        settled += 1
        if not future.done():
            future.set_result(value)
    if settled == AT_ONCE:
        loop.call_soon(_settle_slice, loop, rest, value)


class Deadlines:
    """Give a DeadlinePassed to every watched future at its deadline (monotonic clock).

    DeadlinePassed is set as the result of the future, and the awaiting task raises it. An exception
    set on an abandoned future would be logged; a result is silent.
    """

    def __init__(self) -> None:
        self._due: dict[int, dict[asyncio.Future[object], None]] = {}
        self._timer: asyncio.TimerHandle | None = None
        self._armed_tick = 0

    def watch(self, future: asyncio.Future[object], deadline: float) -> None:
        """Watch the future until `forget`."""
        tick = math.ceil(deadline / TICK_SECONDS)
        self._due.setdefault(tick, {})[future] = None
        if self._timer is None or tick < self._armed_tick:
            self._arm(tick)

    def forget(self, future: asyncio.Future[object], deadline: float) -> None:
        """Stop watching the future; do nothing if the future is unknown."""
        tick = math.ceil(deadline / TICK_SECONDS)
        bucket = self._due.get(tick)
        if bucket is not None:
            bucket.pop(future, None)
            if not bucket:
                del self._due[tick]

    def close(self) -> None:
        """Stop the timer."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _arm(self, tick: int) -> None:
        self.close()
        self._armed_tick = tick
        loop = asyncio.get_running_loop()
        self._timer = loop.call_at(tick * TICK_SECONDS, self._sweep)

    def _sweep(self) -> None:
        self._timer = None
        now = asyncio.get_running_loop().time()
        for tick in sorted(tick for tick in self._due if tick * TICK_SECONDS <= now):
            passed = DeadlinePassed("the deadline passed before it was judged")
            set_results(self._due.pop(tick), passed)
        if self._due:
            self._arm(min(self._due))
