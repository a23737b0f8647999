"""Whose turn it is: fair by tenant, then by priority, then by job, in seconds of slots and not in turns.

Start-time fair queueing, three times. Each tenant, each of its two priorities, and each job in them is
a lane with an account of the slot time that it had, divided by its weight. The lane that had least
comes first. A lane that was idle starts at the level of those that were not, so that nobody saves up
turns. A ticket is charged by the lane's typical time when it is given, and corrected when it comes
back: turn by turn, a job whose submissions loop for ten seconds would leave next to nothing for one
whose submissions take five milliseconds.

Tenants come first: one could otherwise have a larger share by inventing jobs, or by calling
everything an evaluation. An evaluation comes before training without starving it: where both wait,
nine tenths of the tenant's time are the evaluation's.
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
    """What tenants may have, by name; `*` stands for those that are not named.

    `weights`: parts of the time, 1 by default. `slots`: tickets that may be out at once.
    `sandboxes`: stateful ones at once.
    """

    weights: Mapping[str, float] = field(default_factory=dict)
    slots: Mapping[str, int] = field(default_factory=dict)
    sandboxes: Mapping[str, int] = field(default_factory=dict)

    def weight(self, tenant: str) -> float:
        """The tenant's weight."""
        return self.weights.get(tenant, self.weights.get(EVERYBODY_ELSE, 1.0))

    def most_out(self, tenant: str) -> float:
        """How many tickets of the tenant may be out at once."""
        return self.slots.get(tenant, self.slots.get(EVERYBODY_ELSE, math.inf))

    def most_sandboxes(self, tenant: str) -> float:
        """How many stateful sandboxes of the tenant there may be at once."""
        return self.sandboxes.get(tenant, self.sandboxes.get(EVERYBODY_ELSE, math.inf))


class _Turns:
    """The lanes that have somebody to send, by level. A changed lane is entered anew."""

    def __init__(self) -> None:
        self._heap: list[tuple[float, int, Lane]] = []
        self._serial = 0
        self._level = 0.0

    def enter(self, lane: Lane) -> None:
        """Puts a lane in line, or back in line after its level changed."""
        if lane.serial < 0:
            lane.level = max(lane.level, self._level)
        elif lane.level == lane.entered_level:
            return
        lane.entered_level = lane.level
        self._serial += 1
        lane.serial = self._serial
        heapq.heappush(self._heap, (lane.level, self._serial, lane))

    def leave(self, lane: Lane) -> None:
        """Takes a lane out of line: nobody of it may go now."""
        lane.serial = -1

    def first(self) -> Lane | None:
        """The lane whose turn it is."""
        while self._heap:
            level, serial, lane = self._heap[0]
            if serial == lane.serial:
                self._level = max(self._level, level)
                return lane
            heapq.heappop(self._heap)
        return None


@dataclass(slots=True, eq=False)
class Lane:
    """An account: slot seconds had, per weight. Under it are lanes, or those who wait in it.

    `out`: its tickets that are out, of `most_out` at once. `typical_seconds`: how long each is out.
    """

    weight: float = 1.0
    most_out: float = math.inf
    out: int = 0
    level: float = 0.0
    typical_seconds: float = FIRST_GUESS_SECONDS
    serial: int = -1  # of its valid entry in a heap; -1 while it is not in line
    entered_level: float = 0.0  # in that entry
    turns: _Turns = field(default_factory=_Turns)
    lanes: dict[str, Lane] = field(default_factory=dict)
    waiting: OrderedDict[Waiter, None] = field(default_factory=OrderedDict)

    @property
    def sends(self) -> bool:
        """Whether somebody of it may go now."""
        return self.out < self.most_out and (bool(self.waiting) or self.turns.first() is not None)

    def charge(self, seconds: float) -> None:
        """Books slot time."""
        self.level += seconds / self.weight


Place = tuple[Lane, Lane, Lane]
"""Where an item stands: its tenant's lane, in it its priority's, in that its job's."""


class FairOrder:
    """Who waits, and who is next."""

    def __init__(self, shares: Shares | None = None) -> None:
        self._shares = shares or Shares()
        self._all = Lane()
        self._count = 0

    def __len__(self) -> int:
        return self._count

    def join(self, tenant: str, job: str, waiter: Waiter, priority: Priority = "training") -> Place:
        """Puts a waiter at the end of its job's lane."""
        place = self._place(tenant, priority, job)
        lane = place[-1]
        lane.waiting[waiter] = None
        self._count += 1
        if lane.serial < 0:
            self._line_up(place)
        return place

    def leave(self, place: Place, waiter: Waiter) -> None:
        """Takes a waiter out; nothing happens when it is out already."""
        if waiter in place[-1].waiting:
            del place[-1].waiting[waiter]
            self._count -= 1
            self._line_up(place)

    def take(self) -> tuple[Waiter, float] | None:
        """The next waiter, taken out, and the seconds that its lanes are charged for now."""
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

    def settle(self, place: Place, guess_seconds: float, held_seconds: float) -> None:
        """Takes back a ticket that `take` gave; corrects the charge, now that its time is known."""
        job = place[-1]
        job.typical_seconds += (held_seconds - job.typical_seconds) / 8
        for lane in place:
            lane.charge(held_seconds - guess_seconds)
            lane.out -= 1
        self._line_up(place)

    def ahead(self, tenant: str, job: str, priority: Priority) -> int:
        """How many wait in the lane that such an item would join."""
        lane: Lane | None = self._all
        for name in (tenant, priority, job):
            lane = None if lane is None else lane.lanes.get(name)
        return 0 if lane is None else len(lane.waiting)

    def dismiss(self, but: Container[Waiter]) -> list[Waiter]:
        """All who wait, but for these, taken out."""
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
            return None  # a lane in line has one in line: it is the first that is missing
        return tenant, priority, job

    def _line_up(self, place: Place) -> None:
        """Keeps the lanes in line by their present levels, or out of it while they send nobody."""
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
