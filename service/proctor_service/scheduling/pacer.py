"""Long work on the event loop, with pauses for the other tasks."""

from __future__ import annotations

import asyncio
import time

SLICE_SECONDS = 0.005


class Pacer:
    """Timer that yields to the event loop when a slice of work has taken long enough."""

    def __init__(self, seconds: float = SLICE_SECONDS) -> None:
        self._seconds = seconds
        self._until = time.perf_counter() + seconds

    @property
    def is_due(self) -> bool:
        """Whether the slice's time is used up."""
        return time.perf_counter() >= self._until

    async def pause(self) -> None:
        """Yield to the event loop if the slice's time is used up."""
        if self.is_due:
            await asyncio.sleep(0)
            self._until = time.perf_counter() + self._seconds
