"""Result cache with request coalescing: identical work is judged once.

The key is a hash of the tenant and of every input to the verdict. Tenants share no results. The
cache stores only successful results. A follower waits for the leader, the task that does the work.
If the leader is cancelled or passes its own deadline, a follower takes over. Followers share every
other failure, for example a lost sandbox.
"""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from collections.abc import Awaitable, Callable
from typing import Generic, TypeVar

from proctor_client.wire import CacheResult
from proctor_service.errors import Cancelled, DeadlinePassed, Failure
from proctor_service.scheduling.queue import Deadlines, set_results

T = TypeVar("T")

MAX_ENTRIES = 10_000
"""Results of the last batches; each takes some kilobytes."""


Followers = dict[asyncio.Future[object], None]
"""Futures of followers: the result in a tuple, a failure, or None if a follower takes over."""


class Cache(Generic[T]):
    """Least-recently-used results by key, bounded by entries and by bytes."""

    def __init__(
        self, max_entries: int, max_bytes: int, size_bytes: Callable[[T], int], deadlines: Deadlines
    ) -> None:
        self._max_entries = max_entries
        self._max_bytes = max_bytes
        self._size_bytes = size_bytes
        self._deadlines = deadlines
        self._stored: OrderedDict[bytes, tuple[T, int]] = OrderedDict()
        self._stored_bytes = 0
        self._flights: dict[bytes, Followers] = {}  # work in progress

    def __len__(self) -> int:
        return len(self._stored)

    @property
    def size(self) -> int:
        """Approximate size of the stored results in bytes."""
        return self._stored_bytes

    async def once(
        self, key: bytes, deadline: float, work: Callable[[], Awaitable[T]]
    ) -> tuple[T, CacheResult]:
        """Return the result of `work` and the way the cache served the request.

        A stored result is a "hit", a result shared with a running leader is "coalesced", and own
        work is a "miss". Raises the errors of `work`, and
        DeadlinePassed if `deadline` (monotonic clock) passes while this call follows a leader.
        """
        if self._max_entries == 0:
            return await work(), "miss"
        while True:
            if (stored := self._stored.get(key)) is not None:
                self._stored.move_to_end(key)
                return stored[0], "hit"
            followers = self._flights.get(key)
            if followers is None:
                return await self._lead(key, work), "miss"
            landed = await self._follow(followers, deadline)
            if isinstance(landed, Failure):
                # Raise a copy: a shared exception would collect the tracebacks of all tasks.
                raise type(landed)(landed.message)
            if isinstance(landed, tuple):
                return landed[0], "coalesced"

    async def _lead(self, key: bytes, work: Callable[[], Awaitable[T]]) -> T:
        followers = self._flights[key] = {}
        landed: object = None
        try:
            value = await work()
            self._remember(key, value)
            landed = (value,)
            return value
        except Failure as failure:
            if not isinstance(failure, Cancelled | DeadlinePassed):
                landed = failure
            raise
        finally:
            del self._flights[key]
            set_results(followers, landed)

    async def _follow(self, followers: Followers, deadline: float) -> object:
        future: asyncio.Future[object] = asyncio.get_running_loop().create_future()
        followers[future] = None
        self._deadlines.watch(future, deadline)
        try:
            return await future
        finally:
            followers.pop(future, None)
            self._deadlines.forget(future, deadline)

    def _remember(self, key: bytes, value: T) -> None:
        size = self._size_bytes(value)
        if size > self._max_bytes:
            return
        self._stored[key] = (value, size)
        self._stored_bytes += size
        while len(self._stored) > self._max_entries or self._stored_bytes > self._max_bytes:
            _, (_, gone) = self._stored.popitem(last=False)
            self._stored_bytes -= gone
