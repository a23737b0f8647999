"""Commands in stateful sandboxes without HTTP: slots, cancellation, the log."""

from __future__ import annotations

import asyncio
import logging
import time
from dataclasses import replace

import pytest
from event_loop import until
from session_registry import ORDER, House, in_house, run
from waits import WAIT_SECONDS

from proctor_service.errors import Busy, FileRefused, ProctorServiceError, SandboxEnded, SandboxLost
from proctor_service.sandbox.interface import Command


@in_house(slots=1)
async def test_a_stop_ends_the_command_that_runs_and_those_that_wait_for_a_core(
    house: House,
) -> None:
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


@in_house(slots=1)
async def test_a_cancelled_command_is_killed_and_the_sandbox_goes_on(house: House) -> None:
    kept = await house.registry.create(ORDER)
    command = await house.begin(kept, "a")
    command.cancel()
    await asyncio.gather(command, return_exceptions=True)
    assert command.cancelled()
    assert house.inn.guests[0].cancelled == ["a"]
    assert (await house.run(kept, "true")).exit_code == 0
    assert kept.execs == {"error": 1, "success": 1}


@in_house(slots=1, max_queued=1)
async def test_commands_take_turns_with_everything_else_in_the_queue(house: House) -> None:
    kept, other = [await house.registry.create(ORDER) for _ in range(2)]
    places = house.queue.reserve(1)
    async with house.queue.admit("t", "j", time.monotonic() + WAIT_SECONDS):
        command = asyncio.create_task(house.registry.execute("t", kept.id, Command(("true",))))
        await until(lambda: house.queue.queued == 1)
        with pytest.raises(Busy):
            await house.run(other, "true")
    places.close()
    assert (await command).queue_seconds > 0


@in_house(slots=1)
async def test_commands_that_run_at_once_in_one_sandbox_share_a_ticket(house: House) -> None:
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


@in_house(slots=1)
async def test_the_next_command_goes_on_waiting_when_the_first_in_line_is_cancelled(
    house: House,
) -> None:
    kept, other = [await house.registry.create(ORDER) for _ in range(2)]
    running = await house.begin(other, "a")
    first, second = [asyncio.create_task(house.run(kept, "true")) for _ in range(2)]
    await until(lambda: house.queue.queued == 1)
    first.cancel()
    await asyncio.gather(first, return_exceptions=True)
    house.inn.guests[1].release("a")
    await asyncio.gather(running, second)
    assert kept.execs == {"success": 1}


@pytest.mark.parametrize(
    "path", ["", "/", "//", "a\0b", "\ud800", "x" * 256, "/".join("x" * 2100), "a/" + "é" * 128]
)
@in_house()
async def test_a_path_that_no_machine_has_is_refused(house: House, path: str) -> None:
    kept = await house.registry.create(ORDER)
    for use in (
        house.registry.write_file("t", kept.id, path, b""),
        house.registry.read_file("t", kept.id, path),
    ):
        with pytest.raises(FileRefused, match=r"^path: "):
            await use


def test_a_command_leaves_a_line_in_the_log_and_not_its_text(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async def test(house: House) -> None:
        kept = await house.registry.create(replace(ORDER, job="run-1"))
        await house.run(kept, "say", "secret", "!err")
        house.inn.guests[0].lose(SandboxLost("gone"))
        with pytest.raises(ProctorServiceError):
            await house.run(kept, "true")

    with caplog.at_level(logging.DEBUG, "proctor_service.sandboxes"):
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
