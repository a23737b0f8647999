"""The cache: identical work once, and nobody pays for another's misfortune."""

from __future__ import annotations

import asyncio

import pytest
from event_loop import FAR, settle

from proctor_service.errors import DeadlinePassed, SandboxLost
from proctor_service.scheduling.queue import Deadlines
from proctor_service.scheduling.result_cache import Cache


def make(entries: int = 100, max_bytes: int = 1000) -> Cache[str]:
    return Cache[str](entries, max_bytes, len, Deadlines())


class Work:
    """Work that waits to be let go, and counts how often it began."""

    def __init__(self, *ends: str | Exception) -> None:
        self.begun = 0
        self.ends = list(ends)
        self.go = asyncio.Event()

    async def __call__(self) -> str:
        self.begun += 1
        await self.go.wait()
        end = self.ends.pop(0)
        if isinstance(end, Exception):
            raise end
        return end


async def test_a_kept_result_is_a_hit_and_work_under_way_is_joined() -> None:
    cache, work = make(), Work("done")
    tasks = [asyncio.create_task(cache.once(b"k", FAR, work)) for _ in range(100)]
    await settle()
    work.go.set()
    ends = await asyncio.gather(*tasks)
    assert work.begun == 1
    assert ends[0] == ("done", "miss")
    assert set(ends[1:]) == {("done", "coalesced")}
    assert await cache.once(b"k", FAR, work) == ("done", "hit")


async def test_a_cache_without_room_stores_nothing() -> None:
    cache, work = make(entries=0), Work("one", "two")
    work.go.set()
    assert await cache.once(b"k", FAR, work) == ("one", "miss")
    assert await cache.once(b"k", FAR, work) == ("two", "miss")
    assert len(cache) == 0


async def test_when_the_leader_is_cancelled_another_takes_over() -> None:
    cache, work = make(), Work("done")
    tasks = [asyncio.create_task(cache.once(b"k", FAR, work)) for _ in range(4)]
    await settle()
    tasks[0].cancel()
    tasks[2].cancel()
    await settle()
    assert work.begun == 2
    work.go.set()
    assert await tasks[1] == ("done", "miss")
    assert await tasks[3] == ("done", "coalesced")


async def test_the_last_ones_cancellation_ends_the_work() -> None:
    cache, work = make(), Work("done")
    task = asyncio.create_task(cache.once(b"k", FAR, work))
    await settle()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    work.go.set()
    assert await cache.once(b"k", FAR, work) == ("done", "miss")
    assert work.begun == 2


async def test_a_failure_is_everybodys_and_never_kept() -> None:
    cache, work = make(), Work(SandboxLost("gone"), "done")
    tasks = [asyncio.create_task(cache.once(b"k", FAR, work)) for _ in range(3)]
    await settle()
    work.go.set()
    ends = await asyncio.gather(*tasks, return_exceptions=True)
    assert [type(end) for end in ends] == [SandboxLost] * 3
    assert len({id(end) for end in ends}) == 3
    assert await cache.once(b"k", FAR, work) == ("done", "miss")


async def test_the_leaders_deadline_is_not_the_followers() -> None:
    cache, work = make(), Work(DeadlinePassed("mine"), "done")
    tasks = [asyncio.create_task(cache.once(b"k", FAR, work)) for _ in range(2)]
    await settle()
    work.go.set()
    with pytest.raises(DeadlinePassed):
        await tasks[0]
    assert await tasks[1] == ("done", "miss")


async def test_a_follower_leaves_at_its_own_deadline() -> None:
    cache, work = make(), Work("done")
    leader = asyncio.create_task(cache.once(b"k", FAR, work))
    await settle()
    with pytest.raises(DeadlinePassed):
        await cache.once(b"k", asyncio.get_running_loop().time() + 0.01, work)
    work.go.set()
    assert await leader == ("done", "miss")


async def test_the_least_recently_used_go_first_by_entries_and_by_bytes() -> None:
    async def give(cache: Cache[str], key: bytes, text: str) -> str:
        async def work() -> str:
            return text

        _, how = await cache.once(key, FAR, work)
        return how

    few = make(entries=2)
    assert [await give(few, key, "x") for key in (b"a", b"b", b"a", b"c")][2] == "hit"
    assert await give(few, b"a", "x") == "hit"
    assert await give(few, b"b", "x") == "miss"

    small = make(max_bytes=10)
    await give(small, b"a", "12345")
    await give(small, b"b", "123456")
    assert (len(small), small.size) == (1, 6)
    await give(small, b"c", "x" * 11)
    assert (len(small), small.size) == (1, 6)

    off = make(entries=0)
    await give(off, b"a", "x")
    assert await give(off, b"a", "x") == "miss"
