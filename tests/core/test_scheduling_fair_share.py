"""Shares: weights, priorities, quotas, places for everybody, and no promise that cannot be kept."""

from __future__ import annotations

import asyncio
from collections import Counter

import pytest
from event_loop import FAR, Clock, settle

from proctor_client.wire import Priority
from proctor_service.errors import BatchTooLarge, Busy, Cancelled
from proctor_service.scheduling.fair_share import Shares
from proctor_service.scheduling.queue import Deadlines, FairQueue


class Crowd:
    """Items of one second each that wait in a queue; the order in which they were admitted."""

    def __init__(
        self,
        slots: int = 1,
        weights: dict[str, float] | None = None,
        quotas: dict[str, int] | None = None,
    ) -> None:
        self.clock = Clock()
        shares = Shares(weights or {}, quotas or {})
        self.queue = FairQueue(slots, 10_000, Deadlines(), self.clock, shares)
        self.order: list[str] = []
        self.most_at_once: Counter[str] = Counter()
        self._inside: Counter[str] = Counter()
        self.tasks: list[asyncio.Task[None]] = []

    async def add(
        self, count: int, tenant: str, job: str = "j", priority: Priority = "training"
    ) -> None:
        """So many more, once they wait."""
        for _ in range(count):
            self.tasks.append(asyncio.create_task(self._item(tenant, job, priority)))
        await settle()

    async def _item(self, tenant: str, job: str, priority: Priority) -> None:
        async with self.queue.admit(tenant, job, FAR, priority):
            name = f"{tenant}/{job}/{priority}"
            self.order.append(name)
            self._inside[tenant] += 1
            self.most_at_once[tenant] = max(self.most_at_once[tenant], self._inside[tenant])
            for _ in range(5):
                await asyncio.sleep(0)
            self._inside[tenant] -= 1
            self.clock.now += 1.0

    async def served(self, count: int) -> None:
        """Waits until so many have been admitted."""
        while len(self.order) < count:  # noqa: ASYNC110  a queue has no event for it
            await asyncio.sleep(0)

    def among_first(self, count: int) -> Counter[str]:
        """Who was among the first, by the first letter."""
        return Counter(name[0] for name in self.order[:count])


async def test_time_is_shared_by_weight() -> None:
    crowd = Crowd(weights={"a": 3.0, "*": 0.5, "c": 1.0})
    async with crowd.queue.admit("z", "j", FAR):
        for tenant in "abc":
            await crowd.add(200, tenant)
    await asyncio.gather(*crowd.tasks)
    first = crowd.among_first(180)
    assert 116 <= first["a"] <= 124
    assert 36 <= first["c"] <= 44
    assert 16 <= first["b"] <= 24


async def test_an_evaluation_goes_before_training_and_does_not_starve_it() -> None:
    crowd = Crowd()
    async with crowd.queue.admit("z", "j", FAR):
        await crowd.add(100, "t", "train")
        await crowd.add(100, "t", "eval", "evaluation")
    await asyncio.gather(*crowd.tasks)
    first = Counter(name.split("/")[2] for name in crowd.order[:100])
    assert 88 <= first["evaluation"] <= 91
    assert crowd.order[1:9].count("t/eval/evaluation") >= 7


async def test_a_tenant_gains_nothing_by_calling_all_an_evaluation() -> None:
    crowd = Crowd()
    async with crowd.queue.admit("z", "j", FAR):
        await crowd.add(100, "a", priority="evaluation")
        await crowd.add(100, "b")
    await asyncio.gather(*crowd.tasks)
    assert 48 <= crowd.among_first(100)["b"] <= 52


async def test_a_tenant_has_no_more_slots_than_its_quota_and_leaves_none_unused() -> None:
    crowd = Crowd(6, quotas={"a": 2, "*": 3})
    await crowd.add(50, "a")
    await crowd.add(50, "b")
    await crowd.add(50, "c")
    await asyncio.gather(*crowd.tasks)
    assert crowd.most_at_once["a"] == 2
    assert crowd.most_at_once["b"] == crowd.most_at_once["c"] == 3
    assert (crowd.queue.busy, crowd.queue.queued) == (0, 0)


