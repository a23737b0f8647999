"""How many a second, over the last few seconds."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable

WINDOW_SECONDS = 10


class Rate:
    """Counts events in buckets of a second; `per_second` is their mean over the last few."""

    def __init__(
        self, clock: Callable[[], float] = time.monotonic, window_seconds: int = WINDOW_SECONDS
    ) -> None:
        self._clock = clock
        self._window_seconds = window_seconds
        self._begun = clock()
        self._buckets: deque[tuple[int, int]] = deque()

    def add(self, count: int = 1) -> None:
        """Counts events that happen now."""
        second = int(self._clock())
        if self._buckets and self._buckets[-1][0] == second:
            count += self._buckets.pop()[1]
        self._buckets.append((second, count))
        self._forget_before(second - self._window_seconds)

    def count(self, seconds: int | None = None) -> int:
        """How many there were within the window, or within the last `seconds` of it."""
        first = int(self._clock()) - (seconds or self._window_seconds)
        return sum(count for second, count in self._buckets if second >= first)

    def per_second(self, since: float | None = None, seconds: int | None = None) -> float:
        """The mean over the window or so many `seconds`, or over the time since the start if less.

        `since`: before it there was nothing to count, so that the time does not belong to the mean.
        """
        begun = self._begun if since is None else max(self._begun, since)
        age_seconds = max(self._clock() - begun, 1.0)
        return self.count(seconds) / min(age_seconds, float(seconds or self._window_seconds))

    def _forget_before(self, second: int) -> None:
        while self._buckets and self._buckets[0][0] < second:
            self._buckets.popleft()
