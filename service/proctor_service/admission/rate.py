"""How many a second, over the last few seconds."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable

WINDOW_SECONDS = 10


class Rate:
    """Counts events in buckets of a second; `per_second` is their mean over the last ten."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._begun = clock()
        self._buckets: deque[tuple[int, int]] = deque()

    def add(self, count: int = 1) -> None:
        """Counts events that happen now."""
        second = int(self._clock())
        if self._buckets and self._buckets[-1][0] == second:
            count += self._buckets.pop()[1]
        self._buckets.append((second, count))
        self._forget_before(second - WINDOW_SECONDS)

    def per_second(self) -> float:
        """The mean over the window, or over the time since the start while that is shorter."""
        now = self._clock()
        self._forget_before(int(now) - WINDOW_SECONDS)
        total = sum(count for _, count in self._buckets)
        return total / min(max(now - self._begun, 1.0), float(WINDOW_SECONDS))

    def _forget_before(self, second: int) -> None:
        while self._buckets and self._buckets[0][0] < second:
            self._buckets.popleft()
