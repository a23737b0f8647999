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
from typing import Any, Protocol

from proctor_service.errors import DeadlinePassed

TICK_SECONDS = 0.1
AT_ONCE = 32


def set_results(futures: Iterable[Watched], value: object) -> None:
    """Set `value` on each pending future, in slices of 32 per iteration of the event loop."""
    _settle_slice(asyncio.get_running_loop(), iter(tuple(futures)), value)


def _settle_slice(loop: asyncio.AbstractEventLoop, rest: Iterator[Watched], value: object) -> None:
    settled = 0
    for future in islice(rest, AT_ONCE):
        settled += 1
        if not future.done():
            future.set_result(value)
    if settled == AT_ONCE:
        loop.call_soon(_settle_slice, loop, rest, value)


class Watched(Protocol):
    """What `Deadlines` ends: a future, or a `Limit`."""

    def done(self) -> bool:
        """True if nothing waits any more."""

    def set_result(self, result: Any, /) -> None:
        """Receive a DeadlinePassed."""


class Limit:
    """End of the current task's work at a deadline: cancels the task, once.

    As `asyncio.timeout_at`, without a timer of its own for each task.
    """

    def __init__(self) -> None:
        task = asyncio.current_task()
        assert task is not None, "in a coroutine"
        self._task = task
        self._cancelling = task.cancelling()
        self._is_over = False
        self._is_closed = False

    def done(self) -> bool:
        """Return True if the deadline has passed, or the work has ended."""
        return self._is_over or self._is_closed

    def close(self) -> None:
        """Let the deadline pass without effect from now on: the work has ended."""
        self._is_closed = True

    def set_result(self, result: Any, /) -> None:
        """Cancel the task."""
        self._is_over = True
        self._task.cancel()

    def explains(self) -> bool:
        """Return True if a CancelledError comes from this limit alone; call once, as it is caught."""
        return self._is_over and self._task.uncancel() <= self._cancelling


class Deadlines:
    """Give a DeadlinePassed to every watched future at its deadline (monotonic clock).

    DeadlinePassed is set as the result of the future, and the awaiting task raises it. An exception
    set on an abandoned future would be logged; a result is silent.
    """

    def __init__(self) -> None:
        self._due: dict[int, dict[Watched, None]] = {}
        self._timer: asyncio.TimerHandle | None = None
        self._armed_tick = 0

    def watch(self, future: Watched, deadline: float) -> None:
        """Watch the future or limit until `forget`."""
        tick = math.ceil(deadline / TICK_SECONDS)
        self._due.setdefault(tick, {})[future] = None
        if self._timer is None or tick < self._armed_tick:
            self._arm(tick)

    def forget(self, future: Watched, deadline: float) -> None:
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
