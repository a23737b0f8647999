"""Slot lease of a sandbox: a single queue ticket for all its concurrent commands.

A ticket stands for a sandbox that needs a core, for any number of processes inside. The backend
counts idle sandboxes, and the queue grants as many extra tickets. With a ticket for each command,
several sleeping commands in a sandbox would block the queue for other jobs.
"""

from __future__ import annotations

import asyncio
from contextlib import AsyncExitStack
from types import TracebackType

from proctor_client.wire import Priority
from proctor_service.errors import Busy, Cancelled, DeadlinePassed
from proctor_service.scheduling.queue import FairQueue, stopping

LONGEST_QUEUE_SECONDS = 600.0


class SlotLease:
    """Context for each command: the first waits for the ticket, the last returns the ticket."""

    def __init__(
        self,
        queue: FairQueue,
        tenant: str,
        job: str,
        priority: Priority = "training",
        begun: bool = False,
    ) -> None:
        """Create the lease. `begun`: the commands belong to begun work, which survives a drain."""
        self._queue = queue
        self._begun = begun
        self._whose = (tenant, job)
        self._priority = priority
        self._entering = asyncio.Lock()
        self._commands = 0
        self._held = AsyncExitStack()

    async def __aenter__(self) -> float:
        """Wait for the ticket, and return the seconds of the wait.

        Raises Busy and Draining, both before the command runs.
        """
        asked = self._queue.clock()
        async with self._entering:
            if self._queue.draining and not self._begun:
                raise stopping()
            if self._commands == 0:
                self._held = await self._take()
            self._commands += 1
        return self._queue.clock() - asked

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._commands -= 1
        if self._commands == 0:
            await self._held.aclose()

    async def _take(self) -> AsyncExitStack:
        queue = self._queue
        try:
            async with AsyncExitStack() as stack:
                stack.callback(queue.reserve(1, self._whose, self._begun).close)
                deadline = queue.clock() + LONGEST_QUEUE_SECONDS
                turn = queue.admit(*self._whose, deadline, self._priority, self._begun)
                await stack.enter_async_context(turn)
                return stack.pop_all()
        except DeadlinePassed:
            raise Busy(f"no core came free within {LONGEST_QUEUE_SECONDS:g} s") from None
        except Cancelled:  # the queue drains
            raise stopping() from None
