"""Handles of sandboxes of both kinds, against the fake service."""

from __future__ import annotations

import asyncio
import json
import logging
from typing import Any

import httpx
import pytest
from client_blocking import Kind, a_client

from proctor_client import (
    BusyError,
    InvalidRequestError,
    ProctorConnectionError,
    SandboxFileError,
    SandboxLostError,
    SandboxNotFoundError,
    SandboxStoppedError,
    SandboxTimeoutError,
    SandboxUnavailableError,
    wire,
)
from proctor_client.stats import ActiveCount
from proctor_client.testing import Executed, FakeProctor, FakeSandbox


@pytest.fixture(params=["threads", "loops"])
def kind(request: pytest.FixtureRequest) -> Kind:
    found: Kind = request.param
    return found


def bodies(proctor: FakeProctor) -> list[Any]:
    """The JSON that came."""
    return [json.loads(each.content) for each in proctor.requests if each.method == "POST"]


def sent(proctor: FakeProctor) -> list[str]:
    """What was asked for, in order."""
    return [f"{each.method} {each.path}" for each in proctor.requests]


def statuses(proctor: FakeProctor) -> list[str]:
    """Of the sandboxes that were made."""
    return [each.status for each in proctor.sandboxes]


# ---------------------------------------------------------------- beginning and end


def test_a_block_makes_a_sandbox_as_ordered_and_stops_it(kind: Kind) -> None:
    proctor = FakeProctor()
    order = {"tags": ("a", "b"), "ttl_seconds": 60, "limits": {"memory_mb": 256}, "job": "run-7"}
    with a_client(kind, proctor) as client:
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


def test_an_exception_stops_it_and_goes_through(kind: Kind) -> None:
    proctor = FakeProctor()
    with a_client(kind, proctor) as client, pytest.raises(ZeroDivisionError), client.sandbox():
        _ = 1 / 0
    assert statuses(proctor) == ["stopped"]


def test_starting_and_stopping_by_hand(kind: Kind) -> None:
    proctor = FakeProctor()
    with a_client(kind, proctor) as client:
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


def test_stopping_what_was_never_started(kind: Kind) -> None:
    proctor = FakeProctor()
    with a_client(kind, proctor) as client:
        sandbox = client.sandbox()
        with pytest.raises(RuntimeError, match="was not started"):
            sandbox.stop()
        assert not sandbox.stop(missing_ok=True)
        sandbox.close()
    assert proctor.requests == []


def test_a_creation_is_tried_again_and_makes_one_sandbox(kind: Kind) -> None:
    proctor = FakeProctor()
    proctor.drop_next(2)
    proctor.fail_next(reason="sandbox_unavailable")
    proctor.fail_next(status=429, reason="quota_exceeded")
    with a_client(kind, proctor) as client, client.sandbox() as sandbox:
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


def test_two_sandboxes_of_the_same_order_are_two(kind: Kind) -> None:
    proctor = FakeProctor()
    with a_client(kind, proctor) as client, client.sandbox() as one, client.sandbox() as other:
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
def test_an_order_at_fault_is_refused_at_once(kind: Kind, order: dict[str, Any]) -> None:
    proctor = FakeProctor()
    with a_client(kind, proctor) as client, pytest.raises(InvalidRequestError) as caught:
        client.sandbox(**order)
    assert next(iter(order)) in caught.value.message
    assert proctor.requests == []


def test_leaving_while_the_service_is_away_is_brief_and_hides_nothing(
    kind: Kind, caplog: pytest.LogCaptureFixture
) -> None:
    def break_down() -> None:
        proctor.fail_next(20)
        raise ZeroDivisionError

    proctor = FakeProctor()
    with a_client(kind, proctor) as client:
        with pytest.raises(ZeroDivisionError), client.sandbox():
            break_down()
        assert "sandbox sb_fake_0 was not stopped, its ttl will end it: draining" in caplog.text
    assert sent(proctor).count("DELETE /sandboxes/sb_fake_0") == 3
    assert sum(proctor.clock.sleeps) <= 5


def test_a_sandbox_that_is_gone_before_the_end_is_no_error(
    kind: Kind, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.WARNING)
    proctor = FakeProctor()
    with a_client(kind, proctor) as client:
        with client.sandbox(ttl_seconds=60) as sandbox:
            proctor.clock.now += 61
            with pytest.raises(SandboxStoppedError, match="its time was up"):
                sandbox.exec(["true"])
        with client.sandbox() as sandbox:
            client.attach(sandbox.id).stop()
    assert caplog.text == ""


