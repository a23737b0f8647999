"""Bounded, fair queue in front of the sandboxes.

A request first reserves capacity for all its items, or is refused as a whole. `Busy`: too little
free capacity, or the estimated start is after the deadline. `BatchTooLarge`: more items than the
total capacity. Then each item waits for a ticket, and holds the ticket while the item is judged.
The number of tickets follows the cores, so that a time limit means the same under load as on an
idle machine. A waiting item leaves the queue at once if the item is cancelled, if its deadline
passes, or if the service drains. While the service drains, items of already begun work stay.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any

from proctor_client.wire import Priority
from proctor_service.errors import (
    Busy,
    Cancelled,
    DeadlinePassed,
    Draining,
    Failure,
)
from proctor_service.scheduling.deadlines import AT_ONCE, Deadlines
from proctor_service.scheduling.exclusive import FIRST_PATIENCE_SECONDS, ExclusiveTurns
from proctor_service.scheduling.fair_share import FairOrder, Place, Shares, Waiter
from proctor_service.scheduling.handover import Elsewhere, Handover
from proctor_service.scheduling.places import (
    NOBODY,
    RETRY_WITHOUT_RATE_SECONDS,
    WINDOW_SECONDS,
    Places,
    Rate,
    Reservation,
    Whose,
    retry_seconds,
)
from proctor_service.scheduling.slot_time import SlotTime

DRAINING = "the service is stopping"
FIRST_ESTIMATE_SECONDS = 5.0
LEAST_ESTIMATED = 20
"""Minimum of returned tickets for a wait estimate; the estimate also needs 5 s under load."""
LONG_WINDOW_SECONDS = 60
SHORTEST_TICKET_SECONDS = 0.001


def stopping() -> Draining:
    """Return the refusal of new work by a stopping service."""
    return Draining(DRAINING, RETRY_WITHOUT_RATE_SECONDS)


@dataclass(frozen=True, slots=True)
class Ticket:
    """Right to use a slot. `queue_seconds`: time spent in the queue.

    `elsewhere`: the result, if a peer has done the work; the ticket then holds no slot.
    """

    queue_seconds: float
    queue: FairQueue
    elsewhere: Any = None

    @asynccontextmanager
    async def alone(self) -> AsyncIterator[None]:
        """Wait until all other tickets are returned, and block new tickets until the block ends.

        The ticket is returned during the wait, so two waiting callers never block each other.
        `exclusive.py` bounds the delay for all other tickets.
        """
        queue = self.queue
        waiter = queue._exclusive.join()
        queue._add_busy(-1)
        queue._dispatch()
        try:
            await waiter
        except asyncio.CancelledError:
            if waiter.cancelled():
                queue._exclusive.leave(waiter)
                queue._add_busy(1)  # the caller still returns the ticket
            else:  # the turn came in the same loop iteration as the cancellation
                queue._exclusive.end()
            raise
        try:
            yield
        finally:
            queue._exclusive.end()


class Turn:
    """Context of a ticket, for one use: a class, since a generator costs each item more time."""

    __slots__ = ("_begun", "_deadline", "_held", "_priority", "_queue", "_whose", "_work")

    def __init__(
        self,
        queue: FairQueue,
        whose: Whose,
        deadline: float,
        priority: Priority,
        begun: bool,
        work: object,
    ) -> None:
        self._queue = queue
        self._whose = whose
        self._deadline = deadline
        self._priority = priority
        self._begun = begun
        self._work = work
        self._held: tuple[Place, float, float] | None = None

    async def __aenter__(self) -> Ticket:
        """Wait for the ticket. Raises DeadlinePassed and Cancelled."""
        queue = self._queue
        asked = queue.clock()
        if asked >= self._deadline:
            raise DeadlinePassed("the deadline passed before it was judged")
        if queue.draining and not self._begun:
            raise Cancelled(DRAINING)
        waiter: Waiter = asyncio.get_running_loop().create_future()
        place = queue._order.join(*self._whose, waiter, self._priority, self._work)
        queue._dispatch()
        if not waiter.done():
            if self._begun:
                queue._begun.add(waiter)
            await queue._wait(waiter, place, self._deadline)
        granted = waiter.result()
        if isinstance(granted, Failure):
            raise granted
        if isinstance(granted, Elsewhere):
            queue._returned.add()
            return Ticket(granted.since - asked, queue, granted.result)
        assert isinstance(granted, float), "a ticket's result is what was charged for it"
        self._held = (place, granted, queue._slot_time.read(queue.busy))
        return Ticket(queue.clock() - asked, queue)

    async def __aexit__(self, *_: object) -> None:
        """Return the ticket, unless a peer has done the work."""
        if self._held is not None:
            self._queue._leave(*self._held)


class FairQueue:
    """`slots` tickets for waiting items, fair by tenant, priority and job.

    `busy`: number of tickets in use. `draining`: true while new work is refused. `handover`: the way
    of portable work to peers.
    """

    def __init__(
        self,
        slots: int,
        max_queued: int,
        deadlines: Deadlines,
        clock: Callable[[], float] = time.monotonic,
        shares: Shares | None = None,
        patience_seconds: float = FIRST_PATIENCE_SECONDS,
    ) -> None:
        self.slots = slots
        self.max_queued = max_queued
        self.clock = clock
        self.busy = 0
        self.draining = False
        self.deadlines = deadlines
        self._order = FairOrder(shares)
        self.handover = Handover(self._order, clock, self._dispatch)
        self._typical_seconds = 0.0
        self._returned_at = clock()
        self._places = Places(max_queued + slots, clock)
        self._slot_time = SlotTime(slots, clock)
        self._lent = 0
        self._ahead = 0
        self._returned = Rate(clock, LONG_WINDOW_SECONDS)
        self._waiting_since: float | None = None
        self._exclusive = ExclusiveTurns(clock, self._dispatch, patience_seconds)
        self._begun: set[Waiter] = set()  # waiters of begun work, kept while the service drains

    @property
    def running(self) -> int:
        """Number of items that are worked on: tickets in use, but those of items sent ahead."""
        return min(self.busy, self.slots + self._lent)

    @property
    def queued(self) -> int:
        """Number of accepted items that wait, for a ticket or at their judge; not those at peers."""
        return max(self._places.held - self.running - self.handover.away, self._order.count)

    @property
    def tickets_per_second(self) -> float:
        """Estimate of the tickets that become free: from recent ones, or fewer if none does."""
        since_seconds = self.clock() - self._returned_at if self.busy else 0.0
        return self.slots / max(self._typical_seconds, since_seconds, SHORTEST_TICKET_SECONDS)

    def reserve(self, places: int, whose: Whose = NOBODY, begun: bool = False) -> Reservation:
        """Reserve capacity for a whole request.

        Raises Busy if too few units are free, BatchTooLarge if `places` exceeds the total, and
        Draining while the service drains. `begun`: the items belong to begun work, which continues
        while the service drains.
        """
        if self.draining and not begun:
            raise stopping()
        self._places.reserve(places, whose)
        return Reservation(self._places, whose, places)

    def check_size(self, places: int) -> None:
        """Raise BatchTooLarge if the request exceeds the capacity of an empty queue."""
        self._places.check(places)

    def check_deadline(self, whose: Whose, priority: Priority, deadline: float) -> None:
        """Raise Busy if no item of a request could begin before its deadline.

        The estimate errs on the short side: all slots serve the items ahead in the same job. Their
        rate is the rate of returned tickets in the last 60 or 10 seconds, whichever is higher. The
        check needs 20 returned tickets and a queue that has held items for 5 seconds; otherwise
        every deadline is accepted.
        """
        since, returned = self._waiting_since, self._returned
        if since is None or self.clock() - since < FIRST_ESTIMATE_SECONDS:
            return
        ahead = self._order.ahead(*whose, priority)
        if not ahead or returned.count() < LEAST_ESTIMATED:
            return
        rate = max(returned.per_second(since), returned.per_second(since, WINDOW_SECONDS))
        wait_seconds = ahead / rate
        late_seconds = self.clock() + wait_seconds - deadline
        if late_seconds > 0:
            message = f"its turn would come in about {wait_seconds:.0f} s, after its deadline"
            raise Busy(message, retry_seconds(late_seconds))

    def admit(
        self,
        tenant: str,
        job: str,
        deadline: float,
        priority: Priority = "training",
        begun: bool = False,
        work: object = None,
    ) -> Turn:
        """Return the context that waits for a ticket, and holds the ticket until its end.

        `work`: what a peer may do meanwhile (`handover`); the ticket then has the peer's result.

        Entering it raises DeadlinePassed if `deadline` passes first, and Cancelled if the service
        drains. Items of begun work (`begun`) stay in the queue while the service drains.
        """
        return Turn(self, (tenant, job), deadline, priority, begun, work)

    def lend(self, tickets: int) -> None:
        """Set the number of extra tickets, one for each running evaluation that leaves its core."""
        self._lent = max(tickets, 0)
        self._dispatch()

    def send_ahead(self, tickets: int) -> None:
        """Set the number of tickets for items that may wait at their judge.

        At most half of the waiting items get these tickets, so that at the end of a batch no item
        waits at one judge while another has nothing to do.
        """
        self._ahead = tickets
        self._dispatch()

    async def drain(self) -> None:
        """Refuse new work from now on; cancel waiting items, except items of begun work."""
        self.draining = True
        for number, waiter in enumerate(self._order.dismiss(self._begun), 1):
            if not waiter.done():
                waiter.set_result(Cancelled(DRAINING))
            if number % AT_ONCE == 0:
                await asyncio.sleep(0)

    async def _wait(self, waiter: Waiter, place: Place, deadline: float) -> None:
        self.deadlines.watch(waiter, deadline)
        try:
            await waiter
        except asyncio.CancelledError:
            # The ticket may arrive in the same loop iteration as the cancellation.
            if not waiter.cancelled() and isinstance(granted := waiter.result(), float):
                self._leave(place, granted, self._slot_time.read(self.busy))
            raise
        finally:
            self._begun.discard(waiter)
            self.deadlines.forget(waiter, deadline)
            self._order.leave(place, waiter)

    def _leave(self, place: Place, guess_seconds: float, since: float) -> None:
        """Return a ticket, in use since the slot time `since`."""
        held_seconds = self._add_busy(-1) - since
        first = not self._typical_seconds
        self._typical_seconds += (held_seconds - self._typical_seconds) / (1 if first else 16)
        self._returned_at = self.clock()
        self._returned.add()
        self._order.charge(place, guess_seconds, held_seconds)
        self._dispatch()

    def _add_busy(self, tickets: int) -> float:
        """Change the number of tickets in use; return the slot time so far."""
        seconds = self._slot_time.read(self.busy)
        if not self.busy:
            self._returned_at = self.clock()
        self.busy += tickets
        return seconds

    def _dispatch(self) -> None:
        while self._order.count:
            ahead = min(self._ahead, self._order.count // 2)
            if self.busy >= self.slots + self._lent + ahead:
                break
            if self._exclusive.wanted and self._exclusive.holds_up():
                break
            taken = self._order.pop_next()
            if taken is None:
                break
            waiter, guess_seconds = taken
            self._add_busy(1)
            waiter.set_result(guess_seconds)
        if not self.busy and self._exclusive.wanted and self._exclusive.begin():
            self._add_busy(1)
        if not self._order.count:
            self._waiting_since = None
        elif self._waiting_since is None:
            self._waiting_since = self.clock()
        if self._order.portable and self.handover.tell is not None:
            self.handover.tell()
