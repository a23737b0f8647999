"""Attempts at a piece of work whose sandbox may be lost through no act of what runs in it."""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable
from typing import TypeVar

from proctor_service.admission.queue import Ticket
from proctor_service.errors import SandboxLost, SandboxUnavailable

T = TypeVar("T")

log = logging.getLogger(__name__)

MOST_ATTEMPTS = 3


async def attempted(
    work: Callable[[], Awaitable[T]], ticket: Ticket, evaluation_id: str | None = None
) -> T:
    """The result of `work`, done again in a fresh sandbox when its own is lost or not to be had.

    The last attempt is alone: nothing else that holds a ticket runs beside it, so that what several
    together cannot have, such as memory of the surroundings, each can have by itself. Nothing else is
    ever retried. Raises SandboxLost and SandboxUnavailable after the last attempt.
    """
    for attempt in range(1, MOST_ATTEMPTS):
        try:
            return await work()
        except (SandboxLost, SandboxUnavailable) as lost:
            fields = {"evaluation_id": evaluation_id, "attempt": attempt, "why": lost.message}
            log.warning("trying once more: %s", lost.reason, extra=fields)
    async with ticket.alone():
        return await work()
