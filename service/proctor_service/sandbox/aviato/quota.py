"""Number of sandboxes that all pools of a backend may have together, and create at once."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable

from proctor_service.errors import SandboxUnavailable


class Quota:
    """Limits shared by the pools. `most`: sandboxes at all; `creations`: created at once.

    `give_up_one`: has a pool that needs it least stop a ready sandbox, if there is one.
    """

    def __init__(
        self, most: int, creations: int, give_up_one: Callable[[], None] = lambda: None
    ) -> None:
        self._free = most
        self._places = asyncio.Semaphore(most)
        self._creating = asyncio.Semaphore(creations)
        self._give_up_one = give_up_one

    @property
    def free(self) -> int:
        """Number of sandboxes that may still be created; below 0 while callers wait for a place."""
        return self._free

    async def acquire(self, seconds: float) -> None:
        """Wait for the place of another sandbox; a ready sandbox elsewhere is stopped for it.

        Raises SandboxUnavailable if there is no place in time.
        """
        self._free -= 1
        if self._free < 0:
            self._give_up_one()
        try:
            async with asyncio.timeout(seconds):
                await self._places.acquire()
        except BaseException as error:
            self._free += 1
            if isinstance(error, TimeoutError):
                why = "capacity: as many sandboxes as there may be"
                raise SandboxUnavailable(why) from None
            raise

    def release(self) -> None:
        """Return the place of a sandbox that was stopped."""
        self._free += 1
        self._places.release()

    @contextlib.asynccontextmanager
    async def creating(self) -> AsyncIterator[None]:
        """Wait until another sandbox may be created, which takes as long as the context."""
        async with self._creating:
            yield
