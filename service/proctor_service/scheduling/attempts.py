"""Attempts at work that holds a ticket: a lost sandbox costs time and no result."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from typing import TypeVar

from proctor_service.errors import (
    DeadlinePassed,
    EnvironmentUnavailable,
    SandboxLost,
    SandboxUnavailable,
)
from proctor_service.scheduling.deadlines import Limit
from proctor_service.scheduling.queue import Ticket

T = TypeVar("T")

log = logging.getLogger(__name__)

MOST_ATTEMPTS = 3


async def attempted(
    work: Callable[[], Awaitable[T]],
    ticket: Ticket,
    evaluation_id: str | None = None,
    deadline: float | None = None,
    doing: str = "was judged",
) -> T:
    """Return the result of `work`; retry in a fresh sandbox if its sandbox is lost or unavailable.

    `work` gets three attempts, all before the deadline. The last attempt runs alone: all other
    tickets are returned first. So a shortage caused by several programs together, for example of
    the machine's memory, is gone by then. Other errors are raised at once, and so is that of an
    environment whose sandboxes do not start. Raises SandboxLost and
    SandboxUnavailable after the last attempt, and DeadlinePassed.
    """
    limit, deadlines = Limit(), ticket.queue.deadlines
    if deadline is not None:
        deadlines.watch(limit, deadline)
    try:
        for attempt in range(1, MOST_ATTEMPTS):
            try:
                return await work()
            except EnvironmentUnavailable:
                raise
            except (SandboxLost, SandboxUnavailable) as lost:
                why = {"evaluation_id": evaluation_id, "attempt": attempt, "why": lost.message}
                log.warning("trying once more: %s", lost.reason, extra=why)
        async with ticket.alone():
            return await work()
    except asyncio.CancelledError:
        if not limit.explains():
            raise
        raise DeadlinePassed(f"the deadline passed while it {doing}") from None
    finally:
        limit.close()  # a sweep that has begun may still hold it
        if deadline is not None:
            deadlines.forget(limit, deadline)
