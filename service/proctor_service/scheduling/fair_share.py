"""Fair shares of tenants and jobs in slot time. `places.py` shares the capacity of the queue.

The order is start-time fair queueing on three levels. Each tenant, each of its two priorities, and
each of their jobs is a lane. A lane has an account: the slot time used, divided by the weight of
the lane. The lane with the smallest account goes first. An idle lane restarts at the level of the
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
from collections.abc import Callable, Container, Mapping
from dataclasses import dataclass, field
from itertools import islice
from typing import Any

from proctor_client.wire import Priority

Waiter = asyncio.Future[object]

FIRST_GUESS_SECONDS = 0.001
MOST_IDLE_LANES = 256
MOST_SEEN = 4096
"""Waiters of a lane looked at for portable work."""
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
    time that a ticket of the lane is in use. `waiting`: each waiter with its portable work, or None.
    `portable`: number of waiters with portable work. `heap`: the ready child lanes, ordered by
    level; a child gets a new entry when its level changes, and only its last entry is valid.
    """

    weight: float = 1.0
    most_out: float = math.inf
    out: int = 0
    level: float = 0.0
    typical_seconds: float = FIRST_GUESS_SECONDS
    entry: int = -1  # number of the valid entry in the parent's heap; -1 without an entry
    entered_level: float = 0.0  # level in the valid entry
    lanes: dict[str, Lane] = field(default_factory=dict)
    waiting: OrderedDict[Waiter, object] = field(default_factory=OrderedDict)
    portable: int = 0
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

    def add(self, waiter: Waiter, work: object) -> None:
        """Append a waiter."""
        self.waiting[waiter] = work
        self.portable += work is not None

    def remove(self, waiter: Waiter) -> object:
        """Remove a waiter; return its portable work, or None."""
        work = self.waiting.pop(waiter)
        self.portable -= work is not None
        return work


Place = tuple[Lane, Lane, Lane]
"""Lanes of an item: tenant lane, priority lane within the tenant, job lane within the priority."""
Alike = Callable[[object, object], bool]
"""Whether two pieces of portable work may go to a peer in one request."""


@dataclass(slots=True, eq=False)
class Handed:
    """A waiter whose work is in the hands of a peer, and the seconds charged to its lanes."""

    work: Any
    waiter: Waiter
    place: Place
    guess_seconds: float


class FairOrder:
    """Waiting items in fair order.

    `count`: number of waiting items. `portable`: number of those with work that a peer may do.
    """

    def __init__(self, shares: Shares | None = None) -> None:
        self.count = 0
        self.portable = 0
        self._shares = shares or Shares()
        self._all = Lane()

    def join(
        self,
        tenant: str,
        job: str,
        waiter: Waiter,
        priority: Priority = "training",
        work: object = None,
    ) -> Place:
        """Append a waiter to the lane of its job, and return its lanes.

        `work`: what a peer may do in place of this replica, or None.
        """
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
                found = within.lanes.items()
                within.lanes = {name: kept for name, kept in found if kept.waiting or kept.out}
            lane = within.lanes[job] = Lane()
        place = (of_tenant, within, lane)
        lane.add(waiter, work)
        self.count += 1
        self.portable += work is not None
        if lane.entry < 0:
            self._line_up(place)
        return place

    def leave(self, place: Place, waiter: Waiter) -> None:
        """Remove a waiter; do nothing if the waiter has left already."""
        if waiter in place[-1].waiting:
            self._remove(place[-1], waiter)
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
            waiter = next(iter(job.waiting))
            self._remove(job, waiter)
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
                        self._remove(job, waiter)
                    self._line_up((tenant, priority, job))
                    found += gone
        return found

    def first_portable(self) -> Any:
        """Return the portable work that `take` would return first, or None."""
        for place in self._portable_lanes():
            return next(work for work in place[-1].waiting.values() if work is not None)
        return None

    def take(self, most: int, alike: Alike) -> list[Handed]:
        """Remove up to `most` waiters with portable work, for a peer, and charge their lanes.

        All are of one job: the first in fair order with portable work. They count as tickets of
        their lanes until `give_up` or `put_back`.
        """
        for place in self._portable_lanes():
            job = place[-1]
            found: list[tuple[Waiter, object]] = []
            room = min(most, place[0].most_out - place[0].out)
            for waiter, work in islice(job.waiting.items(), MOST_SEEN):
                if work is None or waiter.done():
                    continue
                if len(found) >= room or (found and not alike(found[0][1], work)):
                    break
                found.append((waiter, work))
            if not found:  # what is left of the lane has been cancelled
                continue
            guess_seconds = job.typical_seconds
            for waiter, _ in found:
                self._remove(job, waiter)
            for lane in place:
                lane.level += len(found) * guess_seconds / lane.weight
                lane.out += len(found)
            self._line_up(place)
            return [Handed(work, waiter, place, guess_seconds) for waiter, work in found]
        return []

    def give_up(self, handed: Handed) -> None:
        """End the ticket of a waiter that `take` returned, and that needs no turn any more."""
        for lane in handed.place:
            lane.out -= 1
        self._line_up(handed.place)

    def put_back(self, handed: Handed, portable: bool) -> None:
        """Put a waiter of `take` back, as the first of its lane. `portable`: for peers too."""
        job = handed.place[-1]
        job.add(handed.waiter, handed.work if portable else None)
        self.portable += portable
        job.waiting.move_to_end(handed.waiter, last=False)
        self.count += 1
        for lane in handed.place:
            lane.level -= handed.guess_seconds / lane.weight
            lane.out -= 1
        self._line_up(handed.place)

    def _portable_lanes(self) -> list[Place]:
        """Return the ready job lanes with portable work, in fair order."""
        if not self.portable:
            return []
        found: list[Place] = [
            (tenant, priority, job)
            for tenant in self._all.lanes.values()
            if tenant.out < tenant.most_out
            for priority in tenant.lanes.values()
            for job in priority.lanes.values()
            if job.portable
        ]
        found.sort(key=lambda place: tuple(lane.level for lane in place))
        return found

    def _remove(self, job: Lane, waiter: Waiter) -> None:
        self.count -= 1
        self.portable -= job.remove(waiter) is not None

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
