"""Time and chance, as one object that a test replaces, so that no test ever waits."""

from __future__ import annotations

import asyncio
import random
import time
from typing import Self


class Clock:
    """The real time and real chance. `testing.FakeClock` stands in for it."""

    def monotonic(self) -> float:
        """Seconds since some fixed moment; never goes back."""
        return time.monotonic()

    def wall(self) -> float:
        """Seconds since the epoch."""
        return time.time()

    def chance(self) -> float:
        """A number in [0, 1) from the system's own source.

        Trainers seed `random`, often alike on every rank: drawing from it would change their runs
        and make all ranks retry at the same moment.
        """
        return random.SystemRandom().random()

    def sleep(self, seconds: float) -> None:
        """Wait in this thread."""
        time.sleep(seconds)

    def __deepcopy__(self, memo: object) -> Self:
        """A copied client goes by the same clock."""
        return self

    async def sleep_async(self, seconds: float) -> None:
        """Wait in this task."""
        await asyncio.sleep(seconds)
