"""Fair order of waiting items: by tenant, then priority, then job, measured in slot seconds.

Start-time fair queueing on three levels. Each tenant, each of its two priorities, and each of their
jobs is a lane. A lane has an account: the slot time used, divided by the weight of the lane. The
lane with the smallest account goes first. An idle lane restarts at the level of the active lanes,
so idle time earns no credit. Each ticket is charged with the typical time of its job at the start,
and the charge is corrected at the end. Counting tickets alone would be unfair: a job with
submissions of ten seconds would leave almost no time for a job with submissions of five
milliseconds.

Tenants are the first level. Otherwise a tenant could gain a larger share through many job names, or
through the priority `evaluation` for all its work. Evaluation goes before training but leaves
training a share: if both wait, evaluation gets nine tenths of the tenant's time.
"""

from __future__ import annotations

import asyncio
import heapq
import math
from collections import OrderedDict
from collections.abc import Container, Mapping
from dataclasses import dataclass, field

from proctor_client.wire import Priority

Waiter = asyncio.Future[object]

FIRST_GUESS_SECONDS = 0.001
MOST_IDLE_LANES = 256
EVERYBODY_ELSE = "*"
PRIORITY_WEIGHTS: Mapping[str, float] = {"evaluation": 9.0, "training": 1.0}


@dataclass(frozen=True, slots=True)
class Shares:
    """Limits and weights of tenants by name; `*` stands for all unnamed tenants.

    `weights`: relative shares of the time, 1 by default. `slots`: maximum tickets in use at the
    same time. `sandboxes`: maximum stateful sandboxes at the same time.
    """

    weights: Mapping[str, float] = field(default_factory=dict)
    slots: Mapping[str, int] = field(default_factory=dict)
    sandboxes: Mapping[str, int] = field(default_factory=dict)

    def weight(self, tenant: str) -> float:
        """Return the tenant's weight."""
        return self.weights.get(tenant, self.weights.get(EVERYBODY_ELSE, 1.0))

    def most_out(self, tenant: str) -> float:
        """Return the maximum number of tickets that the tenant may use at the same time."""
        return self.slots.get(tenant, self.slots.get(EVERYBODY_ELSE, math.inf))

    def most_sandboxes(self, tenant: str) -> float:
        """Return the maximum number of stateful sandboxes of the tenant at the same time."""
        return self.sandboxes.get(tenant, self.sandboxes.get(EVERYBODY_ELSE, math.inf))


class _Heap:
    """Heap of ready lanes, ordered by level. A changed lane gets a new entry."""

    def __init__(self) -> None:
        self._heap: list[tuple[float, int, Lane]] = []
        self._serial = 0
        self._level = 0.0

    def enter(self, lane: Lane) -> None:
        """Add a lane, or enter the lane again after a change of its level."""
        if lane.serial < 0:
            lane.level = max(lane.level, self._level)
        elif lane.level == lane.entered_level:
            return
        lane.entered_level = lane.level
        self._serial += 1
        lane.serial = self._serial
        heapq.heappush(self._heap, (lane.level, self._serial, lane))

    def leave(self, lane: Lane) -> None:
        """Remove a lane without a ready item."""
        lane.serial = -1

    def first(self) -> Lane | None:
        """Return the ready lane with the lowest level, or None."""
        while self._heap:
            level, serial, lane = self._heap[0]
            if serial == lane.serial:
                self._level = max(self._level, level)
                return lane
            heapq.heappop(self._heap)
        return None


@dataclass(slots=True, eq=False)
class Lane:
    """Account of slot seconds divided by weight, with child lanes or waiting items.

    `out`: tickets of the lane in use, at most `most_out`. `typical_seconds`: moving average of the
    time that a ticket of the lane is in use.
    """

    weight: float = 1.0
    most_out: float = math.inf
    out: int = 0
    level: float = 0.0
    typical_seconds: float = FIRST_GUESS_SECONDS
    serial: int = -1  # number of the valid heap entry; -1 while the lane is outside the heap
    entered_level: float = 0.0  # level in the valid heap entry
    turns: _Heap = field(default_factory=_Heap)
    lanes: dict[str, Lane] = field(default_factory=dict)
    waiting: OrderedDict[Waiter, None] = field(default_factory=OrderedDict)

    @property
    def sends(self) -> bool:
        """True if an item of this lane may run now."""
        return self.out < self.most_out and (bool(self.waiting) or self.turns.first() is not None)

    def charge(self, seconds: float) -> None:
        """Add slot time to the account."""
        self.level += seconds / self.weight


