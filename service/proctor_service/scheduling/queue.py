"""Bounded, fair queue in front of the sandboxes.

A request first reserves capacity for all its items, or is refused as a whole. `Busy`: too little
free capacity, or the estimated start is after the deadline. `BatchTooLarge`: more items than the
total capacity. Then each item waits for a ticket, and holds the ticket while the item is judged.
The number of tickets follows the cores: a time limit means the same under load as on an idle
machine. A waiting item leaves the queue at once if the item is cancelled, if its deadline
passes, or if the service drains. While the service drains, items of already begun work stay.

A single timer serves all deadlines: a timer for each of 20,000 waiting items would cost more CPU
time than the waiting. Deadlines are rounded up to a tick of 0.1 s, and the deadlines of a tick share
a bucket. `set_results` wakes futures in slices, so that the event loop serves other tasks in between.
"""

from __future__ import annotations

import asyncio
import logging
import math
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Iterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from itertools import islice
from types import MappingProxyType
from typing import Any, Protocol, TypeVar

from proctor_client.wire import Priority
from proctor_service.errors import (
    BatchTooLarge,
    Busy,
    Cancelled,
    DeadlinePassed,
    Draining,
    EnvironmentUnavailable,
    Failure,
    SandboxLost,
    SandboxUnavailable,
)
from proctor_service.scheduling.exclusive import FIRST_PATIENCE_SECONDS, ExclusiveTurns
from proctor_service.scheduling.fair_share import (
    NOBODY,
    RETRY_WITHOUT_RATE_SECONDS,
    WINDOW_SECONDS,
    Elsewhere,
    FairOrder,
    Handover,
    Place,
    Places,
    Rate,
    Reservation,
    Shares,
    Use,
    Waiter,
    Whose,
    retry_seconds,
)

T = TypeVar("T")

log = logging.getLogger(__name__)

DRAINING = "the service is stopping"
FIRST_ESTIMATE_SECONDS = 5.0
LEAST_ESTIMATED = 20
"""Minimum of returned tickets for a wait estimate; the estimate also needs 5 s under load."""
LONG_WINDOW_SECONDS = 60
SHORTEST_TICKET_SECONDS = 0.001
MOST_ATTEMPTS = 3
TICK_SECONDS = 0.1
AT_ONCE = 32
NOTHING: Mapping[Whose, int] = MappingProxyType({})


def stopping() -> Draining:
    """Return the refusal of new work by a stopping service."""
    return Draining(DRAINING, RETRY_WITHOUT_RATE_SECONDS)


def set_results(futures: Iterable[Watched], value: object) -> None:
    """Set `value` on each pending future, in slices of 32 per iteration of the event loop."""
    _settle_slice(asyncio.get_running_loop(), iter(tuple(futures)), value)


def _settle_slice(loop: asyncio.AbstractEventLoop, rest: Iterator[Watched], value: object) -> None:
    settled = 0
    for future in islice(rest, AT_ONCE):
        settled += 1
        if not future.done():
            future.set_result(value)
    if settled == AT_ONCE:
        loop.call_soon(_settle_slice, loop, rest, value)


class Watched(Protocol):
    """Subject of a deadline: a future, or a `Limit`."""

    def done(self) -> bool:
        """True if nothing waits any more."""

    def set_result(self, result: Any, /) -> None:
        """Receive a DeadlinePassed."""


@dataclass(slots=True, eq=False)
class Limit:
    """End of a task's work at a deadline: cancels the task, once.

    As `asyncio.timeout_at`, without a timer of its own for each task. `cancelling`: the task's
    pending cancellations at the start. `is_closed`: the work has ended, so the deadline has no
    effect; a sweep of deadlines may still hold the limit.
    """

    task: asyncio.Task[Any]
    cancelling: int
    is_over: bool = False
    is_closed: bool = False

    def done(self) -> bool:
        """Return True if the deadline has passed, or the work has ended."""
        return self.is_over or self.is_closed

    def set_result(self, result: Any, /) -> None:
        """Cancel the task."""
        self.is_over = True
        self.task.cancel()

    def explains(self) -> bool:
        """Return True if a CancelledError comes from this limit alone; call once, as it is caught."""
        return self.is_over and self.task.uncancel() <= self.cancelling


