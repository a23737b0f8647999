"""Capacity of the queue: bounded, and no tenant or job takes all of it.

A flood from a single tenant or job must leave capacity for the rest, since the fair order acts only
on accepted requests. So the free capacity for other tenants must be at least a sixteenth of a
tenant's held units. Likewise the free capacity for the tenant's other jobs must be at least a
sixteenth of a job's held units.
"""

from __future__ import annotations

import time
from collections import Counter, deque
from collections.abc import Callable
from dataclasses import dataclass

from proctor_service.errors import BatchTooLarge, Busy

WINDOW_SECONDS = 10
HELD_FOR_EACH_FREE = 16
SHORTEST_RETRY_SECONDS = 1.0
LONGEST_RETRY_SECONDS = 60.0
RETRY_WITHOUT_RATE_SECONDS = 5.0

Whose = tuple[str, str]
"""Tenant and job."""
NOBODY: Whose = ("", "")


def retry_seconds(seconds: float) -> float:
    """Limit a retry time to the range of 1 to 60 seconds."""
    return min(max(seconds, SHORTEST_RETRY_SECONDS), LONGEST_RETRY_SECONDS)


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
        while self._buckets[0][0] < second - self._window_seconds:
            self._buckets.popleft()

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


class Places:
    """Capacity of `total` units; requests take units and return them step by step."""

    def __init__(self, total: int, clock: Callable[[], float] = time.monotonic) -> None:
        self.total = total
        self.held = 0
        self._clock = clock
        self._by_tenant: Counter[str] = Counter()
        self._by_job: Counter[Whose] = Counter()
        self._freed = Rate(clock)
        self._in_use_since = clock()

    def check(self, places: int) -> None:
        """Raise BatchTooLarge if `places` exceeds the total."""
        if places > self.total:
            raise BatchTooLarge(f"{places} at once: the queue takes {self.total} at most")

    def reserve(self, places: int, whose: Whose) -> None:
        """Take `places` units for the tenant and job in `whose`.

        Raises Busy, with a retry time, if too few units are free, and BatchTooLarge if `places`
        exceeds the total.
        """
        self.check(places)
        free = self.total - self.held - places
        fits = free >= 0 and (self.held == 0 or self._leaves_room(free, places, whose))
        if not fits:
            missing = -free if free < 0 else places
            message = f"the queue holds {self.held} of {self.total} submissions"
            if free >= 0:
                message += ", and the rest is for other jobs"
            raise Busy(message, self.seconds_until(missing))
        if self.held == 0:
            self._in_use_since = self._clock()
        self._add(places, whose)

    def give_back(self, places: int, whose: Whose) -> None:
        """Return units."""
        self._add(-places, whose)
        self._freed.add(places)

    def seconds_until(self, places: int) -> float:
        """Estimate the seconds until `places` units come free, from the recent rate of returns."""
        rate = self._freed.per_second(self._in_use_since)
        return retry_seconds(places / rate) if rate > 0 else RETRY_WITHOUT_RATE_SECONDS

    def _leaves_room(self, free: int, places: int, whose: Whose) -> bool:
        of_tenant = self._by_tenant[whose[0]] + places
        of_job = self._by_job[whose] + places
        # The number of units that the tenant could still take afterwards, by the same rule.
        left = (HELD_FOR_EACH_FREE * (free + 1) - 1 - of_tenant) // (HELD_FOR_EACH_FREE + 1)
        return of_tenant // HELD_FOR_EACH_FREE <= free and of_job // HELD_FOR_EACH_FREE <= max(
            left, 0
        )

    def _add(self, places: int, whose: Whose) -> None:
        self.held += places
        self._by_tenant[whose[0]] += places
        self._by_job[whose] += places
        if not self._by_job[whose]:
            del self._by_job[whose]
        if not self._by_tenant[whose[0]]:
            del self._by_tenant[whose[0]]


@dataclass(slots=True)
class Reservation:
    """Capacity for the items of a request, returned item by item."""

    places: Places
    whose: Whose
    left: int

    def give_back(self, places: int = 1) -> None:
        """Return units, at most as many as are left."""
        places = min(places, self.left)
        self.left -= places
        self.places.give_back(places, self.whose)

    def close(self) -> None:
        """Return the units that are left."""
        if self.left:
            self.give_back(self.left)