Place = tuple[Lane, Lane, Lane]
"""Lanes of an item: tenant lane, priority lane within the tenant, job lane within the priority."""


class FairOrder:
    """Waiting items in fair order."""

    def __init__(self, shares: Shares | None = None) -> None:
        self._shares = shares or Shares()
        self._all = Lane()
        self._count = 0

    def __len__(self) -> int:
        return self._count

    def join(self, tenant: str, job: str, waiter: Waiter, priority: Priority = "training") -> Place:
        """Append a waiter to the lane of its job, and return its lanes."""
        place = self._place(tenant, priority, job)
        lane = place[-1]
        lane.waiting[waiter] = None
        self._count += 1
        if lane.serial < 0:
            self._line_up(place)
        return place

    def leave(self, place: Place, waiter: Waiter) -> None:
        """Remove a waiter; do nothing if the waiter has left already."""
        if waiter in place[-1].waiting:
            del place[-1].waiting[waiter]
            self._count -= 1
            self._line_up(place)

    def pop_next(self) -> tuple[Waiter, float] | None:
        """Remove the next waiter; return the waiter and the seconds charged to its lanes.

        Returns None if no lane is ready.
        """
        while (place := self._first()) is not None:
            job = place[-1]
            waiter, _ = job.waiting.popitem(last=False)
            self._count -= 1
            gone = waiter.done()
            guess = 0.0 if gone else job.typical_seconds
            for lane in place:
                lane.charge(guess)
                lane.out += not gone
            self._line_up(place)
            if not gone:
                return waiter, guess
        return None

    def charge(self, place: Place, guess_seconds: float, held_seconds: float) -> None:
        """Take back a ticket that `take` gave, and correct the charge with the measured time."""
        job = place[-1]
        job.typical_seconds += (held_seconds - job.typical_seconds) / 8
        for lane in place:
            lane.charge(held_seconds - guess_seconds)
            lane.out -= 1
        self._line_up(place)

    def ahead(self, tenant: str, job: str, priority: Priority) -> int:
        """Return the number of waiters in the job lane of a new item with these names."""
        lane: Lane | None = self._all
        for name in (tenant, priority, job):
            lane = None if lane is None else lane.lanes.get(name)
        return 0 if lane is None else len(lane.waiting)

    def dismiss(self, but: Container[Waiter]) -> list[Waiter]:
        """Remove and return all waiters except the waiters in `but`."""
        found: list[Waiter] = []
        for tenant in self._all.lanes.values():
            for priority in tenant.lanes.values():
                for job in priority.lanes.values():
                    gone = [waiter for waiter in job.waiting if waiter not in but]
                    for waiter in gone:
                        del job.waiting[waiter]
                    self._line_up((tenant, priority, job))
                    found += gone
        self._count -= len(found)
        return found

    def _first(self) -> Place | None:
        tenant = self._all.turns.first()
        priority = None if tenant is None else tenant.turns.first()
        job = None if priority is None else priority.turns.first()
        if tenant is None or priority is None or job is None:
            return None  # a lane in the heap has a ready child: here the tenant heap is empty
        return tenant, priority, job

    def _line_up(self, place: Place) -> None:
        """Update the heap entries of the lanes: enter ready lanes, remove the rest."""
        for within, lane in zip((*place[-2::-1], self._all), reversed(place), strict=True):
            if lane.sends:
                within.turns.enter(lane)
            elif lane.serial >= 0:
                within.turns.leave(lane)

    def _place(self, tenant_name: str, priority_name: Priority, job_name: str) -> Place:
        tenant = self._all.lanes.get(tenant_name)
        if tenant is None:
            shares = self._shares
            tenant = Lane(shares.weight(tenant_name), shares.most_out(tenant_name))
            self._all.lanes[tenant_name] = tenant
        priority = tenant.lanes.get(priority_name)
        if priority is None:
            priority = tenant.lanes[priority_name] = Lane(PRIORITY_WEIGHTS[priority_name])
        job = priority.lanes.get(job_name)
        if job is None:
            if len(priority.lanes) >= MOST_IDLE_LANES:
                kept = {name: lane for name, lane in priority.lanes.items() if lane.waiting}
                priority.lanes = kept
            job = priority.lanes[job_name] = Lane()
        return tenant, priority, job
