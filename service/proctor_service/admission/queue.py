"""The bounded, fair queue in front of the sandboxes.

A request first reserves places for all its items, or is refused as a whole: when there is no room,
and when its turn would come after its deadline (`Busy`), and when there is never so much room
(`BatchTooLarge`). Then each item is admitted in its turn and holds a ticket while it is judged.
Tickets go by free cores, so a limit on time means the same under load as on an idle machine. A
waiting item leaves at once when it is cancelled, when its deadline passes, and when the service
drains; but not one that is part of work which has begun and runs.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from types import TracebackType

from proctor_client.wire import Priority
from proctor_service.admission.deadlines import AT_ONCE, Deadlines
from proctor_service.admission.exclusive import FIRST_PATIENCE_SECONDS, ExclusiveTurns
from proctor_service.admission.fair import FairOrder, Place, Shares, Waiter
from proctor_service.admission.places import (
    NOBODY,
    RETRY_WITHOUT_RATE_SECONDS,
    Places,
    Whose,
    retry_seconds,
)
from proctor_service.admission.rate import WINDOW_SECONDS, Rate
from proctor_service.errors import Busy, Cancelled, DeadlinePassed, Draining, Failure

DRAINING = "the service is stopping"
FIRST_ESTIMATE_SECONDS = 5.0
LEAST_ESTIMATED = 20
"""Nobody is refused for an estimate that rests on less time under load, or on fewer tickets."""
LONG_WINDOW_SECONDS = 60


def stopping() -> Draining:
    """What a service that stops says to new work."""
    return Draining(DRAINING, RETRY_WITHOUT_RATE_SECONDS)


@dataclass(frozen=True, slots=True)
class Ticket:
    """The right to use a slot. `queue_seconds`: how long it was waited for."""

    queue_seconds: float
    queue: FairQueue

    @asynccontextmanager
    async def alone(self) -> AsyncIterator[None]:
        """Waits until no other ticket is out, and keeps it so until its end.

        Who waits so gives way meanwhile: two of them never wait for each other. How much of the time
        all others are held up for it is bounded (`exclusive.py`).
        """
        await self.queue._begin_alone()
        try:
            yield
        finally:
            self.queue._end_alone()


class Reservation:
    """Places for a request's items, given back one by one as they are done."""

    __slots__ = ("_left", "_places", "_whose")

    def __init__(self, places: Places, count: int, whose: Whose) -> None:
        places.take(count, whose)
        self._places = places
        self._left = count
        self._whose = whose

    def give_back(self, places: int = 1) -> None:
        """Gives places back; never more than there were."""
        places = min(places, self._left)
        self._left -= places
        self._places.give_back(places, self._whose)

    def close(self) -> None:
        """Gives back what is left."""
        self.give_back(self._left)