class Deadlines:
    """Give a DeadlinePassed to every watched future at its deadline (monotonic clock).

    DeadlinePassed is set as the result of the future, and the awaiting task raises it. An exception
    set on an abandoned future would be logged; a result is silent.
    """

    def __init__(self) -> None:
        self._due: dict[int, dict[Watched, None]] = {}
        self._timer: asyncio.TimerHandle | None = None
        self._armed_tick = 0

    def watch(self, future: Watched, deadline: float) -> None:
        """Watch the future or limit until `forget`."""
        tick = math.ceil(deadline / TICK_SECONDS)
        self._due.setdefault(tick, {})[future] = None
        if self._timer is None or tick < self._armed_tick:
            self._arm(tick)

    def forget(self, future: Watched, deadline: float) -> None:
        """Stop watching the future; do nothing if the future is unknown."""
        tick = math.ceil(deadline / TICK_SECONDS)
        bucket = self._due.get(tick)
        if bucket is not None:
            bucket.pop(future, None)
            if not bucket:
                del self._due[tick]

    def close(self) -> None:
        """Stop the timer."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _arm(self, tick: int) -> None:
        self.close()
        self._armed_tick = tick
        loop = asyncio.get_running_loop()
        self._timer = loop.call_at(tick * TICK_SECONDS, self._sweep)

    def _sweep(self) -> None:
        self._timer = None
        now = asyncio.get_running_loop().time()
        for tick in sorted(tick for tick in self._due if tick * TICK_SECONDS <= now):
            passed = DeadlinePassed("the deadline passed before it was judged")
            set_results(self._due.pop(tick), passed)
        if self._due:
            self._arm(min(self._due))


@dataclass(frozen=True, slots=True)
class Ticket:
    """Right to use a slot. `queue_seconds`: time spent in the queue.

    `elsewhere`: the result, if a peer has done the work; the ticket then holds no slot.
    """

    queue_seconds: float
    queue: FairQueue
    elsewhere: Any = None
    use: Use | None = None

    def charge(self, core_seconds: float) -> None:
        """Charge the job with core seconds of this ticket; without a charge, its slot time counts."""
        if self.use is not None:
            self.queue._order.add(self.use, core_seconds)

    @asynccontextmanager
    async def alone(self) -> AsyncIterator[None]:
        """Wait until all other tickets are returned, and block new tickets until the block ends.

        The ticket is returned during the wait, so two waiting callers never block each other.
        `exclusive.py` bounds the delay for all other tickets.
        """
        queue = self.queue
        waiter = queue._exclusive.join()
        queue._change_busy(-1)
        queue._dispatch()
        try:
            await waiter
        except asyncio.CancelledError:
            if waiter.cancelled():
                queue._exclusive.leave(waiter)
                queue._change_busy(1)  # the caller still returns the ticket
            else:  # the turn came in the same loop iteration as the cancellation
                queue._exclusive.end()
            raise
        try:
            yield
        finally:
            queue._exclusive.end()


@dataclass(slots=True, eq=False)
class Turn:
    """Context of a ticket, for one use: a class, since a generator costs each item more time."""

    queue: FairQueue
    whose: Whose
    deadline: float
    priority: Priority
    begun: bool
    work: object
    _use: Use | None = None

    async def __aenter__(self) -> Ticket:
        """Wait for the ticket. Raises DeadlinePassed and Cancelled."""
        queue = self.queue
        joined = queue.clock()
        if joined >= self.deadline:
            raise DeadlinePassed("the deadline passed before it was judged")
        if queue.draining and not self.begun:
            raise Cancelled(DRAINING)
        waiter: Waiter = asyncio.get_running_loop().create_future()
        place = queue._order.join(*self.whose, waiter, self.priority, self.work)
        queue._dispatch()
        if not waiter.done():
            if self.begun:
                queue._begun.add(waiter)
            await queue._wait(waiter, place, self.deadline)
        granted = waiter.result()
        if isinstance(granted, Failure):
            raise granted
        if isinstance(granted, Elsewhere):
            queue._returned.add()
            return Ticket(granted.since - joined, queue, granted.result)
        assert isinstance(granted, float), "a ticket's result is the time charged for it"
        self._use = Use(place, granted, queue._change_busy(0))
        return Ticket(queue.clock() - joined, queue, use=self._use)

    async def __aexit__(self, *_: object) -> None:
        """Return the ticket, unless a peer has done the work."""
        if self._use is not None:
            self.queue._leave(self._use)


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
        self._slot_seconds = 0.0
        self._slot_seconds_at = clock()
        self._lent = 0
        self._ahead = 0
        self._returned = Rate(clock, LONG_WINDOW_SECONDS)
        self._waiting_since: float | None = None
        self._exclusive = ExclusiveTurns(clock, self._dispatch, patience_seconds)
        self._begun: set[Waiter] = set()  # waiters of begun work, kept while the service drains

    @property
    def running(self) -> int:
        """Number of items in work: tickets in use, without the tickets of items sent ahead."""
        return min(self.busy, self.slots + self._lent)

    @property
    def queued(self) -> int:
        """Number of accepted items waiting for a ticket or at their judge, without items at peers."""
        return max(self._places.held - self.running - self.handover.away, self._order.count)

    @property
    def tickets_per_second(self) -> float:
        """Estimate of returned tickets: from recent returns, or fewer after a time without returns."""
        since_seconds = self.clock() - self._returned_at if self.busy else 0.0
        return self.slots / max(self._typical_seconds, since_seconds, SHORTEST_TICKET_SECONDS)

    def reserve(
        self,
        places: int,
        whose: Whose = NOBODY,
        begun: bool = False,
        start_by: tuple[Priority, float] | None = None,
    ) -> Reservation:
        """Reserve capacity for a whole request.

        Raises BatchTooLarge if `places` exceeds the total, Draining while the service drains, and
        Busy if too few units are free. `begun`: the items belong to begun work, which continues
        while the service drains. `start_by`: priority and deadline; Busy is also raised if no item
        of the request could begin before.
        """
        if places > self._places.total:
            raise BatchTooLarge(f"{places} at once: the queue takes {self._places.total} at most")
        if start_by is not None and self._waiting_since is not None:
            self._check_start(whose, *start_by, self._waiting_since)
        if self.draining and not begun:
            raise stopping()
        return self._places.reserve(places, whose)

    def _check_start(self, whose: Whose, priority: Priority, deadline: float, since: float) -> None:
        """Raise Busy if no item of a request could begin before its deadline.

        The estimate errs on the short side: all slots serve the items ahead in the same job. Their
        rate is the rate of returned tickets in the last 60 or 10 seconds, whichever is higher. The
        check needs 20 returned tickets and a queue that has held items for 5 seconds (`since`);
        otherwise every deadline is accepted.
        """
        returned = self._returned
        if self.clock() - since < FIRST_ESTIMATE_SECONDS:
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

        `work`: portable work for a peer meanwhile (`handover`); the ticket then has the peer's result.

        Entering it raises DeadlinePassed if `deadline` passes first, and Cancelled if the service
        drains. Items of begun work (`begun`) stay in the queue while the service drains.
        """
        return Turn(self, (tenant, job), deadline, priority, begun, work)

    def lend(self, tickets: int, long_runners: Mapping[Whose, int] = NOTHING) -> None:
        """Set the number of extra tickets, one for each running evaluation that leaves its core.

        `long_runners`: sandboxes that run for long, by tenant and job. A job with as many as there
        are slots gets no ticket, so that the others get theirs.
        """
        self._lent = max(tickets, 0)
        self._order.hold({whose for whose, count in long_runners.items() if count >= self.slots})
        self._dispatch()

    def send_ahead(self, tickets: int) -> None:
        """Set the number of tickets for items waiting at their judge.

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
                self._leave(Use(place, granted, self._change_busy(0)))
            raise
        finally:
            self._begun.discard(waiter)
            self.deadlines.forget(waiter, deadline)
            self._order.leave(place, waiter)

    def _leave(self, use: Use) -> None:
        """Return a ticket."""
        held_seconds = self._change_busy(-1) - use.since
        first = not self._typical_seconds
        self._typical_seconds += (held_seconds - self._typical_seconds) / (1 if first else 16)
        self._returned_at = self.clock()
        self._returned.add()
        self._order.end(use, held_seconds)
        self._dispatch()

    def _change_busy(self, tickets: int) -> float:
        """Change the number of tickets in use, and return the slot time of a ticket so far.

        Slot time is wall time, or a share of it while more tickets than slots are in use: the
        charges of all tickets together are at most the time of the slots.
        """
        now = self.clock()
        share = min(1.0, self.slots / max(self.busy, 1))
        self._slot_seconds += (now - self._slot_seconds_at) * share
        self._slot_seconds_at = now
        if tickets and not self.busy:
            self._returned_at = now
        self.busy += tickets
        return self._slot_seconds

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
            self._change_busy(1)
            waiter.set_result(guess_seconds)
        if not self.busy and self._exclusive.wanted and self._exclusive.begin():
            self._change_busy(1)
        if not self._order.count:
            self._waiting_since = None
        elif self._waiting_since is None:
            self._waiting_since = self.clock()
        if self._order.portable and self.handover.on_portable is not None:
            self.handover.on_portable()


async def attempted(
    work: Callable[[], Awaitable[T]],
    ticket: Ticket,
    evaluation_id: str | None = None,
    deadline: float | None = None,
    doing: str = "was judged",
) -> T:
    """Return the result of `work`; retry in a fresh sandbox if its sandbox is lost or unavailable.

    `work` gets three attempts, all before the deadline. The last attempt runs alone: all other
    tickets are returned first. So a shortage caused by several programs together, for example of
    the machine's memory, is gone by then. Other errors are raised at once, EnvironmentUnavailable
    among them. Raises SandboxLost and
    SandboxUnavailable after the last attempt, and DeadlinePassed.
    """
    task, deadlines = asyncio.current_task(), ticket.queue.deadlines
    assert task is not None, "in a coroutine"
    limit = Limit(task, task.cancelling())
    if deadline is not None:
        deadlines.watch(limit, deadline)
    try:
        for attempt in range(1, MOST_ATTEMPTS):
            try:
                return await work()
            except EnvironmentUnavailable:
                raise
            except (SandboxLost, SandboxUnavailable) as lost:
                why = {"evaluation_id": evaluation_id, "attempt": attempt, "why": lost.message}
                log.warning("trying once more: %s", lost.reason, extra=why)
        async with ticket.alone():
            return await work()
    except asyncio.CancelledError:
        if not limit.explains():
            raise
        raise DeadlinePassed(f"the deadline passed while it {doing}") from None
    finally:
        limit.is_closed = True
        if deadline is not None:
            deadlines.forget(limit, deadline)
