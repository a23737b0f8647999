"""Retries for work with a sandbox that was lost through no act of its program."""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable
from typing import TypeVar

from proctor_service.errors import SandboxLost, SandboxUnavailable
from proctor_service.scheduling.queue import Ticket

T = TypeVar("T")

log = logging.getLogger(__name__)

MOST_ATTEMPTS = 3


async def attempted(
    work: Callable[[], Awaitable[T]], ticket: Ticket, evaluation_id: str | None = None
) -> T:
    """Return the result of `work`; retry in a fresh sandbox if its sandbox is lost or unavailable.

    `work` gets three attempts. The last attempt runs alone: all other tickets are returned first.
    So a shortage caused by several programs together, for example of the machine's memory, is gone
    by then. Other errors are raised at once. Raises SandboxLost and SandboxUnavailable after the
    last attempt.
    """
    for attempt in range(1, MOST_ATTEMPTS):
        try:
            return await work()
        except (SandboxLost, SandboxUnavailable) as lost:
            fields = {"evaluation_id": evaluation_id, "attempt": attempt, "why": lost.message}
            log.warning("trying once more: %s", lost.reason, extra=fields)
    async with ticket.alone():
        return await work()
