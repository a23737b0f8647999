"""Fair shares of tenants and jobs: of the queue's capacity, and of the cores.

Capacity: a flood from a single tenant or job must leave capacity for the rest, since the fair order
acts only on accepted requests. So the free capacity for other tenants must be at least a sixteenth
of a tenant's held units. Likewise the free capacity for the tenant's other jobs must be at least a
sixteenth of a job's held units.

The order is start-time fair queueing on three levels. Each tenant, each of its two priorities, and
each of their jobs is a lane. A lane has an account: the core seconds used, divided by the weight of
the lane. The lane with the smallest account goes first. An idle lane restarts at the level of the
active lanes, so idle time earns no credit, and what a job used while it was alone is no debt. Each
ticket is charged with the typical use of its job at the start, at most 0.25 s, then with what it
uses beyond, as it is measured. The end corrects the charge. Counting tickets alone would be unfair:
a job with submissions of ten seconds would leave almost no time for a job with submissions of five
milliseconds. Where nobody measures core seconds, because sandboxes are far away, a ticket is charged
with its slot time.

Tenants are the first level. Otherwise a tenant could gain a larger share through many job names, or
through the priority `evaluation` for all its work. Evaluation goes before training but leaves
training a share: if both wait, evaluation gets nine tenths of the tenant's time.
"""

from __future__ import annotations

import asyncio
import heapq
import math
import time
from collections import Counter, OrderedDict, deque
from collections.abc import Callable, Container, Mapping
from dataclasses import dataclass, field
from functools import partial
from itertools import islice
from typing import Any

from proctor_client.wire import Priority
from proctor_service.errors import Busy

Waiter = asyncio.Future[object]
WINDOW_SECONDS = 10
HELD_FOR_EACH_FREE = 16
SHORTEST_RETRY_SECONDS = 1.0
LONGEST_RETRY_SECONDS = 60.0
RETRY_WITHOUT_RATE_SECONDS = 5.0

Whose = tuple[str, str]
"""Tenant and job."""
NOBODY: Whose = ("", "")

FIRST_GUESS_SECONDS = 0.001
MOST_GUESSED_SECONDS = 0.25
"""Core seconds after which a program is a long runner, beside which others may begin."""
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
        """Return the maximum number of tickets of the tenant in use at the same time."""
        return self.slots.get(tenant, self.slots.get(EVERYBODY_ELSE, math.inf))

    def most_sandboxes(self, tenant: str) -> float:
        """Return the maximum number of stateful sandboxes of the tenant at the same time."""
        return self.sandboxes.get(tenant, self.sandboxes.get(EVERYBODY_ELSE, math.inf))


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
    """Capacity of `total` units; requests take units, and return them by their `Reservation`.

    `held`, `by_tenant`, `by_job`: units in use. `freed`: rate of the returned units.
    """

    def __init__(self, total: int, clock: Callable[[], float] = time.monotonic) -> None:
        self.total = total
        self.held = 0
        self._clock = clock
        self.by_tenant: Counter[str] = Counter()
        self.by_job: Counter[Whose] = Counter()
        self.freed = Rate(clock)
        self._in_use_since = clock()

    def reserve(self, places: int, whose: Whose) -> Reservation:
        """Take `places` units, at most the total, for the tenant and job in `whose`.

        Raises Busy, with a retry time, if too few units are free.
        """
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
        self.held += places
        self.by_tenant[whose[0]] += places
        self.by_job[whose] += places
        return Reservation(self, whose, places)

    def seconds_until(self, places: int) -> float:
        """Estimate the seconds until `places` units come free, from the recent rate of returns."""
        rate = self.freed.per_second(self._in_use_since)
        return retry_seconds(places / rate) if rate > 0 else RETRY_WITHOUT_RATE_SECONDS

    def _leaves_room(self, free: int, places: int, whose: Whose) -> bool:
        of_tenant = self.by_tenant[whose[0]] + places
        of_job = self.by_job[whose] + places
        # The number of units that the tenant could still take afterwards, by the same rule.
        left = (HELD_FOR_EACH_FREE * (free + 1) - 1 - of_tenant) // (HELD_FOR_EACH_FREE + 1)
        return of_tenant // HELD_FOR_EACH_FREE <= free and of_job // HELD_FOR_EACH_FREE <= max(
            left, 0
        )


