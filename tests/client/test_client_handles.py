"""Handles of sandboxes of both kinds, against the fake service: creation, stop, tags."""

from __future__ import annotations

import asyncio
import logging
from typing import Any

import httpx
import pytest
from client_blocking import Kind, a_client
from client_requests import bodies, sent, statuses

from proctor_client import (
    InvalidRequestError,
    ProctorConnectionError,
    SandboxNotFoundError,
    SandboxStoppedError,
    SandboxUnavailableError,
)
from proctor_client.stats import ActiveCount
from proctor_client.testing import FakeProctor

# ---------------------------------------------------------------- beginning and end


def test_a_block_makes_a_sandbox_as_ordered_and_stops_it(proctor: FakeProctor, client: Any) -> None:
    order = {"tags": ("a", "b"), "ttl_seconds": 60, "limits": {"memory_mb": 256}, "job": "run-7"}
    with client.sandbox(files={"in.txt": "1"}, **order) as sandbox:
        assert (sandbox.id, sandbox.status, sandbox.tags) == (
            "sb_fake_0",
            "running",
            ("a", "b"),
        )
        assert statuses(proctor) == ["running"]
    assert sandbox.status == "stopped"
    assert statuses(proctor) == ["stopped"]
    assert bodies(proctor) == [{**order, "tags": ["a", "b"], "files": {"in.txt": "1"}}]


def test_an_exception_stops_it_and_goes_through(proctor: FakeProctor, client: Any) -> None:
    with pytest.raises(ZeroDivisionError), client.sandbox():
        _ = 1 / 0
    assert statuses(proctor) == ["stopped"]


def test_starting_and_stopping_by_hand(proctor: FakeProctor, client: Any) -> None:
    sandbox = client.sandbox()
    assert sandbox.status == "pending"
    with pytest.raises(RuntimeError, match="was not started"):
        sandbox.exec(["true"])
    sandbox.start()
    sandbox.start()  # it is there already
    assert sandbox.stop()
    assert sandbox.status == "stopped"
    with pytest.raises(SandboxStoppedError):
        sandbox.stop()
    assert not sandbox.stop(missing_ok=True)
    with pytest.raises(SandboxStoppedError):
        sandbox.exec(["true"])
    with pytest.raises(RuntimeError, match="make another"):
        sandbox.start()
    assert len(proctor.sandboxes) == 1


def test_stopping_what_was_never_started(proctor: FakeProctor, client: Any) -> None:
    sandbox = client.sandbox()
    with pytest.raises(RuntimeError, match="was not started"):
        sandbox.stop()
    assert not sandbox.stop(missing_ok=True)
    sandbox.close()
    assert proctor.requests == []


def test_a_creation_is_tried_again_and_makes_one_sandbox(proctor: FakeProctor, client: Any) -> None:
    proctor.drop_next(2)
    proctor.fail_next(reason="sandbox_unavailable")
    proctor.fail_next(status=429, reason="quota_exceeded")
    with client.sandbox() as sandbox:
        assert sandbox.id == "sb_fake_0"
    assert len(proctor.sandboxes) == 1
    created = [each for each in proctor.requests if each.method == "POST"]
    assert len(created) == 5
    assert len({each.idempotency_key for each in created} - {None}) == 1


def test_a_creation_that_fails_may_be_begun_again_with_its_key(kind: Kind) -> None:
    proctor = FakeProctor()
    proctor.drop_next()
    with a_client(kind, proctor, max_attempts=1) as client:
        sandbox = client.sandbox()
        with pytest.raises(ProctorConnectionError):
            sandbox.start()
        with sandbox:
            assert sandbox.id == "sb_fake_0"
    assert statuses(proctor) == ["stopped"]


def test_two_sandboxes_of_the_same_order_are_two(client: Any) -> None:
    with client.sandbox() as one, client.sandbox() as other:
        assert one.id != other.id


