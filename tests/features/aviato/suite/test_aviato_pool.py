"""The warm pool by itself: how many it makes, for whom, how old they get, and what it says when none come."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from dataclasses import replace
from typing import Any

import pytest
from cwsandbox import CWSandboxAuthenticationError, SandboxResourceExhaustedError
from event_loop import until

from proctor_service.errors import SandboxUnavailable
from proctor_service.features.aviato.failures import failure_of
from proctor_service.features.aviato.plan import AviatoPlan, Order, Shape, make_plan
from proctor_service.features.aviato.pool import RemotePool
from proctor_service.features.aviato.quota import Quota
from proctor_service.settings import Settings


class Scripted:
    """A sandbox that is none; notes that it was stopped."""

    def __init__(self, number: int, shape: Shape) -> None:
        self.id = f"box-{number}"
        self.shape = shape
        self.born = asyncio.get_running_loop().time()
        self.stopped = False

    async def stop(self) -> None:
        self.stopped = True


class Maker:
    """Makes sandboxes as it is told: at once, when it is let go, or not at all."""

    def __init__(self) -> None:
        self.made: list[Scripted] = []
        self.under_way = self.most_at_once = 0
        self.error: Exception | None = None
        self.gate = asyncio.Event()
        self.gate.set()

    async def __call__(self, order: Order) -> Any:
        self.under_way += 1
        self.most_at_once = max(self.most_at_once, self.under_way)
        try:
            await asyncio.sleep(0)
            await self.gate.wait()
            if self.error is not None:
                raise failure_of(self.error, "start") from self.error
            self.made.append(Scripted(len(self.made) + 1, order.shape))
            return self.made[-1]
        finally:
            self.under_way -= 1


def plan(**more: Any) -> AviatoPlan:
    settings = Settings(
        backend="aviato",
        aviato_api_key="x",
        pool_size=3,
    )
    return replace(make_plan(settings), **{"creations": 4, "start_seconds": 5.0, **more})


Question = Callable[[RemotePool, Maker], Coroutine[Any, Any, None]]


def ask(question: Question, **more: Any) -> Maker:
    """Asks a question of an open pool; at its end all that was made must have been stopped."""

    async def asked() -> Maker:
        own, maker = plan(**more), Maker()
        pool = RemotePool(own, own.pool_shape, maker)
        await pool.open()
        try:
            await question(pool, maker)
        finally:
            await pool.close()
        assert all(box.stopped for box in maker.made)
        assert set(pool.census().values()) == {0}
        return maker

    return asyncio.run(asked())


def test_it_is_full_when_it_is_open_and_filled_again_after_each_loan() -> None:
    async def question(pool: RemotePool, maker: Maker) -> None:
        assert pool.census()["ready"] >= 3
        lent = [await pool.lease(plan().pool_shape) for _ in range(5)]
        assert len({box.id for box in lent}) == 5
        await until(lambda: pool.census()["ready"] >= 3)
        assert pool.census()["leased"] == 5

    assert ask(question).most_at_once <= 4


def test_no_more_are_made_at_once_than_may_be() -> None:
    async def question(pool: RemotePool, maker: Maker) -> None:
        maker.gate.clear()
        waiting = [asyncio.create_task(pool.lease(plan().pool_shape)) for _ in range(20)]
        await until(lambda: maker.under_way == 4)
        assert pool.census()["starting"] == 4
        maker.gate.set()
        await asyncio.gather(*waiting)

    assert ask(question).most_at_once == 4


def test_no_more_are_held_than_there_may_be() -> None:
    async def question(pool: RemotePool, maker: Maker) -> None:
        lent = [await pool.lease(plan().pool_shape) for _ in range(6)]
        waiting = asyncio.create_task(pool.lease(plan().pool_shape))
        for _ in range(50):
            await asyncio.sleep(0)
        assert not waiting.done()
        pool.stop(lent[0])
        assert (await waiting).id not in {box.id for box in lent}

    assert len(ask(question, most_sandboxes=6).made) <= 7


def test_an_old_one_is_stopped_and_not_lent() -> None:
    async def question(pool: RemotePool, maker: Maker) -> None:
        for box in maker.made:
            box.born -= 100
        fresh = await pool.lease(plan().pool_shape)
        assert fresh.id not in {"box-1", "box-2", "box-3"}
        await until(lambda: all(box.stopped for box in maker.made[:3]))

    ask(question, max_age_seconds=50)


def test_one_that_was_emptied_is_lent_again_unless_it_is_old_or_another_size() -> None:
    async def question(pool: RemotePool, maker: Maker) -> None:
        shape = plan().pool_shape
        lent = [await pool.lease(shape) for _ in range(3)]
        pool.give_back(lent[0])
        lent[1].born -= 100
        pool.give_back(lent[1])
        large = await pool.lease(Shape(8192))
        pool.give_back(large)
        await until(lambda: maker.made[1].stopped and large.id in stopped(maker))
        assert not maker.made[0].stopped

    ask(question, max_age_seconds=50)


def stopped(maker: Maker) -> set[str]:
    return {box.id for box in maker.made if box.stopped}


def test_another_size_is_made_for_the_purpose() -> None:
    async def question(pool: RemotePool, maker: Maker) -> None:
        large = await pool.lease(Shape(8192, network=True))
        assert large.shape == Shape(8192, network=True)
        assert pool.census()["ready"] >= 3

    ask(question)


def give_up(pools: list[RemotePool]) -> None:
    any(pool.give_up_one() for pool in pools)


def test_pools_with_one_quota_give_up_what_waits_in_them_and_fill_only_what_is_free() -> None:
    async def asked() -> None:
        own, maker, pools = plan(pool_size=3, most_sandboxes=4), Maker(), list[RemotePool]()
        quota = Quota(4, 4, lambda: give_up(pools))
        pools += [RemotePool(own, own.pool_shape, maker, quota) for _ in range(2)]
        try:
            await pools[0].open()
            pools[1].start()
            await until(lambda: quota.free == 0)
            lent = [await pools[1].lease(own.pool_shape) for _ in range(4)]
            assert quota.free == 0
            assert [pool.census()["ready"] for pool in pools] == [0, 0]
            for box in lent:
                pools[1].stop(box)
            await until(lambda: sum(pool.census()["ready"] for pool in pools) == 4)
        finally:
            await asyncio.gather(*(pool.close() for pool in pools))
        assert quota.free == 4
        assert all(box.stopped for box in maker.made)

    asyncio.run(asked())


def test_those_who_wait_get_what_is_made_after_a_shortage() -> None:
    async def question(pool: RemotePool, maker: Maker) -> None:
        maker.error = SandboxResourceExhaustedError("no room")
        waiting = [asyncio.create_task(pool.lease(plan().pool_shape)) for _ in range(8)]
        await until(lambda: maker.under_way == 0 and pool.census()["ready"] == 0)
        maker.error = None
        assert len({box.id for box in await asyncio.gather(*waiting)}) == 8

    ask(question)


def test_where_asking_again_cannot_help_nobody_waits() -> None:
    async def question(pool: RemotePool, maker: Maker) -> None:
        maker.error = CWSandboxAuthenticationError("who are you")
        takes = (pool.lease(plan().pool_shape) for _ in range(20))
        found = await asyncio.gather(*takes, return_exceptions=True)
        failures = [each for each in found if isinstance(each, SandboxUnavailable)]
        assert len(failures) >= 10
        assert all("refused_credentials" in failure.message for failure in failures)
        maker.error = None
        await until(lambda: pool.census()["ready"] >= 3)
        await pool.lease(plan().pool_shape)

    ask(question)


def test_none_in_time_is_said() -> None:
    async def question(pool: RemotePool, maker: Maker) -> None:
        maker.gate.clear()
        for _ in range(pool.census()["ready"]):
            await pool.lease(plan().pool_shape)
        with pytest.raises(SandboxUnavailable, match="capacity"):
            await pool.lease(plan().pool_shape)
        maker.gate.set()

    ask(question, start_seconds=0.05)


def test_one_who_goes_away_while_waiting_takes_none() -> None:
    async def question(pool: RemotePool, maker: Maker) -> None:
        maker.gate.clear()
        for _ in range(pool.census()["ready"]):
            await pool.lease(plan().pool_shape)
        first = asyncio.create_task(pool.lease(plan().pool_shape))
        second = asyncio.create_task(pool.lease(plan().pool_shape))
        await until(lambda: maker.under_way == 4)
        first.cancel()
        maker.gate.set()
        await second
        with pytest.raises(asyncio.CancelledError):
            await first

    ask(question)


def test_closing_ends_what_is_being_made_and_those_who_wait() -> None:
    async def question(pool: RemotePool, maker: Maker) -> None:
        maker.gate.clear()
        for _ in range(pool.census()["ready"]):
            await pool.lease(plan().pool_shape)
        waiting = asyncio.create_task(pool.lease(plan().pool_shape))
        await until(lambda: maker.under_way == 4)
        await pool.close()
        with pytest.raises(SandboxUnavailable, match="stopping"):
            await waiting

    ask(question)
