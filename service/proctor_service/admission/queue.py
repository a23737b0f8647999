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
from collections import deque
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from types import TracebackType

from proctor_client.wire import Priority
from proctor_service.admission.deadlines import AT_ONCE, Deadlines
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

        Who waits so gives way meanwhile: two of them never wait for each other.
        """
        await self.queue._begin_alone()
        try:
            yield
        finally:
            self.queue._end_alone()


class SlotTime:
    """Slot time of a ticket that is out: wall time, or its share where more are out than there are slots.

    So all tickets together are charged for as many seconds as the slots have.
    """

    def __init__(self, slots: int, clock: Callable[[], float]) -> None:
        self._slots = slots
        self._clock = clock
        self._at = clock()
        self._seconds = 0.0

    def read(self, busy: int) -> float:
        """Return the seconds so far; `busy`: the tickets that were out since the last reading."""
        now = self._clock()
        self._seconds += (now - self._at) * min(1.0, self._slots / max(busy, 1))
        self._at = now
        return self._seconds


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
    ) -> None:
        self.slots = slots
        self.max_queued = max_queued
        self.clock = clock
        self._deadlines = deadlines
        self._order = FairOrder(shares)
        self._places = Places(max_queued + slots, clock)
        self._busy = 0
        self._slot_time = SlotTime(slots, clock)
        self._lent = 0
        self._returned = Rate(clock, LONG_WINDOW_SECONDS)
        self._waiting_since: float | None = None
        self._draining = False
        self._to_be_alone: deque[asyncio.Future[None]] = deque()
        self._is_alone = False  # the one ticket that is out
        self._between = 0  # tickets that may still go before the next that is to be alone
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

    def slot_seconds(self) -> float:
        """Return the slot time that a ticket has had which is out since the beginning."""
        return self._slot_time.read(self._busy)

    def lend(self, tickets: int) -> None:
        """How many more tickets may be out, because so many running evaluations leave their core."""
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
        self._add_busy(-1)
        self._returned.add()
        self._order.settle(place, guess_seconds, held_seconds)
        self._dispatch()

    async def _begin_alone(self) -> None:
        waiter: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        if not self._to_be_alone and not self._is_alone:
            self._between = 0
        self._to_be_alone.append(waiter)
        self._add_busy(-1)
        self._dispatch()
        try:
            await waiter
        except asyncio.CancelledError:
            if waiter.cancelled():
                self._to_be_alone.remove(waiter)
                self._add_busy(1)  # its ticket is still to be given back
            else:  # it was its turn in the very turn of the loop in which it was cancelled
                self._end_alone()
            raise

    def _end_alone(self) -> None:
        self._is_alone = False
        self._between = self.slots  # a job that needs this often must not hold up all others

    def _add_busy(self, tickets: int) -> None:
        self._slot_time.read(self._busy)
        self._busy += tickets

    def _dispatch(self) -> None:
        while self._busy < self.slots + self._lent and not self._is_alone:
            if self._to_be_alone and not self._between:
                break
            taken = self._order.take()
            if taken is None:
                break
            waiter, guess_seconds = taken
            self._add_busy(1)
            self._between = max(0, self._between - 1)
            waiter.set_result(guess_seconds)
        if self._to_be_alone and not self._busy:
            self._add_busy(1)
            self._is_alone = True
            self._to_be_alone.popleft().set_result(None)
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
        self._since = self._queue.slot_seconds()
        return Ticket(self._queue.clock() - asked, self._queue)

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        held_seconds = self._queue.slot_seconds() - self._since
        self._queue._leave(self._place, self._guess_seconds, held_seconds)
