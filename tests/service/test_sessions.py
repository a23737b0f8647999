"""Stateful sandboxes without HTTP: whose they are, when they end, and that none is left behind."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable, Coroutine
from dataclasses import dataclass, replace
from typing import Any

import pytest
from harness import WAIT_SECONDS
from scripted_sandboxes import ROOMY, FakeBackend

from proctor_service.errors import (
    Busy,
    Draining,
    FileMissing,
    FileRefused,
    InvalidRequest,
    ProctorServiceError,
    QuotaExceeded,
    SandboxEnded,
    SandboxLost,
    SandboxNotFound,
    SandboxUnavailable,
)
from proctor_service.sandbox.interface import Command
from proctor_service.scheduling.deadlines import Deadlines
from proctor_service.scheduling.queue import FairQueue
from proctor_service.sessions import Bounds, Order, Registry, Session

BOUNDS = Bounds(live=200, remembered=100, remembered_seconds=600.0, file_bytes=1000)
ORDER = Order("t", ROOMY)


@dataclass(frozen=True)
class House:
    """A registry, and what it stands on."""

    inn: FakeBackend
    queue: FairQueue
    registry: Registry
    told: list[str]

    async def run(self, kept: Session, *argv: str) -> Any:
        return await self.registry.exec(kept.tenant, kept.id, Command(argv))

    async def begin(self, kept: Session, name: str) -> asyncio.Task[Any]:
        """A command that waits, once it does."""
        task = asyncio.create_task(self.run(kept, "wait", name))
        await until(lambda: any(name in guest.waiting for guest in self.inn.guests))
        return task


async def until(condition: Callable[[], bool]) -> None:
    async with asyncio.timeout(WAIT_SECONDS):
        while not condition():  # noqa: ASYNC110  what is watched has no event
            await asyncio.sleep(0)


def run(
    test: Callable[[House], Coroutine[Any, Any, None]],
    bounds: Bounds = BOUNDS,
    slots: int = 100,
    max_queued: int = 1000,
) -> None:
    """Runs a test with a registry; at its end nothing may be left."""

    async def whole() -> None:
        deadlines = Deadlines()
        inn, told = FakeBackend(), list[str]()
        queue = FairQueue(slots, max_queued, deadlines)
        registry = Registry(inn, queue, bounds, lambda outcome, _: told.append(outcome))
        try:
            async with asyncio.timeout(WAIT_SECONDS):
                await test(House(inn, queue, registry, told))
                inn.door.set()
                inn.exit.set()
                await registry.close()
        finally:
            deadlines.close()
        assert (inn.guests, inn.coming) == ([], 0)
        assert (queue.busy, queue.queued) == (0, 0)
        assert asyncio.all_tasks() == {asyncio.current_task()}

    asyncio.run(whole())


def test_it_lives_from_its_files_to_its_stop_and_counts_what_was_run() -> None:
    async def test(house: House) -> None:
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

    run(test)


def test_others_do_not_find_it() -> None:
    async def test(house: House) -> None:
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

    run(test)


def test_tags_find_those_that_carry_all_of_them() -> None:
    async def test(house: House) -> None:
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

    run(test)


def test_an_unused_one_is_stopped_after_its_ttl_and_a_use_puts_that_off() -> None:
    async def test(house: House) -> None:
        create = house.registry.create
        used = await create(replace(ORDER, ttl_seconds=0.1))
        command = await house.begin(used, "a")
        unused = await create(replace(ORDER, ttl_seconds=0.4))
        before = unused.expires_at
        assert (before - unused.created_at).total_seconds() == pytest.approx(0.4, abs=0.2)
        await unused.gone()  # four times the other's ttl
        assert unused.message == "its ttl of 0.4 s passed"
        assert used.status == "running"
        assert used.expires_at > before
        house.inn.guests[0].release("a")
        assert (await command).exit_code == 0
        await used.gone()
        assert (used.status, used.message) == ("stopped", "its ttl of 0.1 s passed")
        with pytest.raises(SandboxEnded, match=r"ttl of 0\.1 s"):
            await house.run(used, "true")

    run(test)


def test_each_use_counts_the_ttl_anew_and_looking_does_not() -> None:
    async def test(house: House) -> None:
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

    run(test)


def test_a_stop_ends_the_command_that_runs_and_those_that_wait_for_a_core() -> None:
    async def test(house: House) -> None:
        first, second = [await house.registry.create(ORDER) for _ in range(2)]
        running = await house.begin(first, "a")
        waiting = [asyncio.create_task(house.run(second, "true")) for _ in range(20)]
        await until(lambda: house.queue.queued == 1)
        for kept in (second, first):
            stops = await asyncio.gather(*(house.registry.stop("t", kept.id) for _ in range(5)))
            assert sorted(stops) == [False] * 4 + [True]
        for task in (running, *waiting):
            with pytest.raises(SandboxEnded):
                await task
        assert house.inn.left[1].cancelled == ["a"]
        assert (first.execs, second.execs) == ({"error": 1}, {})  # those that waited never ran
        assert house.told == ["error"]

    run(test, slots=1)


def test_a_cancelled_command_is_killed_and_the_sandbox_goes_on() -> None:
    async def test(house: House) -> None:
        kept = await house.registry.create(ORDER)
        command = await house.begin(kept, "a")
        command.cancel()
        await asyncio.gather(command, return_exceptions=True)
        assert command.cancelled()
        assert house.inn.guests[0].cancelled == ["a"]
        assert (await house.run(kept, "true")).exit_code == 0
        assert kept.execs == {"error": 1, "success": 1}

    run(test, slots=1)


def test_commands_take_turns_with_everything_else_in_the_queue() -> None:
    async def test(house: House) -> None:
        kept, other = [await house.registry.create(ORDER) for _ in range(2)]
        places = house.queue.reserve(1)
        async with house.queue.admit("t", "j", time.monotonic() + WAIT_SECONDS):
            command = asyncio.create_task(house.registry.execute("t", kept.id, Command(("true",))))
            await until(lambda: house.queue.queued == 1)
            with pytest.raises(Busy):
                await house.run(other, "true")
        places.close()
        assert (await command).queue_seconds > 0

    run(test, slots=1, max_queued=1)


def test_commands_that_run_at_once_in_one_sandbox_share_a_ticket() -> None:
    async def test(house: House) -> None:
        kept, other = [await house.registry.create(ORDER) for _ in range(2)]
        first, second = [await house.begin(kept, name) for name in "ab"]
        theirs = asyncio.create_task(house.run(other, "true"))
        await until(lambda: house.queue.queued == 1)
        assert house.queue.busy == 1
        house.inn.guests[0].release("a")
        await first
        assert house.queue.busy == 1
        house.inn.guests[0].release("b")
        await second
        assert (await theirs).exit_code == 0
        assert (await house.run(kept, "true")).exit_code == 0

    run(test, slots=1)


def test_the_next_command_goes_on_waiting_when_the_first_in_line_is_cancelled() -> None:
    async def test(house: House) -> None:
        kept, other = [await house.registry.create(ORDER) for _ in range(2)]
        running = await house.begin(other, "a")
        first, second = [asyncio.create_task(house.run(kept, "true")) for _ in range(2)]
        await until(lambda: house.queue.queued == 1)
        first.cancel()
        await asyncio.gather(first, return_exceptions=True)
        house.inn.guests[1].release("a")
        await asyncio.gather(running, second)
        assert kept.execs == {"success": 1}

    run(test, slots=1)


def test_stopped_while_it_is_still_made() -> None:
    async def test(house: House) -> None:
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

    run(test)


def test_a_use_waits_while_it_is_still_made() -> None:
    async def test(house: House) -> None:
        house.inn.door.clear()
        creating = asyncio.create_task(house.registry.create(ORDER))
        await until(lambda: house.inn.coming == 1)
        [kept] = house.registry.all("t")
        use = asyncio.create_task(house.run(kept, "true"))
        house.inn.door.set()
        assert (await use).exit_code == 0
        assert await creating is kept

    run(test)


@pytest.mark.parametrize("moment", ["at once", "while it is made", "in the turn it is there"])
def test_a_creator_that_goes_away_leaves_no_sandbox(moment: str) -> None:
    async def test(house: House) -> None:
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

    run(test)


def test_a_cancellation_that_the_backend_loses_leaves_no_sandbox() -> None:
    async def test(house: House) -> None:
        house.inn.deaf = True
        house.inn.door.clear()
        creating = asyncio.create_task(house.registry.create(ORDER))
        await until(lambda: house.inn.coming == 1)
        creating.cancel()
        await asyncio.gather(creating, return_exceptions=True)
        [kept] = house.registry.all("t")
        await kept.gone()
        assert (kept.status, len(house.inn.left)) == ("stopped", 1)

    run(test)


@pytest.mark.parametrize(
    ("refusal", "raised"),
    [
        (SandboxUnavailable("no room"), SandboxUnavailable),
        (SandboxLost("it did not come up"), SandboxUnavailable),
        (RuntimeError("a bug"), SandboxUnavailable),
    ],
)
def test_what_prevents_a_sandbox_is_a_failure_and_is_remembered(
    refusal: Any, raised: type[Exception]
) -> None:
    async def test(house: House) -> None:
        house.inn.refusals.append(refusal)
        with pytest.raises(raised):
            await house.registry.create(ORDER)
        [kept] = house.registry.all("t")
        assert kept.status == "failed"
        with pytest.raises(SandboxLost):
            await house.run(kept, "true")

    run(test)


def test_files_that_do_not_fit_are_refused_and_leave_no_sandbox() -> None:
    async def test(house: House) -> None:
        with pytest.raises(FileRefused, match="no room"):
            await house.registry.create(replace(ORDER, files={"full": "x"}))
        await until(lambda: not house.inn.guests)

    run(test)


def test_it_ends_by_its_own_act() -> None:
    async def test(house: House) -> None:
        kept = await house.registry.create(ORDER)
        with pytest.raises(SandboxEnded):
            await house.run(kept, "suicide")
        await kept.gone()
        assert (kept.status, kept.message) == ("stopped", "it used up its memory")
        assert kept.by_own_act
        with pytest.raises(SandboxEnded, match="used up its memory"):
            await house.run(kept, "true")

    run(test)


def test_a_lost_one_is_a_failure_and_never_an_end_of_its_own() -> None:
    async def test(house: House) -> None:
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

    run(test)


def test_a_stop_does_not_cut_short_the_clean_up_of_another_end() -> None:
    async def test(house: House) -> None:
        kept = await house.registry.create(ORDER)
        house.inn.exit.clear()
        house.inn.guests[0].lose(SandboxLost("gone"))
        await until(lambda: kept.over)
        assert await house.registry.stop("t", kept.id) is False
        assert house.inn.guests
        house.inn.exit.set()
        await kept.gone()
        assert (house.inn.guests, kept.status) == ([], "failed")

    run(test)


def test_there_are_only_so_many_and_one_on_its_way_out_counts() -> None:
    async def test(house: House) -> None:
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

    run(test, replace(BOUNDS, live=2))


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


def test_a_forgotten_one_that_is_slow_to_go_is_still_waited_for() -> None:
    async def test(house: House) -> None:
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

    run(test, replace(BOUNDS, remembered=0))


def test_while_the_service_drains_what_runs_may_finish_and_nothing_begins() -> None:
    async def test(house: House) -> None:
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

    run(test, slots=1)


def test_closing_ends_all_also_those_that_are_made_or_used() -> None:
    async def test(house: House) -> None:
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

    run(test)


def test_a_hundred_at_once() -> None:
    async def test(house: House) -> None:
        kept = await asyncio.gather(*(house.registry.create(ORDER) for _ in range(100)))
        assert len({each.id for each in kept}) == 100
        runs = [house.run(each, "true") for each in kept for _ in range(10)]
        assert {each.exit_code for each in await asyncio.gather(*runs)} == {0}
        assert all(each.execs == {"success": 10} for each in kept)

    run(test, slots=3, max_queued=2000)


@pytest.mark.parametrize(
    "path", ["", "/", "//", "a\0b", "\ud800", "x" * 256, "/".join("x" * 2100), "a/" + "é" * 128]
)
def test_a_path_that_no_machine_has_is_refused(path: str) -> None:
    async def test(house: House) -> None:
        kept = await house.registry.create(ORDER)
        for use in (
            house.registry.write_file("t", kept.id, path, b""),
            house.registry.read_file("t", kept.id, path),
        ):
            with pytest.raises(FileRefused, match=r"^path: "):
                await use

    run(test)


def test_a_command_leaves_a_line_in_the_log_and_not_its_text(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async def test(house: House) -> None:
        kept = await house.registry.create(replace(ORDER, job="run-1"))
        await house.run(kept, "say", "secret", "!err")
        house.inn.guests[0].lose(SandboxLost("gone"))
        with pytest.raises(ProctorServiceError):
            await house.run(kept, "true")

    with caplog.at_level(logging.DEBUG, "proctor_service.sessions"):
        run(test)
    line, lost = [record for record in caplog.records if record.message == "a command ended"]
    assert vars(lost)["ending"] == "sandbox_stopped"
    found = vars(line)
    assert found["sandbox_id"].startswith("sb_")
    expected = {
        "tenant": "t",
        "job": "run-1",
        "ending": "exited",
        "exit_code": 0,
        "stdout_bytes": 6,
        "stderr_bytes": 4,
    }
    assert {name: found[name] for name in expected} == expected
    assert found["duration_seconds"] >= 0
    for record in caplog.records:
        assert record.levelno == logging.DEBUG or "secret" not in str(vars(record))
    assert any("secret" in str(vars(record)) for record in caplog.records)