@dataclass(slots=True)
class Reservation:
    """Capacity for the items of a request, returned item by item. `left`: units not yet returned."""

    places: Places
    whose: Whose
    left: int

    def give_back(self, places: int = 1) -> None:
        """Return units, at most as many as are left."""
        places = min(places, self.left)
        if not places:
            return
        self.left -= places
        capacity, whose = self.places, self.whose
        capacity.held -= places
        capacity.by_tenant[whose[0]] -= places
        capacity.by_job[whose] -= places
        if not capacity.by_job[whose]:
            del capacity.by_job[whose]
        if not capacity.by_tenant[whose[0]]:
            del capacity.by_tenant[whose[0]]
        capacity.freed.add(places)

    def close(self) -> None:
        """Return the remaining units."""
        self.give_back(self.left)


@dataclass(slots=True, eq=False)
class Lane:
    """Account of core seconds divided by weight, with child lanes or waiting items.

    `out`: tickets of the lane in use, at most `most_out`. `typical_seconds`: charge of a ticket at
    its start, a moving average. `waiting`: each waiter with its portable work, or None.
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
    served_level: float = 0.0  # level at which an idle child restarts

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


@dataclass(slots=True, eq=False)
class Use:
    """Use of a ticket, in use since the slot time `since`.

    `charged_seconds`: charged to its lanes so far. `core_seconds`: measured so far; None without a
    measurement.
    """

    place: Place
    charged_seconds: float
    since: float
    core_seconds: float | None = None


Alike = Callable[[object, object], bool]
"""Whether two pieces of portable work may go to a peer in one request."""


@dataclass(slots=True, eq=False)
class PeerItem:
    """A waiter with its work in the hands of a peer, and the seconds charged to its lanes."""

    work: Any
    waiter: Waiter
    place: Place
    guess_seconds: float


class FairOrder:
    """Waiting items in fair order.

    `count`: number of waiting items. `portable`: number of waiting items with work for a peer.
    """

    def __init__(self, shares: Shares | None = None) -> None:
        self.count = 0
        self.portable = 0
        self._shares = shares or Shares()
        self._all = Lane()
        self._held: set[Whose] = set()

    def join(
        self,
        tenant: str,
        job: str,
        waiter: Waiter,
        priority: Priority = "training",
        work: object = None,
    ) -> Place:
        """Append a waiter to the lane of its job, and return its lanes.

        `work`: portable work, for a peer in place of this replica, or None.
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
                lanes = within.lanes.items()
                within.lanes = {name: each for name, each in lanes if each.waiting or each.out}
            lane = within.lanes[job] = Lane(most_out=0 if (tenant, job) in self._held else math.inf)
        place = (of_tenant, within, lane)
        lane.waiting[waiter] = work
        lane.portable += work is not None
        self.portable += work is not None
        self.count += 1
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

    def add(self, use: Use, core_seconds: float) -> None:
        """Charge the core seconds of a ticket beyond those charged at its start."""
        use.core_seconds = (use.core_seconds or 0.0) + core_seconds
        if use.core_seconds > use.charged_seconds:
            self._charge(use, use.core_seconds)

    def end(self, use: Use, held_seconds: float) -> None:
        """Take back a ticket, and correct its charge: its core seconds, or else its slot time."""
        job = use.place[-1]
        if use.core_seconds is None:
            typical = use.core_seconds = held_seconds
        else:
            typical = min(use.core_seconds, MOST_GUESSED_SECONDS)
        job.typical_seconds += (typical - job.typical_seconds) / 8
        for lane in use.place:
            lane.out -= 1
        self._charge(use, use.core_seconds)

    def _charge(self, use: Use, seconds: float) -> None:
        more, use.charged_seconds = seconds - use.charged_seconds, seconds
        for lane in use.place:
            lane.level += more / lane.weight
        self._line_up(use.place)

    def hold(self, whose: set[Whose]) -> None:
        """Let no item of these jobs be next, until a call without them."""
        changed, self._held = self._held ^ whose, whose
        for tenant, job in changed:
            of_tenant = self._all.lanes.get(tenant)
            for within in () if of_tenant is None else of_tenant.lanes.values():
                if of_tenant is not None and (lane := within.lanes.get(job)) is not None:
                    lane.most_out = 0 if (tenant, job) in whose else math.inf
                    self._line_up((of_tenant, within, lane))

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

    def take(self, most: int, alike: Alike) -> list[PeerItem]:
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
            return [PeerItem(work, waiter, place, guess_seconds) for waiter, work in found]
        return []

    def give_up(self, item: PeerItem) -> None:
        """End the ticket of a waiter of `take` without further need of a turn."""
        for lane in item.place:
            lane.out -= 1
        self._line_up(item.place)

    def put_back(self, item: PeerItem, portable: bool) -> None:
        """Put a waiter of `take` back, as the first of its lane. `portable`: for peers too."""
        job = item.place[-1]
        job.waiting[item.waiter] = item.work if portable else None
        job.portable += portable
        self.portable += portable
        self.count += 1
        job.waiting.move_to_end(item.waiter, last=False)
        for lane in item.place:
            lane.level -= item.guess_seconds / lane.weight
            lane.out -= 1
        self._line_up(item.place)

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
        is_portable = job.waiting.pop(waiter) is not None
        job.portable -= is_portable
        self.portable -= is_portable
        self.count -= 1

    def _line_up(self, place: Place) -> None:
        """Update the heap entries of the lanes: enter ready lanes, remove the rest."""
        tenant, priority, job = place
        for parent, lane in ((priority, job), (tenant, priority), (self._all, tenant)):
            if lane.out >= lane.most_out or not (lane.waiting or lane.first()):
                lane.entry = -1
                if parent.first() is None:  # nobody waits, so nobody is owed what this lane used
                    parent.served_level = max(parent.served_level, lane.level)
                continue
            if lane.entry < 0:
                lane.level = max(lane.level, parent.served_level)
            elif lane.level == lane.entered_level:
                continue
            lane.entered_level = lane.level
            parent.entries += 1
            lane.entry = parent.entries
            heapq.heappush(parent.heap, (lane.level, lane.entry, lane))


