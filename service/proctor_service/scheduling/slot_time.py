"""Slot time of the tickets in use, which is what tenants and jobs are charged."""

from __future__ import annotations

from collections.abc import Callable


class SlotTime:
    """Slot time of a ticket in use: wall time, or a share if more tickets than slots are in use.

    So the charges of all tickets together are at most the time of the slots.
    """

    def __init__(self, slots: int, clock: Callable[[], float]) -> None:
        self._slots = slots
        self._clock = clock
        self._at = clock()
        self._seconds = 0.0

    def read(self, busy: int) -> float:
        """Return the seconds so far; `busy`: number of tickets in use since the last reading."""
        now = self._clock()
        self._seconds += (now - self._at) * min(1.0, self._slots / max(busy, 1))
        self._at = now
        return self._seconds
