"""Counters per job and tenant, stored while results of the job arrive.

The trainer chooses the job name. Each tenant may have at most 100 named jobs; further jobs are
counted together as `other`. A job without results for an hour is removed.
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
    """Counts of a job: rewards by verdict and by histogram bucket, items lost with a sandbox."""

    buckets: list[int]
    verdicts: dict[str, int] = field(default_factory=dict)
    reward_sum: float = 0.0
    squares_sum: float = 0.0
    lost: int = 0
    seen_at: float = 0.0


class JobTable:
    """Counters of all recent jobs, by tenant and job name."""

    def __init__(
        self, bounds: Sequence[float], clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._bounds = tuple(bounds)
        self._clock = clock
        self._jobs: dict[tuple[str, str], JobCounts] = {}

    def add(self, tenant: str, job: str, verdict: str, reward: float) -> None:
        """Count a reward."""
        counts = self._of(tenant, job)
        counts.seen_at = self._clock()
        counts.verdicts[verdict] = counts.verdicts.get(verdict, 0) + 1
        counts.buckets[bisect_left(self._bounds, reward)] += 1
        counts.reward_sum += reward
        counts.squares_sum += reward**2

    def add_lost(self, tenant: str, job: str) -> None:
        """Count an item that lost its sandbox in every attempt."""
        counts = self._of(tenant, job)
        counts.seen_at = self._clock()
        counts.lost += 1

    def seen(self, tenant: str | None = None) -> Iterator[tuple[str, str, JobCounts]]:
        """Yield tenant, job and counts, of `tenant` or of all tenants, after removing old jobs."""
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
        """True if the tenant has reached its own limit of named jobs.

        The limit is per tenant, since otherwise a tenant could use up the table alone.
        """
        return sum(whose == tenant and job != OTHER for whose, job in self._jobs) >= MOST_JOBS

    def _forget(self) -> None:
        """Remove jobs without results for an hour."""
        oldest = self._clock() - KEPT_SECONDS
        for key in [key for key, counts in self._jobs.items() if counts.seen_at < oldest]:
            del self._jobs[key]