class FairQueue:
    """`slots` tickets for those who wait, fair by tenant, priority and job."""

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
        self._deadlines = deadlines
        self._order = FairOrder(shares)
        self._places = Places(max_queued + slots, clock)
        self._busy = 0
        self._lent = 0
        self._returned = Rate(clock, LONG_WINDOW_SECONDS)
        self._waiting_since: float | None = None
        self._draining = False
        self._exclusive = ExclusiveTurns(clock, self._dispatch, patience_seconds)
        self._begun: set[Waiter] = set()  # those who wait, and go on while the service drains

    @property
    def busy(self) -> int:
        """Tickets that are out."""
        return self._busy

    @property
    def queued(self) -> int:
        """Items that were taken and do not run yet."""
        return max(self._places.held - self._busy, len(self._order))

    @property
    def draining(self) -> bool:
        """Whether new work is refused."""
        return self._draining

    @property
    def has_room(self) -> bool:
        """Whether a request with one submission, of a job that has none here, would be taken."""
        return not self._draining and self._places.held < self._places.total

    def reserve(self, places: int, whose: Whose = NOBODY, begun: bool = False) -> Reservation:
        """Places for a whole request.

        Raises Busy when there are too few, BatchTooLarge when there are never so many, Draining at
        the end.

        `begun`: for a part of work that has begun, which goes on while the service drains.
        """
        if self._draining and not begun:
            raise stopping()
        return Reservation(self._places, places, whose)

    def check_size(self, places: int) -> None:
        """Raises BatchTooLarge for a request that would not even fit into an empty queue."""
        self._places.check(places)

    def check_deadline(self, whose: Whose, priority: Priority, deadline: float) -> None:
        """Raises Busy when nothing of a request could begin before its deadline.

        The estimate errs on the short side: all slots are taken to serve those ahead in the same
        job, as fast as tickets came back lately, or in the last minute if that was faster. Without
        enough of them it says nothing.
        """
        ahead = self._order.ahead(*whose, priority)
        since = self._waiting_since
        if since is None or self.clock() - since < FIRST_ESTIMATE_SECONDS or not ahead:
            return
        returned = self._returned
        if returned.count() < LEAST_ESTIMATED:
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
    ) -> Admission:
        """A context that waits for its turn and holds a ticket until its end.

        Raises DeadlinePassed when `deadline` passes first, and Cancelled when the service drains,
        unless it is a part of work that has `begun`.
        """
        return Admission(self, tenant, job, deadline, priority, begun)

    def lend(self, tickets: int) -> None:
        """How many more tickets may be out, because so many running evaluations use no core."""
        self._lent = max(tickets, 0)
        self._dispatch()

    async def drain(self) -> None:
        """From now on nothing new is admitted; what waits and has not begun fails as Cancelled."""
        self._draining = True
        for number, waiter in enumerate(self._order.dismiss(self._begun), 1):
            if not waiter.done():
                waiter.set_result(Cancelled(DRAINING))
            if number % AT_ONCE == 0:
                await asyncio.sleep(0)

    async def _enter(
        self, tenant: str, job: str, deadline: float, priority: Priority, begun: bool
    ) -> tuple[Place, float]:
        """Waits for a ticket. The lanes to settle with, and the seconds charged for it so far."""
        if self._draining and not begun:
            raise Cancelled(DRAINING)
        waiter: Waiter = asyncio.get_running_loop().create_future()
        place = self._order.join(tenant, job, waiter, priority)
        self._dispatch()
        if not waiter.done():
            if begun:
                self._begun.add(waiter)
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
            self._begun.discard(waiter)
            self._deadlines.forget(waiter, deadline)
            self._order.leave(place, waiter)

    def _leave(self, place: Place, guess_seconds: float, held_seconds: float) -> None:
        self._busy -= 1
        self._returned.add()
        self._order.settle(place, guess_seconds, held_seconds)
        self._dispatch()

    async def _begin_alone(self) -> None:
        waiter = self._exclusive.join()
        self._busy -= 1
        self._dispatch()
        try:
            await waiter
        except asyncio.CancelledError:
            if waiter.cancelled():
                self._exclusive.leave(waiter)
                self._busy += 1  # its ticket is still to be given back
            else:  # it was its turn in the very turn of the loop in which it was cancelled
                self._end_alone()
            raise

    def _end_alone(self) -> None:
        self._exclusive.end()

    def _dispatch(self) -> None:
        while self._busy < self.slots + self._lent and len(self._order):
            if self._exclusive.holds_up():
                break
            taken = self._order.take()
            if taken is None:
                break
            waiter, guess_seconds = taken
            self._busy += 1
            waiter.set_result(guess_seconds)
        if not self._busy and self._exclusive.begin():
            self._busy = 1
        if not len(self._order):
            self._waiting_since = None
        elif self._waiting_since is None:
            self._waiting_since = self.clock()


class Admission:
    """The wait for a ticket, and the ticket while it is out."""

    __slots__ = ("_asked", "_deadline", "_guess_seconds", "_place", "_queue", "_since")

    def __init__(
        self,
        queue: FairQueue,
        tenant: str,
        job: str,
        deadline: float,
        priority: Priority,
        begun: bool,
    ) -> None:
        self._queue = queue
        self._asked = (tenant, job, deadline, priority, begun)
        self._deadline = deadline

    async def __aenter__(self) -> Ticket:
        asked = self._queue.clock()
        if asked >= self._deadline:
            raise DeadlinePassed("the deadline passed before it was judged")
        self._place, self._guess_seconds = await self._queue._enter(*self._asked)
        self._since = self._queue.clock()
        return Ticket(self._since - asked, self._queue)

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        held_seconds = self._queue.clock() - self._since
        self._queue._leave(self._place, self._guess_seconds, held_seconds)
