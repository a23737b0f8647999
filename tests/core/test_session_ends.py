"""Ends of stateful sandboxes without HTTP, and that none is left behind."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from dataclasses import replace
from typing import Any

import pytest
from event_loop import until
from session_registry import BOUNDS, ORDER, House, in_house, run

from proctor_service.errors import (
    Draining,
    QuotaExceeded,
    SandboxEnded,
    SandboxLost,
    SandboxNotFound,
)
from proctor_service.sandboxes.registry import Bounds


@in_house()
async def test_it_ends_by_its_own_act(house: House) -> None:
    kept = await house.registry.create(ORDER)
    with pytest.raises(SandboxEnded):
        await house.run(kept, "suicide")
    await kept.gone()
    assert (kept.status, kept.message) == ("stopped", "it used up its memory")
    assert kept.by_own_act
    with pytest.raises(SandboxEnded, match="used up its memory"):
        await house.run(kept, "true")


@in_house()
async def test_a_lost_one_is_a_failure_and_never_an_end_of_its_own(house: House) -> None:
    kept = await house.registry.create(ORDER)
    command = await house.begin(kept, "a")
    house.inn.guests[0].lose(SandboxLost("its parent died"))
    with pytest.raises(SandboxLost, match="its parent died"):
        await command
    assert kept.status == "failed"
    assert kept.execs == {"error": 1}
    with pytest.raises(SandboxLost):
        await house.registry.read_file("t", kept.id, "f")
    assert await house.registry.stop("t", kept.id) is False
    assert not kept.by_own_act


@in_house()
async def test_a_stop_does_not_cut_short_the_clean_up_of_another_end(house: House) -> None:
    kept = await house.registry.create(ORDER)
    house.inn.exit.clear()
    house.inn.guests[0].lose(SandboxLost("gone"))
    await until(lambda: kept.over)
    assert await house.registry.stop("t", kept.id) is False
    assert house.inn.guests
    house.inn.exit.set()
    await kept.gone()
    assert (house.inn.guests, kept.status) == ([], "failed")


@in_house(replace(BOUNDS, live=2))
async def test_there_are_only_so_many_and_one_on_its_way_out_counts(house: House) -> None:
    first, _ = [await house.registry.create(ORDER) for _ in range(2)]
    with pytest.raises(QuotaExceeded) as refused:
        await house.registry.create(ORDER)
    assert refused.value.retry_after_seconds
    house.inn.exit.clear()
    stopping = asyncio.create_task(house.registry.stop("t", first.id))
    await until(lambda: first.over)
    with pytest.raises(QuotaExceeded):
        await house.registry.create(ORDER)
    house.inn.exit.set()
    await stopping
    await house.registry.create(ORDER)


@pytest.mark.parametrize(
    "bounds",
    [replace(BOUNDS, remembered=3), replace(BOUNDS, remembered=3, remembered_seconds=1e-9)],
)
def test_those_that_ended_are_forgotten_in_the_end(bounds: Bounds) -> None:
    async def test(house: House) -> None:
        kept = [await house.registry.create(replace(ORDER, tags=("x",))) for _ in range(10)]
        for each in kept:
            await house.registry.stop("t", each.id)
        found = house.registry.all("t", ["x"])
        assert found == (kept[-3:] if bounds.remembered_seconds > 1 else [])
        with pytest.raises(SandboxNotFound):
            house.registry.find("t", kept[0].id)
        assert sum(house.registry.census().values()) == len(found)

    run(test, bounds)


@in_house(replace(BOUNDS, remembered=0))
async def test_a_forgotten_one_that_is_slow_to_go_is_still_waited_for(house: House) -> None:
    kept = await house.registry.create(ORDER)
    house.inn.exit.clear()
    kept.stop("now")
    assert house.registry.all("t") == []
    closing = asyncio.create_task(house.registry.close())
    await asyncio.sleep(0)
    assert not closing.done()
    house.inn.exit.set()
    await closing
    assert house.inn.guests == []


@in_house(slots=1)
async def test_while_the_service_drains_what_runs_may_finish_and_nothing_begins(
    house: House,
) -> None:
    kept, other = [await house.registry.create(ORDER) for _ in range(2)]
    running = await house.begin(kept, "a")
    waiting = asyncio.create_task(house.run(other, "true"))
    await until(lambda: house.queue.queued == 1)
    await house.queue.drain()
    refused: list[Coroutine[Any, Any, Any]] = [
        house.run(kept, "true"),
        house.registry.create(ORDER),
    ]
    for each in (waiting, *refused):
        with pytest.raises(Draining):
            await each
    await house.registry.write_file("t", kept.id, "f", b"1")
    idle = asyncio.create_task(house.registry.idle())
    await asyncio.sleep(0)
    assert not idle.done()
    house.inn.guests[0].release("a")
    assert (await running).exit_code == 0
    await idle


@in_house()
async def test_closing_ends_all_also_those_that_are_made_or_used(house: House) -> None:
    kept = await house.registry.create(ORDER)
    command = await house.begin(kept, "a")
    house.inn.door.clear()
    creating = asyncio.create_task(house.registry.create(ORDER))
    await until(lambda: house.inn.coming == 1)
    await house.registry.close()
    assert (house.inn.guests, house.inn.coming) == ([], 0)
    with pytest.raises(SandboxEnded, match="the service is stopping"):
        await command
    for order in (creating, house.registry.create(ORDER)):
        with pytest.raises(Draining):
            await order
