"""Commands through handles of both kinds, against the fake service."""

from __future__ import annotations

from typing import Any

import pytest
from client_blocking import Kind, a_client
from client_requests import Watching, bodies

from proctor_client import (
    BusyError,
    InvalidRequestError,
    ProctorConnectionError,
    SandboxLostError,
    SandboxTimeoutError,
    wire,
)
from proctor_client.testing import Executed, FakeProctor, FakeSandbox


def test_commands_arrive_as_meant(proctor: FakeProctor, client: Any) -> None:
    with client.sandbox() as sandbox:
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
def test_a_command_at_fault_is_refused_here(
    proctor: FakeProctor, client: Any, args: dict[str, Any], named: str
) -> None:
    with client.sandbox() as sandbox:
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
        assert sandbox.execution_stats == sandbox.exec_stats


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
            limits = {"cpu_seconds": 100, "wall_seconds": 900}
            sandbox.grade({"kind": "repository", "test": "make test"}, limits=limits)
            assert proctor.waits["POST grade"] > 600 + 2 * 1000
            sandbox.write_file("f", b"")
            assert proctor.waits["PUT f"] == 7
        assert proctor.waits["POST sandboxes"] > 100
