"""Stateful sandboxes without HTTP: their creation, their owners and their time to live."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from typing import Any

import pytest
from event_loop import until
from scripted_sandboxes import ROOMY
from session_registry import ORDER, House, in_house

from proctor_service.errors import (
    FileMissing,
    FileRefused,
    InvalidRequest,
    SandboxEnded,
    SandboxLost,
    SandboxNotFound,
    SandboxUnavailable,
)
from proctor_service.sandboxes.registry import Order


@in_house()
async def test_it_lives_from_its_files_to_its_stop_and_counts_what_was_run(house: House) -> None:
    kept = await house.registry.create(replace(ORDER, files={"a/b": "1\ud800"}, tags=("x",)))
    assert kept.status == "running"
    [guest] = house.inn.guests
    assert (guest.files, guest.tags) == ({"a/b": b"1\xed\xa0\x80"}, ("x",))
    for argv in (("true",), ("false",), ("none",), ("overrun",), ("say", "hi")):
        await house.run(kept, *argv)
    assert kept.execs == {"success": 2, "failure": 2, "error": 1}
    assert sorted(house.told) == ["error", "failure", "failure", "success", "success"]
    await house.registry.write_file("t", kept.id, "f", b"\x00\xff")
    assert await house.registry.read_file("t", kept.id, "f") == b"\x00\xff"
    assert await house.registry.snapshot("t", kept.id) == b"a/b f"
    with pytest.raises(FileMissing):
        await house.registry.read_file("t", kept.id, "g")

    assert await house.registry.stop("t", kept.id) is True
    assert (house.inn.guests, house.inn.left) == ([], [guest])
    assert await house.registry.stop("t", kept.id) is False
    assert (kept.status, kept.message) == ("stopped", "it was stopped")
    for use in (
        house.run(kept, "true"),
        house.registry.read_file("t", kept.id, "f"),
        house.registry.write_file("t", kept.id, "f", b""),
        house.registry.snapshot("t", kept.id),
    ):
        with pytest.raises(SandboxEnded, match="stopped"):
            await use
    assert kept.execs.total() == 5


@in_house()
async def test_others_do_not_find_it(house: House) -> None:
    mine = await house.registry.create(replace(ORDER, tags=("a", "b")))
    theirs = await house.registry.create(Order("other", ROOMY, ("a", "b")))
    for sandbox_id in (theirs.id, "sb_none", "", "\ud800"):
        with pytest.raises(SandboxNotFound):
            house.registry.find("t", sandbox_id)
        with pytest.raises(SandboxNotFound):
            await house.registry.stop("t", sandbox_id)
    assert house.registry.all("t") == [mine]
    assert await house.registry.stop_tagged("t", ["a"]) == 1
    assert theirs.status == "running"


@in_house()
async def test_tags_find_those_that_carry_all_of_them(house: House) -> None:
    odd = "ümlaut & space=/?#\n\U0001f600"
    first = await house.registry.create(replace(ORDER, tags=("a", odd)))
    second = await house.registry.create(replace(ORDER, tags=("a", "b", "b")))
    find = house.registry.all
    assert find("t", ["a"]) == [first, second]
    assert find("t", ["a", odd]) == [first]
    assert find("t", ["b", "a", "a"]) == [second]
    assert find("t", ["A"]) == []
    assert await house.registry.stop_tagged("t", ["b"]) == 1
    assert await house.registry.stop_tagged("t", ["b"]) == 0
    assert find("t", [], ["running"]) == [first]
    assert find("t", ["a"], ["running", "stopped"]) == [first, second]
    assert house.registry.census() == {"pending": 0, "running": 1, "stopped": 1, "failed": 0}
    with pytest.raises(InvalidRequest, match="tag"):
        await house.registry.stop_tagged("t", [])


@in_house()
async def test_an_unused_one_is_stopped_after_its_ttl_and_a_use_puts_that_off(house: House) -> None:
    create = house.registry.create
    used = await create(replace(ORDER, ttl_seconds=5))
    command = await house.begin(used, "a")
    unused = await create(replace(ORDER, ttl_seconds=20))
    before = unused.expires_at
    assert (before - unused.created_at).total_seconds() == pytest.approx(20, abs=0.2)
    await unused.gone()  # four times the other's ttl
    assert unused.message == "its ttl of 20 s passed"
    assert used.status == "running"
    assert used.expires_at > before
    house.inn.guests[0].release("a")
    assert (await command).exit_code == 0
    await used.gone()
    assert (used.status, used.message) == ("stopped", "its ttl of 5 s passed")
    with pytest.raises(SandboxEnded, match=r"ttl of 5 s"):
        await house.run(used, "true")


@in_house()
async def test_each_use_counts_the_ttl_anew_and_looking_does_not(house: House) -> None:
    kept = await house.registry.create(replace(ORDER, ttl_seconds=1000))
    first = kept.expires_at
    house.registry.find("t", kept.id)
    house.registry.all("t")
    assert kept.expires_at == first
    await house.run(kept, "true")
    assert kept.expires_at > first
    second = kept.expires_at
    await house.registry.write_file("t", kept.id, "f", b"")
    assert kept.expires_at > second


@in_house()
async def test_stopped_while_it_is_still_made(house: House) -> None:
    house.inn.door.clear()
    creating = asyncio.create_task(house.registry.create(replace(ORDER, tags=("x",))))
    await until(lambda: house.inn.coming == 1)
    [kept] = house.registry.all("t", ["x"], ["pending"])
    use = asyncio.create_task(house.run(kept, "true"))
    assert await house.registry.stop_tagged("t", ["x"]) == 1
    for task in (creating, use):
        with pytest.raises(SandboxEnded):
            await task
    assert (house.inn.coming, kept.status) == (0, "stopped")


@in_house()
async def test_a_use_waits_while_it_is_still_made(house: House) -> None:
    house.inn.door.clear()
    creating = asyncio.create_task(house.registry.create(ORDER))
    await until(lambda: house.inn.coming == 1)
    [kept] = house.registry.all("t")
    use = asyncio.create_task(house.run(kept, "true"))
    house.inn.door.set()
    assert (await use).exit_code == 0
    assert await creating is kept


@pytest.mark.parametrize("moment", ["at once", "while it is made", "in the turn it is there"])
@in_house()
async def test_a_creator_that_goes_away_leaves_no_sandbox(house: House, moment: str) -> None:
    house.inn.door.clear()
    creating = asyncio.create_task(house.registry.create(ORDER))
    if moment != "at once":
        await until(lambda: house.inn.coming == 1)
    if moment == "in the turn it is there":
        house.inn.door.set()
        await until(lambda: house.registry.census()["running"] == 1)
    creating.cancel()
    await asyncio.gather(creating, return_exceptions=True)
    for kept in house.registry.all("t"):
        await kept.gone()
    assert (house.inn.guests, house.inn.coming) == ([], 0)


@in_house()
async def test_a_cancellation_that_the_backend_loses_leaves_no_sandbox(house: House) -> None:
    house.inn.deaf = True
    house.inn.door.clear()
    creating = asyncio.create_task(house.registry.create(ORDER))
    await until(lambda: house.inn.coming == 1)
    creating.cancel()
    await asyncio.gather(creating, return_exceptions=True)
    [kept] = house.registry.all("t")
    await kept.gone()
    assert (kept.status, len(house.inn.left)) == ("stopped", 1)


@pytest.mark.parametrize(
    ("refusal", "raised"),
    [
        (SandboxUnavailable("no room"), SandboxUnavailable),
        (SandboxLost("it did not come up"), SandboxUnavailable),
        (RuntimeError("a bug"), SandboxUnavailable),
    ],
)
@in_house()
async def test_what_prevents_a_sandbox_is_a_failure_and_is_remembered(
    house: House, refusal: Any, raised: type[Exception]
) -> None:
    house.inn.refusals.append(refusal)
    with pytest.raises(raised):
        await house.registry.create(ORDER)
    [kept] = house.registry.all("t")
    assert kept.status == "failed"
    with pytest.raises(SandboxLost):
        await house.run(kept, "true")


@in_house()
async def test_files_that_do_not_fit_are_refused_and_leave_no_sandbox(house: House) -> None:
    with pytest.raises(FileRefused, match="no room"):
        await house.registry.create(replace(ORDER, files={"full": "x"}))
    await until(lambda: not house.inn.guests)


@in_house(slots=3, max_queued=2000)
async def test_a_hundred_at_once(house: House) -> None:
    kept = await asyncio.gather(*(house.registry.create(ORDER) for _ in range(100)))
    assert len({each.id for each in kept}) == 100
    runs = [house.run(each, "true") for each in kept for _ in range(10)]
    assert {each.exit_code for each in await asyncio.gather(*runs)} == {0}
    assert all(each.execs == {"success": 10} for each in kept)
