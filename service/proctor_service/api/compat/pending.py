"""Pending work: the client was told to retry, and its next equal request finds the work here."""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from collections.abc import Callable, Coroutine
from typing import Any

from proctor_service.api.rewards.idempotency import RequestName
from proctor_service.errors import Cancelled

KEPT_SECONDS = 60.0
"""Clients retry within half a minute; after this time the work is abandoned and cancelled."""
ENTRY_BYTES = 10_000


class NotYet(Exception):
    """The work is unfinished."""


class Work:
    """The work of a request; must be created in a running loop. `size_bytes`: size of its body."""

    def __init__(self, do: Coroutine[Any, Any, Any], size_bytes: int = 0) -> None:
        self.size_bytes = size_bytes
        self._why = "it was cancelled"
        self._task = asyncio.create_task(do)
        self._task.add_done_callback(_retrieve)

    def when_done(self, then: Callable[[], None]) -> None:
        """Call `then` when the work is done."""
        self._task.add_done_callback(lambda _: then())

    async def wait(self) -> None:
        """Wait until the work is done."""
        await asyncio.wait({self._task})

    def cancel(self, why: str) -> None:
        """Cancel the work; `value` then raises Cancelled with this reason."""
        if not self._task.done():
            self._why = why
            self._task.cancel()

    async def value(self, seconds: float) -> Any:
        """Return the result of the work.

        Raises the error of the work, Cancelled, or NotYet if the work takes longer than `seconds`.
        """
        await asyncio.wait({self._task}, timeout=max(seconds, 0.0))
        if not self._task.done():
            raise NotYet
        if self._task.cancelled():
            raise Cancelled(self._why)
        return self._task.result()


def _retrieve(task: asyncio.Task[Any]) -> None:
    """Read the exception, so asyncio logs no warning about the failure of abandoned work."""
    if not task.cancelled():
        task.exception()


class PendingWork:
    """Store of pending work by request name; above `max_bytes` the oldest work is cancelled."""

    def __init__(self, max_bytes: int) -> None:
        self._max_bytes = max_bytes
        self._bytes = 0
        self._kept: OrderedDict[Work, tuple[RequestName, asyncio.TimerHandle]] = OrderedDict()
        self._by_name: dict[RequestName, list[Work]] = {}

    def put(self, name: RequestName, work: Work) -> None:
        """Store the work; cancel it after KEPT_SECONDS unless `pop` returns it first."""
        timer = asyncio.get_running_loop().call_later(KEPT_SECONDS, self._end, work)
        self._kept[work] = name, timer
        self._by_name.setdefault(name, []).append(work)
        self._bytes += work.size_bytes + ENTRY_BYTES
        while self._bytes > self._max_bytes:
            self._end(next(iter(self._kept)))

    def pop(self, name: RequestName) -> Work | None:
        """Remove and return the oldest work of a request; None without work."""
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
