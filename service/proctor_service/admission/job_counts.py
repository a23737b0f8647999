"""What is counted for each job of each tenant, for as long as the job is seen.

A job's name comes from a trainer, so there are at most so many at once; further ones are counted together
as `other`. A job that nobody sees for a while is forgotten, and makes room.
"""

from __future__ import annotations

import time
from bisect import bisect_left
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field

MOST_JOBS = 100
KEPT_SECONDS = 3600.0
OTHER = "other"


@dataclass(slots=True)
class JobCounts:
    """Of one job: rewards by verdict, and by size as a histogram has them; items lost with a sandbox."""

    buckets: list[int]
    verdicts: dict[str, int] = field(default_factory=dict)
    reward_sum: float = 0.0
    squares_sum: float = 0.0
    lost: int = 0
    seen_at: float = 0.0


class JobTable:
    """All jobs that were seen lately, by tenant and name."""

    def __init__(
        self, bounds: Sequence[float], clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._bounds = tuple(bounds)
        self._clock = clock
        self._jobs: dict[tuple[str, str], JobCounts] = {}

    def add(self, tenant: str, job: str, verdict: str, reward: float) -> None:
        """Counts one reward."""
        counts = self._of(tenant, job)
        counts.seen_at = self._clock()
        counts.verdicts[verdict] = counts.verdicts.get(verdict, 0) + 1
        counts.buckets[bisect_left(self._bounds, reward)] += 1
        counts.reward_sum += reward
        counts.squares_sum += reward**2

    def add_lost(self, tenant: str, job: str) -> None:
        """Counts an item whose sandbox was lost in every attempt."""
        counts = self._of(tenant, job)
        counts.seen_at = self._clock()
        counts.lost += 1

    def seen(self, tenant: str | None = None) -> Iterator[tuple[str, str, JobCounts]]:
        """Tenant, job and counts, of one tenant or of all; those not seen for long are forgotten."""
        self._forget()
        for (whose, job), counts in self._jobs.items():
            if tenant is None or tenant == whose:
                yield whose, job, counts

    def _of(self, tenant: str, job: str) -> JobCounts:
        found = self._jobs.get((tenant, job))
        if found is None and self._is_full(tenant):
            self._forget()
            if self._is_full(tenant):
                job = OTHER
                found = self._jobs.get((tenant, job))
        if found is None:
            found = JobCounts([0] * (len(self._bounds) + 1))
            self._jobs[tenant, job] = found
        return found

    def _is_full(self, tenant: str) -> bool:
        """Each tenant has places of its own, or one could take all."""
        return sum(whose == tenant and job != OTHER for whose, job in self._jobs) >= MOST_JOBS

    def _forget(self) -> None:
        """Forgets jobs that were not seen for a while."""
        oldest = self._clock() - KEPT_SECONDS
        for key in [key for key, counts in self._jobs.items() if counts.seen_at < oldest]:
            del self._jobs[key]
