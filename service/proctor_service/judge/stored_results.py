"""Results by content, made once for a task, and stored.

Of concurrent requests for the same result, the first makes the result. Followers share the result; after
a failure or a cancellation, the next follower makes the result.
"""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from collections.abc import Awaitable, Callable
from typing import Generic, TypeVar

T = TypeVar("T")


class StoredResults(Generic[T]):
    """Least-recently-used results by key, bounded by entries and by bytes."""

    def __init__(self, most_entries: int, most_bytes: int, size_bytes: Callable[[T], int]) -> None:
        self._most_entries = most_entries
        self._most_bytes = most_bytes
        self._size_bytes = size_bytes
        self._results: OrderedDict[bytes, tuple[T, int]] = OrderedDict()
        self._bytes = 0
        self._made: dict[bytes, asyncio.Future[tuple[T] | None]] = {}

    def is_being_made(self, key: bytes) -> bool:
        """Return True if a task makes the result of this key now."""
        return key in self._made

    def get(self, key: bytes) -> T | None:
        """Return the result of this key, if it is kept."""
        found = self._results.get(key)
        return None if found is None else found[0]

    async def once(
        self,
        key: bytes,
        make: Callable[[], Awaitable[T]],
        is_kept: Callable[[T], bool] = lambda _: True,
    ) -> T:
        """Return the result of `make` for this key, of now or of before. Raises the errors of `make`.

        `is_kept`: False for a result for the present followers alone.
        """
        while True:
            found = self._results.get(key)
            if found is not None:
                self._results.move_to_end(key)
                return found[0]
            being_made = self._made.get(key)
            if being_made is None:
                return await self._lead(key, make, is_kept)
            shared = await asyncio.shield(being_made)
            if shared is not None:
                return shared[0]

    async def _lead(
        self, key: bytes, make: Callable[[], Awaitable[T]], is_kept: Callable[[T], bool]
    ) -> T:
        being_made = self._made[key] = asyncio.get_running_loop().create_future()
        shared: tuple[T] | None = None
        try:
            result = await make()
            shared = (result,)
            if is_kept(result):
                self._keep(key, result)
            return result
        finally:
            del self._made[key]
            being_made.set_result(shared)

    def _keep(self, key: bytes, result: T) -> None:
        size = self._size_bytes(result)
        if size > self._most_bytes:
            return
        self._results[key] = result, size
        self._bytes += size
        while len(self._results) > self._most_entries or self._bytes > self._most_bytes:
            _, (_, gone) = self._results.popitem(last=False)
            self._bytes -= gone
