"""Two sandboxes for two programs running at the same time.

A pair leases its two sandboxes in turn. Where all sandboxes are taken, many pairs could hold one sandbox
each, and wait forever for their second. So a pair gives its first sandbox back after a long wait for the
second. Only the eldest waiting pair keeps its first: the eldest gets its second as the other pairs let
go.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator
from dataclasses import dataclass

from proctor_service.sandbox.interface import DEFAULT, Limits, Sandbox, Sandboxes

_PATIENCE_SECONDS = 20.0


@dataclass(frozen=True, slots=True)
class Wanted:
    """A sandbox of a pair."""

    limits: Limits
    environment: str = DEFAULT


class Pairs:
    """Leases pairs of sandboxes without deadlocks between pairs."""

    def __init__(self, patience_seconds: float = _PATIENCE_SECONDS) -> None:
        self._patience_seconds = patience_seconds
        self._waiting: list[asyncio.Event] = []

    @contextlib.asynccontextmanager
    async def pair(
        self, backend: Sandboxes, first: Wanted, second: Wanted
    ) -> AsyncIterator[tuple[Sandbox, Sandbox]]:
        """Lease two sandboxes; leaving the context removes both. Raises as `Sandboxes.lease`.

        Both are for the tenant and job of this context.
        """
        async with contextlib.AsyncExitStack() as stack:
            place = asyncio.Event()
            self._waiting.append(place)
            self._tell_eldest()
            try:
                pair = await self._taken(backend, first, second, place, stack)
            finally:
                self._waiting.remove(place)
                self._tell_eldest()
            yield pair

    async def _taken(
        self,
        backend: Sandboxes,
        first: Wanted,
        second: Wanted,
        is_eldest: asyncio.Event,
        stack: contextlib.AsyncExitStack,
    ) -> tuple[Sandbox, Sandbox]:
        while True:
            async with contextlib.AsyncExitStack() as held:
                one = await held.enter_async_context(_lease(backend, first))
                lease = held.enter_async_context(_lease(backend, second))
                other = await self._patiently(asyncio.ensure_future(lease), is_eldest)
                if other is not None:
                    stack.push_async_callback(held.pop_all().aclose)
                    return one, other
            await is_eldest.wait()

    async def _patiently(
        self, lease: asyncio.Future[Sandbox], is_eldest: asyncio.Event
    ) -> Sandbox | None:
        """Wait for a lease; give up after a while, if an elder pair waits, too."""
        try:
            await asyncio.wait({lease}, timeout=self._patience_seconds)
            if lease.done() or is_eldest.is_set():
                return await lease
        except asyncio.CancelledError:
            await _cancelled(lease)
            raise
        return await _cancelled(lease)

    def _tell_eldest(self) -> None:
        if self._waiting:
            self._waiting[0].set()


def _lease(backend: Sandboxes, wanted: Wanted) -> contextlib.AbstractAsyncContextManager[Sandbox]:
    return backend.lease(wanted.limits, wanted.environment)


async def _cancelled(lease: asyncio.Future[Sandbox]) -> Sandbox | None:
    """Cancel a lease, and wait for its end; return the sandbox of a lease granted meanwhile."""
    lease.cancel()
    await asyncio.wait({lease})
    return None if lease.cancelled() else lease.result()