def test_use_renews_the_ttl(kind: Kind) -> None:
    proctor = FakeProctor()
    with a_client(kind, proctor) as client, client.sandbox(ttl_seconds=60) as sandbox:
        for _ in range(3):
            proctor.clock.now += 50
            sandbox.exec(["true"])
        proctor.clock.now += 50
        assert sandbox.refresh().status == "running"
        proctor.clock.now += 11
        assert sandbox.refresh().message == "its time was up"
        assert sandbox.status == "stopped"


def test_a_stop_whose_answer_is_lost_counts_as_one(kind: Kind) -> None:
    proctor = FakeProctor()
    with a_client(kind, proctor) as client:
        sandbox = client.sandbox()
        sandbox.start()
        proctor.drop_next()
        assert sandbox.stop()
    assert len(proctor.requests) == 3


def test_a_stop_that_was_only_refused_is_not_taken_for_one(kind: Kind) -> None:
    proctor = FakeProctor()
    with a_client(kind, proctor) as client:
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


def test_cancelling_a_block_stops_its_sandbox_though_cancelled_again() -> None:
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

    async def cancelled_twice() -> None:
        task = asyncio.create_task(block())
        await inside.wait()
        task.cancel()
        await stopping.wait()
        task.cancel()
        await asyncio.sleep(0)
        stop.set()
        with pytest.raises(asyncio.CancelledError):
            await task

    proctor = Slow()
    inside, stopping, stop = asyncio.Event(), asyncio.Event(), asyncio.Event()
    asyncio.run(cancelled_twice())
    assert statuses(proctor) == ["stopped"]


# ---------------------------------------------------------------- commands


def test_commands_arrive_as_meant(kind: Kind) -> None:
    proctor = FakeProctor()
    with a_client(kind, proctor) as client, client.sandbox() as sandbox:
        sandbox.exec(("ls", "-l"))
        sandbox.exec(["cat"], stdin="text", timeout_seconds=2.5)
        sandbox.exec(code="print(1)")
    assert bodies(proctor)[1:] == [
        {"command": ["ls", "-l"]},
        {"command": ["cat"], "stdin": "text", "timeout_seconds": 2.5},
        {"code": "print(1)"},
    ]


@pytest.mark.parametrize(
    ("args", "named"),
    [
        ({}, "command or code"),
        ({"command": ["ls"], "code": "1"}, "command or code"),
        ({"command": "ls -l"}, "argv"),
        ({"command": []}, "command"),
        ({"command": ["ls"], "timeout_seconds": 0}, "timeout_seconds"),
        ({"code": "\ud800"}, "code: a lone surrogate"),
        ({"command": ["cat", "\ud800"]}, "command.1: a lone surrogate"),
    ],
)
def test_a_command_at_fault_is_refused_here(kind: Kind, args: dict[str, Any], named: str) -> None:
    proctor = FakeProctor()
    with a_client(kind, proctor) as client, client.sandbox() as sandbox:
        for run in (sandbox.exec, lambda **args: list(sandbox.stream(**args))):
            with pytest.raises(InvalidRequestError) as caught:
                run(**args)
            assert named in caught.value.message
        assert sandbox.exec_stats.total == 0
        assert len(proctor.requests) == 1


def test_a_failing_command_is_no_exception_and_counts(kind: Kind) -> None:
    codes = iter([0, 1, 127, 0])
    proctor = FakeProctor(execute=lambda sandbox, request: next(codes))
    with a_client(kind, proctor) as client, client.sandbox() as sandbox:
        assert [sandbox.exec(["x"]).exit_code for _ in range(4)] == [0, 1, 127, 0]
        assert sandbox.exec_stats == wire.ExecStats(total=4, successes=2, failures=2)
        assert sandbox.refresh().exec_stats == sandbox.exec_stats


