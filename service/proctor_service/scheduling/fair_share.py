"""Fair shares of tenants and jobs in slot time. `places.py` shares the capacity of the queue.

The order is start-time fair queueing on three levels. Each tenant, each of its two priorities, and
each
of their jobs is a lane. A lane has an account: the slot time used, divided by the weight of the
lane. The lane with the smallest account goes first. An idle lane restarts at the level of the
active lanes, so idle time earns no credit. Each ticket is charged with the typical time of its job
at the start, and the charge is corrected at the end. Counting tickets alone would be unfair: a job
with submissions of ten seconds would leave almost no time for a job with submissions of five
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


@dataclass(slots=True, eq=False)
class Lane:
    """Account of slot seconds divided by weight, with child lanes or waiting items.

    `out`: tickets of the lane in use, at most `most_out`. `typical_seconds`: moving average of the
    time that a ticket of the lane is in use. `heap`: the ready child lanes, ordered by level; a
    child gets a new entry when its level changes, and only its last entry is valid.
    """

    weight: float = 1.0
    most_out: float = math.inf
    out: int = 0
    level: float = 0.0
    typical_seconds: float = FIRST_GUESS_SECONDS
    entry: int = -1  # number of the valid entry in the parent's heap; -1 without an entry
    entered_level: float = 0.0  # level in the valid entry
    lanes: dict[str, Lane] = field(default_factory=dict)
    waiting: OrderedDict[Waiter, None] = field(default_factory=OrderedDict)
    heap: list[tuple[float, int, Lane]] = field(default_factory=list)
    entries: int = 0
    served_level: float = 0.0  # highest level at which a child was first

    def first(self) -> Lane | None:
        """Return the ready child lane with the lowest level, or None."""
        while self.heap:
            level, entry, lane = self.heap[0]
            if entry == lane.entry:
                self.served_level = max(self.served_level, level)
                return lane
            heapq.heappop(self.heap)
        return None


Place = tuple[Lane, Lane, Lane]
"""Lanes of an item: tenant lane, priority lane within the tenant, job lane within the priority."""


class FairOrder:
    """Waiting items in fair order. `count`: number of waiting items."""

    def __init__(self, shares: Shares | None = None) -> None:
        self.count = 0
        self._shares = shares or Shares()
        self._all = Lane()

    def join(self, tenant: str, job: str, waiter: Waiter, priority: Priority = "training") -> Place:
        """Append a waiter to the lane of its job, and return its lanes."""
        of_tenant = self._all.lanes.get(tenant)
        if of_tenant is None:
            of_tenant = Lane(self._shares.weight(tenant), self._shares.most_out(tenant))
            self._all.lanes[tenant] = of_tenant
        within = of_tenant.lanes.get(priority)
        if within is None:
            within = of_tenant.lanes[priority] = Lane(PRIORITY_WEIGHTS[priority])
        lane = within.lanes.get(job)
        if lane is None:
            if len(within.lanes) >= MOST_IDLE_LANES:
                within.lanes = {name: kept for name, kept in within.lanes.items() if kept.waiting}
            lane = within.lanes[job] = Lane()
        place = (of_tenant, within, lane)
        lane.waiting[waiter] = None
        self.count += 1
        if lane.entry < 0:
            self._line_up(place)
        return place

    def leave(self, place: Place, waiter: Waiter) -> None:
        """Remove a waiter; do nothing if the waiter has left already."""
        if waiter in place[-1].waiting:
            del place[-1].waiting[waiter]
            self.count -= 1
            self._line_up(place)

    def pop_next(self) -> tuple[Waiter, float] | None:
        """Remove the next waiter; return the waiter and the seconds charged to its lanes.

        Returns None if no lane is ready.
        """
        while (  # a lane in a heap has a ready child: all three exist, or the first is missing
            (tenant := self._all.first()) is not None
            and (priority := tenant.first()) is not None
            and (job := priority.first()) is not None
        ):
            waiter, _ = job.waiting.popitem(last=False)
            self.count -= 1
            gone = waiter.done()
            guess_seconds = 0.0 if gone else job.typical_seconds
            place = (tenant, priority, job)
            for lane in place:
                lane.level += guess_seconds / lane.weight
                lane.out += not gone
            self._line_up(place)
            if not gone:
                return waiter, guess_seconds
        return None

    def charge(self, place: Place, guess_seconds: float, held_seconds: float) -> None:
        """Take back a ticket of `pop_next`, and correct the charge with the measured time."""
        job = place[-1]
        job.typical_seconds += (held_seconds - job.typical_seconds) / 8
        for lane in place:
            lane.level += (held_seconds - guess_seconds) / lane.weight
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
        self.count -= len(found)
        return found

    def _line_up(self, place: Place) -> None:
        """Update the heap entries of the lanes: enter ready lanes, remove the rest."""
        tenant, priority, job = place
        for parent, lane in ((priority, job), (tenant, priority), (self._all, tenant)):
            if lane.out >= lane.most_out or not (lane.waiting or lane.first()):
                lane.entry = -1
                continue
            if lane.entry < 0:
                lane.level = max(lane.level, parent.served_level)
            elif lane.level == lane.entered_level:
                continue
            lane.entered_level = lane.level
            parent.entries += 1
            lane.entry = parent.entries
            heapq.heappush(parent.heap, (lane.level, lane.entry, lane))
