"""A grace period that a test ends, so that a test of draining waits for events and not for a clock."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress

import pytest
from waits import WAIT_SECONDS

from proctor_service import app
from proctor_service.app import Parts
from proctor_service.http import server

_ANSWERING_SECONDS = 2 * WAIT_SECONDS
_LOOK_SECONDS = 0.01


class Grace:
    """The grace period of services; `seconds` is the setting `grace_seconds` of these services."""

    seconds = 4 * _ANSWERING_SECONDS

    def __init__(self) -> None:
        self._over = threading.Event()

    def end(self) -> None:
        """Ends the period: what still runs is cancelled."""
        self._over.set()

    async def until_over(self) -> None:
        """Waits for `end`, which another thread may call."""
        while not self._over.is_set():  # noqa: ASYNC110  the event is of another thread
            await asyncio.sleep(_LOOK_SECONDS)


@contextmanager
def grace_period() -> Iterator[Grace]:
    """The grace period of every service that is made and drains within the block.

    The answers that follow the period have ample time, however slow the machine is.
    """
    grace = Grace()
    work_ends = Parts._work_ends

    async def ends(parts: Parts, seconds: float) -> bool:
        if seconds <= _ANSWERING_SECONDS:
            return await work_ends(parts, seconds)
        working = asyncio.create_task(work_ends(parts, seconds))
        over = asyncio.create_task(grace.until_over())
        try:
            await asyncio.wait((working, over), return_when=asyncio.FIRST_COMPLETED)
            return working.done() and working.result()
        finally:
            for task in (working, over):
                task.cancel()
                with suppress(asyncio.CancelledError):
                    await task

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Parts, "_work_ends", ends)
        for module in (app, server):
            patch.setattr(module, "ANSWERING_SECONDS", _ANSWERING_SECONDS)
        yield grace
