"""Work that outlives its answer: its client was told to come back, and finds it here by its request."""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from collections.abc import Callable, Coroutine
from typing import Any

from proctor_service.api.rewards.idempotency import RequestName
from proctor_service.errors import Cancelled

KEPT_SECONDS = 60.0
"""Clients come back within half a minute; work that nobody asks for again is ended."""
ENTRY_BYTES = 10_000


class NotYet(Exception):
    """The work is not done."""


class Work:
    """The work of one request, whose body was so large; must be made in a running loop."""

    def __init__(self, do: Coroutine[Any, Any, Any], size_bytes: int = 0) -> None:
        self.size_bytes = size_bytes
        self._why = "it was cancelled"
        self._task = asyncio.create_task(do)
        self._task.add_done_callback(_retrieve)

    def when_done(self, then: Callable[[], None]) -> None:
        """Calls `then` once it is done."""
        self._task.add_done_callback(lambda _: then())

    async def wait(self) -> None:
        """Waits until it is done."""
        await asyncio.wait({self._task})

    def cancel(self, why: str) -> None:
        """Ends it; whoever waits for its value gets a Cancelled that says why."""
        if not self._task.done():
            self._why = why
            self._task.cancel()

    async def value(self, seconds: float) -> Any:
        """What it gives. Raises what it raises, Cancelled, and NotYet after so many seconds."""
        await asyncio.wait({self._task}, timeout=max(seconds, 0.0))
        if not self._task.done():
            raise NotYet
        if self._task.cancelled():
            raise Cancelled(self._why)
        return self._task.result()


def _retrieve(task: asyncio.Task[Any]) -> None:
    """So that a failure of which nobody asks any more is no warning."""
    if not task.cancelled():
        task.exception()


class PendingWork:
    """Keeps work by the name of its request, for a while; the oldest goes where there is too much."""

    def __init__(self, max_bytes: int) -> None:
        self._max_bytes = max_bytes
        self._bytes = 0
        self._kept: OrderedDict[Work, tuple[RequestName, asyncio.TimerHandle]] = OrderedDict()
        self._by_name: dict[RequestName, list[Work]] = {}

    def put(self, name: RequestName, work: Work) -> None:
        """Keeps it until it is taken, or ended because nobody did."""
        timer = asyncio.get_running_loop().call_later(KEPT_SECONDS, self._end, work)
        self._kept[work] = name, timer
        self._by_name.setdefault(name, []).append(work)
        self._bytes += work.size_bytes + ENTRY_BYTES
        while self._bytes > self._max_bytes:
            self._end(next(iter(self._kept)))

    def pop(self, name: RequestName) -> Work | None:
        """The oldest work of such a request, off the shelf."""
        waiting = self._by_name.get(name)
        if not waiting:
            return None
        self._remove(work := waiting[0])
        return work

    def _end(self, work: Work) -> None:
        self._remove(work)
        work.cancel("its client did not come back")

    def _remove(self, work: Work) -> None:
        name, timer = self._kept.pop(work)
        timer.cancel()
        self._bytes -= work.size_bytes + ENTRY_BYTES
        same = self._by_name[name]
        same.remove(work)
        if not same:
            del self._by_name[name]
