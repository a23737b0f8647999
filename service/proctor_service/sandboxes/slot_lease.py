"""The slot of a stateful sandbox with running commands.

All concurrent commands of a sandbox share a slot lease, a single queue ticket. A ticket stands for
a sandbox that needs a core, for any number of processes inside. The backend counts idle sandboxes,
and the queue grants as many extra tickets. With a ticket for each command, several sleeping
commands in a sandbox would block the queue for other jobs.
"""

from __future__ import annotations

import asyncio
from contextlib import AsyncExitStack
from dataclasses import dataclass, field

from proctor_client.wire import Priority
from proctor_service.errors import Busy, Cancelled, DeadlinePassed
from proctor_service.sandbox.interface import CHARGE
from proctor_service.scheduling.fair_share import Whose
from proctor_service.scheduling.queue import FairQueue, Ticket, stopping

LONGEST_QUEUE_SECONDS = 600.0


@dataclass(slots=True)
class SlotLease:
    """Context of commands: the first waits for the ticket, the last returns it.

    `begun`: the commands belong to begun work, which survives a drain.
    """

    queue: FairQueue
    whose: Whose
    priority: Priority
    begun: bool
    _entering: asyncio.Lock = field(default_factory=asyncio.Lock)
    _commands: int = 0
    _ticket: Ticket | None = None
    _held: AsyncExitStack = field(default_factory=AsyncExitStack)

    async def __aenter__(self) -> float:
        """Wait for the ticket, and return the seconds of the wait.

        Raises Busy and Draining, both before the command runs.
        """
        queue = self.queue
        joined = queue.clock()
        async with self._entering:
            if queue.draining and not self.begun:
                raise stopping()
            if self._commands == 0:
                try:
                    async with AsyncExitStack() as stack:
                        stack.callback(queue.reserve(1, self.whose, self.begun).close)
                        deadline = queue.clock() + LONGEST_QUEUE_SECONDS
                        turn = queue.admit(*self.whose, deadline, self.priority, self.begun)
                        self._ticket = await stack.enter_async_context(turn)
                        self._held = stack.pop_all()
                except DeadlinePassed:
                    message = f"no core came free within {LONGEST_QUEUE_SECONDS:g} s"
                    raise Busy(message) from None
                except Cancelled:  # the queue drains
                    raise stopping() from None
            self._commands += 1
            assert self._ticket is not None, "the first command has waited for it"
            CHARGE.set(self._ticket.charge)
        return queue.clock() - joined

    async def __aexit__(self, *_: object) -> None:
        """Return the ticket after the last command."""
        self._commands -= 1
        if self._commands == 0:
            await self._held.aclose()