async def test_who_waits_for_a_quota_is_let_go_when_the_service_drains() -> None:
    crowd = Crowd(4, quotas={"*": 1})
    async with crowd.queue.admit("a", "j", FAR):
        await crowd.add(100, "a")
        await crowd.queue.drain()
        ends = await asyncio.gather(*crowd.tasks, return_exceptions=True)
    assert all(isinstance(end, Cancelled) for end in ends)
    assert crowd.queue.queued == 0


async def test_a_cancelled_winner_hands_on_its_ticket_and_its_place_in_the_quota() -> None:
    crowd = Crowd(4, quotas={"*": 1})
    async with crowd.queue.admit("a", "j", FAR):
        await crowd.add(3, "a")
    crowd.tasks[0].cancel()
    await asyncio.gather(*crowd.tasks[1:])
    assert len(crowd.order) == 2
    assert crowd.most_at_once["a"] == 1


# ---------------------------------------------------------------- places


def flood(queue: FairQueue, tenant: str, job: str) -> int:
    """Takes places one by one until there is none left for this job; how many."""
    taken = 0
    while True:
        try:
            queue.reserve(1, (tenant, job))
        except Busy:
            return taken
        taken += 1


def test_no_flood_takes_the_last_places() -> None:
    queue = FairQueue(4, 19_996, Deadlines())
    assert 17_000 <= flood(queue, "a", "one") <= 19_000
    assert flood(queue, "a", "two") > 300
    assert flood(queue, "b", "one") > 300
    assert flood(queue, "c", "one") > 30
    assert flood(queue, "d", "one") > 0


def test_a_tenant_gains_no_places_by_inventing_jobs() -> None:
    queue = FairQueue(4, 19_996, Deadlines())
    held = sum(flood(queue, "a", str(number)) for number in range(100))
    assert held < 19_000
    assert flood(queue, "b", "one") > 300


def test_an_empty_queue_takes_whatever_fits() -> None:
    queue = FairQueue(4, 4092, Deadlines())
    reservation = queue.reserve(4096, ("a", "one"))
    with pytest.raises(Busy, match="4096 of 4096"):
        queue.reserve(1, ("b", "one"))
    reservation.close()
    with pytest.raises(BatchTooLarge, match="4096 at most"):
        queue.reserve(4097, ("a", "one"))


def test_when_to_come_back_goes_by_how_fast_places_come_free_while_it_is_full() -> None:
    clock = Clock()
    queue = FairQueue(4, 96, Deadlines(), clock)
    clock.now += 1000.0  # idle for long: that says nothing about its speed
    first = queue.reserve(100)
    clock.now += 2.0
    first.give_back(20)
    with pytest.raises(Busy) as refused:
        queue.reserve(50)
    assert refused.value.retry_after_seconds == pytest.approx(3.0)  # 30 too few, 10 a second


# ---------------------------------------------------------------- deadlines


async def test_what_cannot_begin_in_time_is_refused_at_once() -> None:
    crowd = Crowd()
    queue, clock = crowd.queue, crowd.clock

    def late(deadline: float, job: str = "j", priority: Priority = "training") -> bool:
        try:
            queue.reserve(1, ("t", job), start_by=(priority, clock() + deadline)).close()
        except Busy:
            return True
        return False

    assert not late(0.001)  # nothing is known yet
    await crowd.add(400, "t")
    assert not late(0.001)
    await crowd.served(10)  # in ten seconds: too few of them to go by
    assert not late(0.001)
    await crowd.served(30)
    assert late(300.0)
    assert not late(300.0, job="other")
    assert not late(300.0, priority="evaluation")
    assert not late(500.0)
    for task in crowd.tasks:
        task.cancel()
    await asyncio.gather(*crowd.tasks, return_exceptions=True)
    assert not late(0.001)
