"""The bounded, fair queue in front of the sandboxes.

A request first reserves places for all its items, or is refused as a whole (`Busy`); then each item
is admitted in its turn and holds a ticket while it is judged. Tickets go by free cores, so a limit
on time means the same under load as on an idle machine. A waiting item leaves at once when it is
cancelled, when its deadline passes, and when the service drains.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from dataclasses import dataclass
from types import TracebackType

from proctor_service.admission.deadlines import AT_ONCE, Deadlines
from proctor_service.admission.fair import FairOrder, Place, Waiter
from proctor_service.admission.rate import Rate
from proctor_service.errors import Busy, Cancelled, DeadlinePassed, Draining, Failure

SHORTEST_RETRY_SECONDS = 1.0
LONGEST_RETRY_SECONDS = 60.0
RETRY_WITHOUT_RATE_SECONDS = 5.0
DRAINING = "the service is stopping"


@dataclass(frozen=True, slots=True)
class Ticket:
    """The right to use a slot. `queue_seconds`: how long it was waited for."""

    queue_seconds: float


class Reservation:
    """Places for a request's items, given back one by one as they are done."""

    __slots__ = ("_left", "_queue")

    def __init__(self, queue: FairQueue, places: int) -> None:
        self._queue = queue
        self._left = places

    def give_back(self, places: int = 1) -> None:
        """Gives places back; never more than there were."""
        places = min(places, self._left)
        self._left -= places
        self._queue._unreserve(places)

    def close(self) -> None:
        """Gives back what is left."""
        self.give_back(self._left)


class FairQueue:
    """`slots` tickets for those who wait, fair by tenant and job."""

    def __init__(
        self,
        slots: int,
        max_queued: int,
        deadlines: Deadlines,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.slots = slots
        self.max_queued = max_queued
        self.clock = clock
        self._deadlines = deadlines
        self._order = FairOrder()
        self._busy = 0
        self._lent = 0
        self._reserved = 0
        self._drained = Rate(clock)
        self._draining = False

    @property
    def busy(self) -> int:
        """Tickets that are out."""
        return self._busy

    @property
    def queued(self) -> int:
        """Items that were taken and do not run yet."""
        return max(self._reserved - self._busy, len(self._order))

    @property
    def draining(self) -> bool:
        """Whether new work is refused."""
        return self._draining

    @property
    def has_room(self) -> bool:
        """Whether a request with one submission would be taken."""
        return not self._draining and self._reserved < self.max_queued + self.slots

    def reserve(self, places: int) -> Reservation:
        """Places for a whole request. Raises Busy when there are too few, Draining at the end."""
        if self._draining:
            raise Draining(DRAINING, RETRY_WITHOUT_RATE_SECONDS)
        excess = self._reserved + places - self.max_queued - self.slots
        if excess > 0:
            message = f"the queue holds {self.queued} of {self.max_queued} submissions"
            if places > self.max_queued + self.slots:
                message += f", and {places} at once are more than it ever takes"
            raise Busy(message, self._seconds_until(excess))
        self._reserved += places
        return Reservation(self, places)

    def admit(self, tenant: str, job: str, deadline: float) -> Admission:
        """A context that waits for its turn and holds a ticket until its end.

        Raises DeadlinePassed when `deadline` passes first, Cancelled when the service drains.
        """
        return Admission(self, tenant, job, deadline)

    def lend(self, tickets: int) -> None:
        """How many more tickets may be out, because so many running evaluations use no core."""
        self._lent = max(tickets, 0)
        self._dispatch()

    async def drain(self) -> None:
        """From now on nobody is admitted; those who wait fail as Cancelled."""
        self._draining = True
        failed = 0
        while (taken := self._order.take()) is not None:
            waiter, _ = taken
            waiter.set_result(Cancelled(DRAINING))
            failed += 1
            if failed % AT_ONCE == 0:
                await asyncio.sleep(0)

    def _seconds_until(self, places: int) -> float:
        rate = self._drained.per_second()
        seconds = places / rate if rate > 0 else RETRY_WITHOUT_RATE_SECONDS
        return min(max(seconds, SHORTEST_RETRY_SECONDS), LONGEST_RETRY_SECONDS)

    def _unreserve(self, places: int) -> None:
        self._reserved -= places
        self._drained.add(places)

    async def _enter(self, tenant: str, job: str, deadline: float) -> tuple[Place, float]:
        """Waits for a ticket. The lanes to settle with, and the seconds charged for it so far."""
        if self._draining:
            raise Cancelled(DRAINING)
        waiter: Waiter = asyncio.get_running_loop().create_future()
        place = self._order.join(tenant, job, waiter)
        self._dispatch()
        if not waiter.done():
            await self._wait(waiter, place, deadline)
        granted = waiter.result()
        if isinstance(granted, Failure):
            raise granted
        assert isinstance(granted, float), "a ticket's result is what was charged for it"
        return place, granted

    async def _wait(self, waiter: Waiter, place: Place, deadline: float) -> None:
        self._deadlines.watch(waiter, deadline)
        try:
            await waiter
        except asyncio.CancelledError:
            # It may have been given the ticket in the very turn in which it was cancelled.
            if not waiter.cancelled() and isinstance(granted := waiter.result(), float):
                self._leave(place, granted, 0.0)
            raise
        finally:
            self._deadlines.forget(waiter, deadline)
            self._order.leave(place, waiter)

    def _leave(self, place: Place, guess_seconds: float, held_seconds: float) -> None:
        self._busy -= 1
        self._order.settle(place, guess_seconds, held_seconds)
        self._dispatch()

    def _dispatch(self) -> None:
        while not self._draining and self._busy < self.slots + self._lent:
            taken = self._order.take()
            if taken is None:
                return
            waiter, guess_seconds = taken
            self._busy += 1
            waiter.set_result(guess_seconds)


class Admission:
    """The wait for a ticket, and the ticket while it is out."""

    __slots__ = ("_deadline", "_guess_seconds", "_job", "_place", "_queue", "_since", "_tenant")

    def __init__(self, queue: FairQueue, tenant: str, job: str, deadline: float) -> None:
        self._queue = queue
        self._tenant = tenant
        self._job = job
        self._deadline = deadline

    async def __aenter__(self) -> Ticket:
        asked = self._queue.clock()
        if asked >= self._deadline:
            raise DeadlinePassed("the deadline passed before it was judged")
        self._place, self._guess_seconds = await self._queue._enter(
            self._tenant, self._job, self._deadline
        )
        self._since = self._queue.clock()
        return Ticket(self._since - asked)

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        held_seconds = self._queue.clock() - self._since
        self._queue._leave(self._place, self._guess_seconds, held_seconds)
