"""Time and randomness as one object, which tests replace in order to avoid waits."""

from __future__ import annotations

import asyncio
import random
import time
from typing import Self


class Clock:
    """Real time and real randomness. Tests use `testing.FakeClock` instead."""

    def monotonic(self) -> float:
        """Return the seconds since a fixed moment; the value never decreases."""
        return time.monotonic()

    def wall(self) -> float:
        """Return the seconds since the epoch."""
        return time.time()

    def chance(self) -> float:
        """Return a random number in [0, 1) from the operating system.

        Trainers seed `random`, often with the same seed on every rank. Draws from `random` would
        change their runs, and all ranks would retry at the same moment.
        """
        return random.SystemRandom().random()

    def sleep(self, seconds: float) -> None:
        """Sleep in this thread."""
        time.sleep(seconds)

    def __deepcopy__(self, memo: object) -> Self:
        """Return the same clock: a copied client shares its clock."""
        return self

    async def sleep_async(self, seconds: float) -> None:
        """Sleep in this task."""
        await asyncio.sleep(seconds)
