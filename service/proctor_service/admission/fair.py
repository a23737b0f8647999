"""Whose turn it is: fair by tenant, then by job, in seconds of slots and not in turns.

Start-time fair queueing, twice. Each tenant, and each of its jobs, is a lane with an account of the
slot time that it had. The lane that had least comes first. A lane that was idle starts at the level
of those that were not, so that nobody saves up turns. A ticket is charged by the lane's typical
time when it is given, and corrected when it comes back: turn by turn, a job whose submissions loop
for ten seconds would leave next to nothing for one whose submissions take five milliseconds.

Tenants come first, since a tenant could otherwise have a larger share by inventing jobs.
"""

from __future__ import annotations

import asyncio
import heapq
from collections import OrderedDict
from dataclasses import dataclass, field
from typing import Generic, TypeVar

Waiter = asyncio.Future[object]

FIRST_GUESS_SECONDS = 0.001
MOST_IDLE_LANES = 256


@dataclass(slots=True, eq=False)
class _Lane:
    """An account: slot seconds had, per weight, and how long its tickets are typically out."""

    level: float = 0.0
    weight: float = 1.0
    typical_seconds: float = FIRST_GUESS_SECONDS
    serial: int = -1  # of its valid entry in a heap; -1 while nothing of it waits
    entered_level: float = 0.0  # in that entry

    def charge(self, seconds: float) -> None:
        self.level += seconds / self.weight


@dataclass(slots=True, eq=False)
class JobLane(_Lane):
    """The waiting items of one job, first come first served."""

    waiting: OrderedDict[Waiter, None] = field(default_factory=OrderedDict)


L = TypeVar("L", bound=_Lane)


class _Turns(Generic[L]):
    """The lanes in which something waits, by level. A changed lane is entered anew."""

    def __init__(self) -> None:
        self._heap: list[tuple[float, int, L]] = []
        self._serial = 0
        self._level = 0.0

    def enter(self, lane: L) -> None:
        """Puts a lane in line, or back in line after its level changed."""
        if lane.serial < 0:
            lane.level = max(lane.level, self._level)
        elif lane.level == lane.entered_level:
            return
        lane.entered_level = lane.level
        self._serial += 1
        lane.serial = self._serial
        heapq.heappush(self._heap, (lane.level, self._serial, lane))

    def leave(self, lane: L) -> None:
        """Takes a lane out of line: nothing of it waits."""
        lane.serial = -1

    def first(self) -> L | None:
        """The lane whose turn it is."""
        while self._heap:
            level, serial, lane = self._heap[0]
            if serial == lane.serial:
                self._level = max(self._level, level)
                return lane
            heapq.heappop(self._heap)
        return None


@dataclass(slots=True, eq=False)
class _TenantLane(_Lane):
    turns: _Turns[JobLane] = field(default_factory=_Turns)
    jobs: dict[str, JobLane] = field(default_factory=dict)


@dataclass(slots=True, frozen=True)
class Place:
    """Where an item stands: its tenant's lane and its job's."""

    tenant: _TenantLane
    job: JobLane


class FairOrder:
    """Who waits, and who is next."""

    def __init__(self) -> None:
        self._turns: _Turns[_TenantLane] = _Turns()
        self._tenants: dict[str, _TenantLane] = {}
        self._count = 0

    def __len__(self) -> int:
        return self._count

    def join(self, tenant: str, job: str, waiter: Waiter) -> Place:
        """Puts a waiter at the end of its job's lane."""
        place = self._place(tenant, job)
        place.job.waiting[waiter] = None
        self._count += 1
        if place.job.serial < 0:
            place.tenant.turns.enter(place.job)
        if place.tenant.serial < 0:
            self._turns.enter(place.tenant)
        return place

    def leave(self, place: Place, waiter: Waiter) -> None:
        """Takes a waiter out; nothing happens when it is out already."""
        if waiter in place.job.waiting:
            del place.job.waiting[waiter]
            self._removed(place)

    def take(self) -> tuple[Waiter, float] | None:
        """The next waiter, taken out, and the seconds that its lanes are charged for now."""
        while (tenant := self._turns.first()) is not None:
            job = tenant.turns.first()
            assert job is not None, "a tenant in line has a job in line"
            place = Place(tenant, job)
            waiter, _ = job.waiting.popitem(last=False)
            guess = 0.0 if waiter.done() else job.typical_seconds
            job.charge(guess)
            tenant.charge(guess)
            self._removed(place)
            if not waiter.done():
                return waiter, guess
        return None

    def settle(self, place: Place, guess_seconds: float, held_seconds: float) -> None:
        """Corrects what `take` charged, once it is known for how long the ticket was out."""
        tenant, job = place.tenant, place.job
        job.typical_seconds += (held_seconds - job.typical_seconds) / 8
        job.charge(held_seconds - guess_seconds)
        tenant.charge(held_seconds - guess_seconds)
        self._enter_again(place)

    def _removed(self, place: Place) -> None:
        self._count -= 1
        self._enter_again(place)

    def _enter_again(self, place: Place) -> None:
        """Keeps both lanes in line by their present levels, or out of it when nothing waits."""
        tenant, job = place.tenant, place.job
        if job.waiting:
            tenant.turns.enter(job)
        elif job.serial >= 0:
            tenant.turns.leave(job)
        if tenant.turns.first() is not None:
            self._turns.enter(tenant)
        elif tenant.serial >= 0:
            self._turns.leave(tenant)

    def _place(self, tenant_name: str, job_name: str) -> Place:
        tenant = self._tenants.get(tenant_name)
        if tenant is None:
            tenant = self._tenants[tenant_name] = _TenantLane()
        job = tenant.jobs.get(job_name)
        if job is None:
            if len(tenant.jobs) >= MOST_IDLE_LANES:
                tenant.jobs = {name: lane for name, lane in tenant.jobs.items() if lane.waiting}
            job = tenant.jobs[job_name] = JobLane()
        return Place(tenant, job)