def test_an_unavailable_sandbox(kind: Kind) -> None:
    proctor = FakeProctor()
    proctor.fail_next(reason="sandbox_unavailable")
    with a_client(kind, proctor, max_attempts=1) as client:
        sandbox = client.sandbox()
        with pytest.raises(SandboxUnavailableError) as caught:
            sandbox.start()
    assert caught.value.retryable


@pytest.mark.parametrize("order", [{"ttl_seconds": 0}, {"tags": "run"}, {"tag": ["run"]}])
def test_an_order_at_fault_is_refused_at_once(
    proctor: FakeProctor, client: Any, order: dict[str, Any]
) -> None:
    with pytest.raises(InvalidRequestError) as caught:
        client.sandbox(**order)
    assert next(iter(order)) in caught.value.message
    assert proctor.requests == []


def test_leaving_while_the_service_is_away_is_brief_and_hides_nothing(
    proctor: FakeProctor, client: Any, caplog: pytest.LogCaptureFixture
) -> None:
    def break_down() -> None:
        proctor.fail_next(20)
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError), client.sandbox():
        break_down()
    assert "sandbox sb_fake_0 was not stopped, its ttl will end it: draining" in caplog.text
    assert sent(proctor).count("DELETE /sandboxes/sb_fake_0") == 3
    assert sum(proctor.clock.sleeps) <= 5


def test_a_sandbox_that_is_gone_before_the_end_is_no_error(
    proctor: FakeProctor, client: Any, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.WARNING)
    with client.sandbox(ttl_seconds=60) as sandbox:
        proctor.clock.now += 61
        with pytest.raises(SandboxStoppedError, match="its time was up"):
            sandbox.exec(["true"])
    with client.sandbox() as sandbox:
        client.attach(sandbox.id).stop()
    assert caplog.text == ""


def test_use_renews_the_ttl(proctor: FakeProctor, client: Any) -> None:
    with client.sandbox(ttl_seconds=60) as sandbox:
        for _ in range(3):
            proctor.clock.now += 50
            sandbox.exec(["true"])
        proctor.clock.now += 50
        assert sandbox.refresh().status == "running"
        proctor.clock.now += 11
        assert sandbox.refresh().message == "its time was up"
        assert sandbox.status == "stopped"


def test_a_stop_whose_answer_is_lost_counts_as_one(proctor: FakeProctor, client: Any) -> None:
    sandbox = client.sandbox()
    sandbox.start()
    proctor.drop_next()
    assert sandbox.stop()
    assert len(proctor.requests) == 3


def test_a_stop_that_was_only_refused_is_not_taken_for_one(
    proctor: FakeProctor, client: Any
) -> None:
    proctor.fail_next()
    with pytest.raises(SandboxNotFoundError):
        client.attach("sb_nobodys").stop()


# ---------------------------------------------------------------- broken off in the middle


class Interrupted(FakeProctor):
    """Does what is asked for, and then the caller is interrupted instead of getting the answer."""

    def __init__(self, **options: Any) -> None:
        super().__init__(**options)
        self.interrupted = False

    def handle_request(self, request: httpx.Request) -> httpx.Response:
        response = super().handle_request(request)
        if self.interrupted:
            return response
        self.interrupted = True
        raise KeyboardInterrupt

    async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
        response = await super().handle_async_request(request)
        if not self.interrupted:
            self.interrupted = True
            task = asyncio.current_task()
            assert task is not None
            task.cancel()
            await asyncio.sleep(0)
        return response


def test_ctrl_c_in_the_middle_of_a_creation_leaves_no_sandbox() -> None:
    proctor = Interrupted()
    with proctor.client() as client, pytest.raises(KeyboardInterrupt):
        client.sandbox().start()
    assert statuses(proctor) == ["stopped"]


def test_cancelling_a_creation_leaves_no_sandbox() -> None:
    proctor = Interrupted()

    async def made() -> None:
        async with proctor.async_client() as client, client.sandbox():
            pytest.fail("the creation was cancelled")

    with pytest.raises(asyncio.CancelledError):
        asyncio.run(made())
    assert statuses(proctor) == ["stopped"]