@pytest.mark.parametrize(
    ("ending", "seconds", "message"),
    [
        ("wall_limit", 30, "command timed out after 30 seconds"),
        ("cpu_limit", 1, "command timed out after 1 second"),
        ("wall_limit", 0.25, "command timed out after 0.25 seconds"),
        ("wall_limit", None, "command timed out: it idled too long"),
        ("cpu_limit", None, "command timed out: its CPU time was used up"),
    ],
)
def test_a_time_limit_is_an_exception_with_the_output(
    kind: Kind, ending: str, seconds: float | None, message: str
) -> None:
    half = wire.ExecResult(stdout="half of it", ending=ending)
    proctor = FakeProctor(execute=lambda sandbox, request: half)
    with a_client(kind, proctor) as client, client.sandbox() as sandbox:
        with pytest.raises(SandboxTimeoutError) as caught:
            sandbox.exec(["sleep", "99"], timeout_seconds=seconds)
        assert caught.value.result == half
        assert caught.value.message == message
        assert sandbox.exec_stats == wire.ExecStats(total=1, errors=1)


@pytest.mark.parametrize("ending", ["memory_limit", "output_limit", "signalled", "killed"])
def test_other_ends_are_data(kind: Kind, ending: str) -> None:
    result = wire.ExecResult(ending=ending)
    proctor = FakeProctor(execute=lambda sandbox, request: result)
    with a_client(kind, proctor) as client, client.sandbox() as sandbox:
        assert sandbox.exec(["x"]) == result
        counts = sandbox.exec_stats
    assert (counts.failures, counts.errors) == ((1, 0) if ending == "signalled" else (0, 1))


def test_a_lost_sandbox_is_not_asked_again(kind: Kind) -> None:
    lost = wire.ItemError(reason="sandbox_lost", message="gone", retryable=True)
    proctor = FakeProctor(execute=lambda sandbox, request: lost)
    with a_client(kind, proctor) as client, client.sandbox() as sandbox:
        with pytest.raises(SandboxLostError, match="gone"):
            sandbox.exec(["x"])
        with pytest.raises(SandboxLostError, match="gone"):
            list(sandbox.stream(["x"]))
        assert sandbox.exec_stats == wire.ExecStats(total=2, errors=2)
    assert proctor.clock.sleeps == []


class Noted:
    """Commands that note that they ran."""

    def __init__(self) -> None:
        self.ran = 0

    def __call__(self, sandbox: FakeSandbox, request: wire.ExecRequest) -> Executed:
        self.ran += 1
        return "out"


@pytest.mark.parametrize("after_results", [None, 0, 1])
def test_a_command_that_may_have_run_is_not_run_again(
    kind: Kind, after_results: int | None
) -> None:
    noted = Noted()
    proctor = FakeProctor(execute=noted)
    with a_client(kind, proctor) as client, client.sandbox() as sandbox:
        run = (
            sandbox.exec if after_results is None else lambda command: list(sandbox.stream(command))
        )
        proctor.drop_next(after_results=after_results)
        with pytest.raises(ProctorConnectionError):
            run(["x"])
        assert noted.ran == 1
        assert sandbox.exec_stats.errors == 1
    assert proctor.clock.sleeps == []


def test_a_command_that_was_turned_away_is_sent_again(kind: Kind) -> None:
    noted = Noted()
    proctor = FakeProctor(execute=noted)
    with a_client(kind, proctor) as client, client.sandbox() as sandbox:
        proctor.fail_next(status=429, reason="busy", retry_after_seconds=3)
        proctor.fail_next(reason="draining")
        assert sandbox.exec(["x"]).stdout == "out"
        proctor.fail_next(status=429, reason="busy")
        assert [each.stdout for each in sandbox.stream(["x"])] == ["out", None]
        assert noted.ran == 2
        assert sandbox.exec_stats == wire.ExecStats(total=2, successes=2)
        assert proctor.clock.sleeps[0] == 3.0
        proctor.fail_next(20, status=429, reason="busy")
        with pytest.raises(BusyError):
            sandbox.exec(["x"])
        assert sandbox.exec_stats.errors == 1
    assert noted.ran == 2


def test_output_is_streamed_and_the_result_comes_last(kind: Kind) -> None:
    said = wire.ExecResult(exit_code=3, stdout="out", stderr="err", ending="exited")
    proctor = FakeProctor(execute=lambda sandbox, request: said)
    with a_client(kind, proctor) as client, client.sandbox() as sandbox:
        with sandbox.stream(["x"]) as lines:
            assert next(lines).stdout == "out"
            with pytest.raises(RuntimeError, match="iterate to the end"):
                _ = lines.result
            assert [each.stderr for each in lines] == ["err", None]
            assert lines.result == said
        assert sandbox.exec_stats == wire.ExecStats(total=1, failures=1)


