"""A sandbox's turn: one ticket of the queue for all of its commands that run at once.

A ticket stands for a sandbox that wants a core, however many processes are in it. The backend
counts who is asleep by sandboxes, and so many more tickets are lent: with a ticket for each
command, a few that sleep side by side in one sandbox would keep everybody else waiting.
"""

from __future__ import annotations

import asyncio
from contextlib import AsyncExitStack
from types import TracebackType

from proctor_client.wire import Priority
from proctor_service.admission.queue import FairQueue, stopping
from proctor_service.errors import Busy, Cancelled, DeadlinePassed

LONGEST_QUEUE_SECONDS = 600.0


class Turn:
    """A context for each command: the first waits for the ticket, the last gives it back."""

    def __init__(
        self,
        queue: FairQueue,
        tenant: str,
        job: str,
        priority: Priority = "training",
        begun: bool = False,
    ) -> None:
        """`begun`: for a part of work that has begun, and goes on while the service drains."""
        self._queue = queue
        self._begun = begun
        self._whose = (tenant, job)
        self._priority = priority
        self._entering = asyncio.Lock()
        self._commands = 0
        self._held = AsyncExitStack()

    async def __aenter__(self) -> float:
        """Waits; for how many seconds. Raises Busy and Draining: nothing ran then."""
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
        except Cancelled:  # by a queue that drains
            raise stopping() from None
