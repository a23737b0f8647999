"""The queue: bounded, fair, and quick to let go of who no longer waits."""

from __future__ import annotations

import asyncio

import pytest
from event_loop import FAR, Clock, settle

from proctor_service.errors import Busy, Cancelled, DeadlinePassed, Draining
from proctor_service.scheduling.queue import (
    AT_ONCE,
    Deadlines,
    FairQueue,
    Limit,
    set_results,
)


def make(slots: int = 1, max_queued: int = 100, clock: Clock | None = None) -> FairQueue:
    return FairQueue(slots, max_queued, Deadlines(), clock or Clock())


class Crowd:
    """Items that wait in a queue and note the order in which they were admitted."""

    def __init__(self, queue: FairQueue, clock: Clock | None = None) -> None:
        self.queue = queue
        self.clock = clock
        self.order: list[str] = []
        self.tasks: list[asyncio.Task[None]] = []

    def add(self, count: int, job: str, tenant: str = "t", seconds: float = 0.0) -> None:
        self.tasks += [asyncio.create_task(self._item(tenant, job, seconds)) for _ in range(count)]

    async def _item(self, tenant: str, job: str, seconds: float) -> None:
        async with self.queue.admit(tenant, job, FAR):
            self.order.append(job)
            await asyncio.sleep(0)
            if self.clock is not None:
                self.clock.now += seconds


async def test_a_flood_of_one_job_does_not_starve_another() -> None:
    queue = make()
    crowd = Crowd(queue)
    async with queue.admit("t", "holder", FAR):
        crowd.add(200, "flood")
        await settle()
        crowd.add(5, "small")
        await settle()
    await asyncio.gather(*crowd.tasks)
    assert "".join(job[0] for job in crowd.order[:12]).count("s") == 5


async def test_shares_go_by_seconds_of_slots_and_not_by_turns() -> None:
    clock = Clock()
    queue = make(clock=clock)
    crowd = Crowd(queue, clock)
    async with queue.admit("t", "holder", FAR):
        crowd.add(20, "slow", seconds=10.0)
        crowd.add(1000, "quick", seconds=0.01)
        await settle()
    await asyncio.gather(*crowd.tasks)
    before_last_quick = crowd.order[: len(crowd.order) - crowd.order[::-1].index("quick")]
    assert before_last_quick.count("slow") <= 3


async def test_a_tenant_gains_nothing_by_inventing_jobs() -> None:
    queue = make()
    crowd = Crowd(queue)
    async with queue.admit("t", "holder", FAR):
        for number in range(30):
            crowd.add(2, f"x{number}", tenant="many")
        crowd.add(10, "one", tenant="other")
        await settle()
    await asyncio.gather(*crowd.tasks)
    assert crowd.order[:21].count("one") >= 9


async def test_no_more_tickets_are_out_than_there_are_slots_and_lent_ones() -> None:
    queue = make(slots=2)
    inside = asyncio.Event()

    async def item() -> None:
        async with queue.admit("t", "j", FAR):
            await inside.wait()

    tasks = [asyncio.create_task(item()) for _ in range(6)]
    await settle()
    assert (queue.busy, queue.queued) == (2, 4)
    queue.lend(3)
    await settle()
    assert (queue.busy, queue.queued) == (5, 1)
    queue.lend(0)
    inside.set()
    await asyncio.gather(*tasks)
    assert (queue.busy, queue.queued) == (0, 0)


async def test_a_job_that_was_lent_tickets_is_not_charged_as_if_it_had_a_slot_for_each() -> None:
    clock = Clock()
    queue = make(clock=clock)
    queue.lend(9)
    crowd = Crowd(queue, clock)
    done = asyncio.Event()

    async def lent() -> None:
        async with queue.admit("t", "many", FAR):
            await done.wait()

    out = [asyncio.create_task(lent()) for _ in range(10)]
    await settle()
    queue.lend(0)
    crowd.add(40, "other", seconds=1.0)
    crowd.add(40, "many", seconds=1.0)
    await settle()
    clock.now += 10.0  # of the one slot, not of ten
    done.set()
    await asyncio.gather(*out, *crowd.tasks)
    assert 4 <= crowd.order[:20].count("many") <= 10


async def test_a_cancelled_waiter_leaves_at_once_and_a_cancelled_winner_hands_its_ticket_on() -> (
    None
):
    queue = make()
    crowd = Crowd(queue)
    async with queue.admit("t", "holder", FAR):
        crowd.add(3, "a")
        await settle()
        crowd.tasks[1].cancel()
        await settle()
        assert queue.queued == 2
    # The holder's ticket went to the first in this very turn; it never gets to run.
    crowd.tasks[0].cancel()
    await crowd.tasks[2]
    assert crowd.order == ["a"]
    assert (queue.busy, queue.queued) == (0, 0)


async def test_a_deadline_that_passes_while_waiting_is_a_failure() -> None:
    queue = make(clock=None)
    now = asyncio.get_running_loop().time()
    async with queue.admit("t", "holder", FAR):
        with pytest.raises(DeadlinePassed):
            async with queue.admit("t", "j", max(now, 100.0) + 0.05):
                pytest.fail("admitted without a free slot")
    assert (queue.busy, queue.queued) == (0, 0)
    with pytest.raises(DeadlinePassed):
        async with queue.admit("t", "j", 99.0):
            pytest.fail("admitted after its deadline")


async def test_a_request_that_finds_no_room_is_refused_whole() -> None:
    clock = Clock()
    queue = make(slots=2, max_queued=10, clock=clock)
    first = queue.reserve(12)
    with pytest.raises(Busy) as refused:
        queue.reserve(1)
    assert refused.value.retry_after_seconds is not None
    first.give_back(5)
    clock.now += 1.0
    with pytest.raises(Busy) as refused:
        queue.reserve(12)
    # 7 places too few, and 5 a second come free.
    assert refused.value.retry_after_seconds == pytest.approx(1.4)
    second = queue.reserve(5)
    first.close()
    first.give_back(3)
    second.close()
    assert queue.queued == 0
    queue.reserve(12)


async def test_draining_fails_those_who_wait_and_lets_finish_what_runs() -> None:
    queue = make()

    async def item() -> None:
        async with queue.admit("t", "j", FAR):
            pytest.fail("admitted while draining")

    async with queue.admit("t", "holder", FAR):
        tasks = [asyncio.create_task(item()) for _ in range(300)]
        await settle()
        await queue.drain()
        ends = await asyncio.gather(*tasks, return_exceptions=True)
        assert all(isinstance(end, Cancelled) for end in ends)
        assert queue.busy == 1
    with pytest.raises(Draining):
        queue.reserve(1)
    with pytest.raises(Cancelled):
        async with queue.admit("t", "j", FAR):
            pytest.fail("admitted while draining")


async def test_a_deadline_that_passes_just_after_the_work_cancels_nothing() -> None:
    loop = asyncio.get_running_loop()
    task = asyncio.current_task()
    assert task is not None
    limit = Limit(task, task.cancelling())
    set_results([*(loop.create_future() for _ in range(AT_ONCE)), limit], DeadlinePassed("late"))
    limit.is_closed = True  # the work ends between two slices of the sweep
    await settle()