def test_a_stream_raises_a_timeout_after_its_last_line(kind: Kind) -> None:
    half = wire.ExecResult(stdout="half", ending="wall_limit")
    proctor = FakeProctor(execute=lambda sandbox, request: half)
    seen: list[wire.ExecLine] = []
    with a_client(kind, proctor) as client, client.sandbox() as sandbox:
        lines = sandbox.stream(["x"], timeout_seconds=2)
        with pytest.raises(SandboxTimeoutError, match="after 2 seconds") as caught:
            seen.extend(lines)  # takes each as it comes
        assert sandbox.exec_stats.errors == 1
    assert caught.value.result == half


def test_a_stream_left_early_or_never_begun(kind: Kind) -> None:
    noted = Noted()
    proctor = FakeProctor(execute=noted)
    with a_client(kind, proctor) as client, client.sandbox() as sandbox:
        sandbox.stream(["x"]).close()
        assert (noted.ran, sandbox.exec_stats.total) == (0, 0)
        with sandbox.stream(["x"]) as lines:
            next(lines)
        assert sandbox.exec_stats == wire.ExecStats(total=1, errors=1)


class Watching(FakeProctor):
    """Notes how long the client is ready to wait."""

    def __init__(self) -> None:
        super().__init__()
        self.waits: dict[str, float] = {}

    def _note(self, request: httpx.Request) -> None:
        timeout: dict[str, float] = request.extensions["timeout"]
        self.waits[f"{request.method} {request.url.path.rpartition('/')[2]}"] = timeout["read"]

    def handle_request(self, request: httpx.Request) -> httpx.Response:
        self._note(request)
        return super().handle_request(request)

    async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
        self._note(request)
        return await super().handle_async_request(request)


def test_waiting_for_a_core_is_waited_for(kind: Kind) -> None:
    proctor = Watching()
    with a_client(kind, proctor, timeout_seconds=7) as client:
        with client.sandbox(limits={"wall_seconds": 900}) as sandbox:
            sandbox.exec(["x"])
            assert proctor.waits["POST exec"] > 1500
            sandbox.exec(["x"], timeout_seconds=100)
            assert 700 < proctor.waits["POST exec"] < 800
            sandbox.grade({"kind": "exec"})
            assert proctor.waits["POST grade"] > 600
            sandbox.write_file("f", b"")
            assert proctor.waits["PUT f"] == 7
        assert proctor.waits["POST sandboxes"] > 100


# ---------------------------------------------------------------- files, grades


@pytest.mark.parametrize(
    ("path", "known_as"),
    [
        ("a.txt", "a.txt"),
        ("./deep//er/a.txt", "deep/er/a.txt"),
        ("/tmp/a.txt", "/tmp/a.txt"),
        ("//tmp/./a.txt", "/tmp/a.txt"),
        ("ü 100%?#&.txt", "ü 100%?#&.txt"),
        ("%2e%2e/a", "%2e%2e/a"),
        ("...", "..."),
        ("a\nb\\c", "a\nb\\c"),
    ],
)
def test_files_keep_their_bytes_and_their_names(kind: Kind, path: str, known_as: str) -> None:
    proctor = FakeProctor()
    data = bytes(range(256))
    with a_client(kind, proctor) as client, client.sandbox() as sandbox:
        sandbox.write_file(path, data)
        assert proctor.sandboxes[0].files == {known_as: data}
        assert sandbox.read_file(path) == data
        sandbox.write_file(path, "é")
        assert sandbox.read_file(path) == "é".encode()


@pytest.mark.parametrize(
    "path", ["..", "../a", "a/../../sb_other/files/a", "/..", "", "/", "a/", "a/.", "\ud800"]
)
def test_a_path_that_would_go_elsewhere_is_never_sent(kind: Kind, path: str) -> None:
    proctor = FakeProctor()
    with a_client(kind, proctor) as client, client.sandbox() as sandbox:
        for use in (sandbox.read_file, lambda path: sandbox.write_file(path, "x")):
            with pytest.raises(SandboxFileError) as caught:
                use(path)
            assert caught.value.reason == "invalid_request"
        assert len(proctor.requests) == 1