def test_ctrl_c_in_the_middle_of_a_creation_that_never_arrived_goes_through() -> None:
    proctor = Interrupted()
    proctor.fail_next(20)
    with proctor.client() as client, pytest.raises(KeyboardInterrupt):
        client.sandbox().start()
    assert proctor.sandboxes == []
    assert sum(proctor.clock.sleeps) <= 5


async def test_cancelling_a_block_stops_its_sandbox_though_cancelled_again() -> None:
    class Slow(FakeProctor):
        """Stops, but only after a few turns of the loop."""

        async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
            if request.method == "DELETE":
                stopping.set()
                await stop.wait()
            return await super().handle_async_request(request)

    async def block() -> None:
        async with proctor.async_client() as client, client.sandbox():
            inside.set()
            await asyncio.get_running_loop().create_future()

    proctor = Slow()
    inside, stopping, stop = asyncio.Event(), asyncio.Event(), asyncio.Event()

    task = asyncio.create_task(block())
    await inside.wait()
    task.cancel()
    await stopping.wait()
    task.cancel()
    await asyncio.sleep(0)
    stop.set()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert statuses(proctor) == ["stopped"]


# ---------------------------------------------------------------- many, and those of others


def test_finding_counting_and_stopping_by_tags(client: Any) -> None:
    made = [client.sandbox(tags=["run&7", str(number)]) for number in range(4)]
    for each in made:
        each.start()
    made[0].stop()
    assert [each.id for each in client.sandboxes(tags=["run&7", "1"])] == [made[1].id]
    assert len(client.sandboxes()) == 4
    assert [each.id for each in client.sandboxes(status="stopped")] == [made[0].id]
    assert len(client.sandboxes(tags=["run&7"], status=["stopped", "running"])) == 4
    count = client.count_active(tags=["run&7"])
    assert count == ActiveCount(running=3, pending=0)
    assert count.total == 3
    assert client.stop_sandboxes(["run&7", "2"]) == 1
    assert client.stop_sandboxes(["run&7"]) == 2
    assert client.count_active().total == 0


@pytest.mark.parametrize("tags", [[], (), "run", ["run", 7], None])
def test_everything_is_never_stopped_by_mistake(
    proctor: FakeProctor, client: Any, tags: Any
) -> None:
    with pytest.raises((InvalidRequestError, TypeError)):
        client.stop_sandboxes(tags)
    assert proctor.requests == []


def test_one_made_elsewhere_is_used_and_outlives_the_block(
    proctor: FakeProctor, client: Any
) -> None:
    mine = client.sandbox(tags=["mine"])
    mine.start()
    with client.attach(mine.id) as attached:
        assert (attached.id, attached.status, attached.tags) == (mine.id, "running", ())
        attached.write_file("a", "1")
        assert attached.refresh().tags == ["mine"]
        assert attached.tags == ("mine",)
    assert statuses(proctor) == ["running"]
    assert mine.read_file("a") == b"1"
    assert client.attach(mine.id).stop()
    with pytest.raises(SandboxNotFoundError):
        client.attach("sb_unknown").refresh()
    with pytest.raises(SandboxNotFoundError):
        client.attach("sb_unknown").stop()
    assert not client.attach("sb_unknown").stop(missing_ok=True)


@pytest.mark.parametrize("sandbox_id", ["", ".", "..", "a/b", "a?b", "../reward", "ü"])
def test_an_id_that_would_be_another_route(client: Any, sandbox_id: str) -> None:
    with pytest.raises(InvalidRequestError, match="sandbox_id"):
        client.attach(sandbox_id)


def test_a_handle_says_what_it_is(kind: Kind) -> None:
    name = "Sandbox" if kind == "threads" else "AsyncSandbox"
    with a_client(kind, FakeProctor()) as client:
        sandbox = client.sandbox()
        assert repr(sandbox) == f"{name}('not started', pending)"
        with sandbox:
            assert repr(sandbox) == f"{name}('sb_fake_0', running)"
