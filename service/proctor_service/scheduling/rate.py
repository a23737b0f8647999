"""Rate of events per second over a sliding window."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable

WINDOW_SECONDS = 10


class Rate:
    """Counter of events in buckets of a second; `per_second` is the mean over the window."""

    def __init__(
        self, clock: Callable[[], float] = time.monotonic, window_seconds: int = WINDOW_SECONDS
    ) -> None:
        self._clock = clock
        self._window_seconds = window_seconds
        self._begun = clock()
        self._buckets: deque[tuple[int, int]] = deque()

    def add(self, count: int = 1) -> None:
        """Count events that happen now."""
        second = int(self._clock())
        if self._buckets and self._buckets[-1][0] == second:
            count += self._buckets.pop()[1]
        self._buckets.append((second, count))
        self._forget_before(second - self._window_seconds)

    def count(self, seconds: int | None = None) -> int:
        """Return the number of events within the window, or within its last `seconds`."""
        first = int(self._clock()) - (seconds or self._window_seconds)
        return sum(count for second, count in self._buckets if second >= first)

    def per_second(self, since: float | None = None, seconds: int | None = None) -> float:
        """Return the mean rate over the window or the last `seconds`.

        If the counter is younger, the mean covers its age. `since`: start of the time that counts
        for the mean, for example the start of load.
        """
        begun = self._begun if since is None else max(self._begun, since)
        age_seconds = max(self._clock() - begun, 1.0)
        return self.count(seconds) / min(age_seconds, float(seconds or self._window_seconds))

    def _forget_before(self, second: int) -> None:
        while self._buckets and self._buckets[0][0] < second:
            self._buckets.popleft()