def test_what_goes_wrong_with_a_file(kind: Kind) -> None:
    proctor = FakeProctor()
    with a_client(kind, proctor) as client, client.sandbox() as sandbox:
        with pytest.raises(SandboxFileError, match=r"no file a\.txt") as caught:
            sandbox.read_file("a.txt")
        assert (caught.value.reason, caught.value.status_code) == ("file_not_found", 404)
        proctor.fail_next(status=422, reason="invalid_request", message="it is a directory")
        with pytest.raises(SandboxFileError, match="it is a directory") as caught:
            sandbox.write_file("a", b"")
        assert (caught.value.reason, caught.value.status_code) == ("invalid_request", 422)
        with pytest.raises(SandboxFileError, match="surrogate"):
            sandbox.write_file("a", "\ud800")
        with pytest.raises(TypeError):
            sandbox.write_file("a", 3)
        assert proctor.sandboxes[0].files == {}


def test_files_are_tried_again(kind: Kind) -> None:
    proctor = FakeProctor()
    with a_client(kind, proctor) as client, client.sandbox() as sandbox:
        proctor.drop_next(2)
        sandbox.write_file("a", b"1")
        proctor.drop_next()
        proctor.fail_next()
        assert sandbox.read_file("a") == b"1"
    assert {each.idempotency_key for each in proctor.requests[1:]} == {None}


def test_a_grade_is_a_result_like_any_other(kind: Kind) -> None:
    seen: list[wire.Submission] = []

    def judge(submission: wire.Submission) -> float:
        seen.append(submission)
        return 0.5

    proctor = FakeProctor(judge)
    grader = {"kind": "asserts", "tests": ["assert f() == 1"]}
    with a_client(kind, proctor) as client, client.sandbox() as sandbox:
        sandbox.write_file("solution.py", "def f(): return 1")
        proctor.drop_next()
        result = sandbox.grade(grader, scoring="fraction", limits={"cpu_seconds": 1})
        assert (result.reward, result.sandbox_id) == (0.5, sandbox.id)
        assert seen[-1].completion == "def f(): return 1"
        assert seen[-1].grader == wire.AssertsGrader(kind="asserts", tests=["assert f() == 1"])
        assert bodies(proctor)[-1] == {
            "grader": grader,
            "scoring": "fraction",
            "limits": {"cpu_seconds": 1},
        }
        with pytest.raises(InvalidRequestError, match="grader"):
            sandbox.grade({"kind": "vibes"})


def test_a_grade_that_could_not_be_given_is_data(kind: Kind) -> None:
    error = wire.ItemError(reason="judge_failed", message="no", retryable=True)
    proctor = FakeProctor(lambda submission: error)
    with a_client(kind, proctor) as client, client.sandbox() as sandbox:
        result = sandbox.grade({"kind": "exec"})
    assert (result.reward, result.verdict, result.error) == (None, None, error)


# ---------------------------------------------------------------- many, and those of others


def test_finding_counting_and_stopping_by_tags(kind: Kind) -> None:
    proctor = FakeProctor()
    with a_client(kind, proctor) as client:
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
def test_everything_is_never_stopped_by_mistake(kind: Kind, tags: Any) -> None:
    proctor = FakeProctor()
    with a_client(kind, proctor) as client, pytest.raises((InvalidRequestError, TypeError)):
        client.stop_sandboxes(tags)
    assert proctor.requests == []


def test_one_made_elsewhere_is_used_and_outlives_the_block(kind: Kind) -> None:
    proctor = FakeProctor()
    with a_client(kind, proctor) as client:
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
def test_an_id_that_would_be_another_route(kind: Kind, sandbox_id: str) -> None:
    proctor = FakeProctor()
    with a_client(kind, proctor) as client, pytest.raises(InvalidRequestError, match="sandbox_id"):
        client.attach(sandbox_id)


def test_a_handle_says_what_it_is(kind: Kind) -> None:
    name = "Sandbox" if kind == "threads" else "AsyncSandbox"
    with a_client(kind, FakeProctor()) as client:
        sandbox = client.sandbox()
        assert repr(sandbox) == f"{name}('not started', pending)"
        with sandbox:
            assert repr(sandbox) == f"{name}('sb_fake_0', running)"