@dataclass(frozen=True, slots=True)
class Elsewhere:
    """Result of a peer's work in place of a ticket. `since`: when the work was taken."""

    result: Any
    since: float


class Handover:
    """Exchange of waiting items with peers, in fair order.

    A peer gets work only by `take`, and each item at most once: an item that is taken back waits as
    the first of its job, for a slot of this replica. With a peer, an item keeps its deadline, may be
    cancelled, and counts for the slots of its tenant. `away`: number of items in the hands of peers.

    `on_portable`: called when portable work begins to wait; set by the consumer.
    """

    def __init__(
        self, order: FairOrder, clock: Callable[[], float], changed: Callable[[], None]
    ) -> None:
        """`changed`: called after each possible change of the first item."""
        self.away = 0
        self.on_portable: Callable[[], None] | None = None
        self._order = order
        self._clock = clock
        self._changed = changed
        self._away: dict[PeerItem, tuple[float, Callable[[Any], None]]] = {}

    @property
    def portable(self) -> int:
        """Number of waiting items with work for a peer."""
        return self._order.portable

    def first(self) -> Any:
        """Return the portable work that `take` would return first, or None."""
        return self._order.first_portable()

    def take(self, most: int, alike: Alike, ended: Callable[[PeerItem], None]) -> list[PeerItem]:
        """Take up to `most` items for a peer, all of one job; none if nothing portable waits.

        `ended` is called for each item with a result, and for each cancelled or late item.
        """
        taken = self._order.take(most, alike)
        for item in taken:
            end = partial(self._end, item, ended)
            self._away[item] = (self._clock(), end)
            item.waiter.add_done_callback(end)
        self.away += len(taken)
        return taken

    def finish(self, item: PeerItem, result: Any) -> bool:
        """Give an item its result; return False if the item is no longer away.

        A Failure is raised where the item waits.
        """
        if item not in self._away or item.waiter.done():
            return False
        since, _ = self._away[item]
        failed = isinstance(result, Exception)
        item.waiter.set_result(result if failed else Elsewhere(result, since))
        return True

    def take_back(self, item: PeerItem, tried: bool = True) -> bool:
        """Put an item back into the queue; return False if the item is no longer away.

        `tried`: a peer may have begun the item, so no other peer gets it.
        """
        if item not in self._away or item.waiter.done():
            return False
        _, end = self._away.pop(item)
        item.waiter.remove_done_callback(end)
        self.away -= 1
        self._order.put_back(item, portable=not tried)
        self._changed()
        return True

    def _end(self, item: PeerItem, ended: Callable[[PeerItem], None], _: object) -> None:
        del self._away[item]
        self.away -= 1
        self._order.give_up(item)
        self._changed()
        ended(item)
