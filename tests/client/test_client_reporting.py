"""What a session reports to W&B and when, with a stand-in for the package.

That the real one takes it is tested where it is installed: tests/trainers_art/test_art_wandb.py.
"""

from __future__ import annotations

import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
from client_blocking import Kind, a_client, a_session

from proctor_client import SandboxTimeoutError, wire
from proctor_client.reporting import Reporter
from proctor_client.testing import Executed, FakeProctor, FakeSandbox

Logged = list[tuple[dict[str, Any], int | None]]


class Run:
    """Keeps what is logged. Its history goes on as the real one's does."""

    def __init__(self) -> None:
        self.step = 0
        self.logged: Logged = []
        self.error: Exception | None = None

    def log(
        self, data: dict[str, Any], *, step: int | None = None, commit: bool | None = None
    ) -> None:
        if self.error is not None:
            raise self.error
        self.logged.append((data, step))
        self.step = self.step if step is None else step
        self.step += step is None if commit is None else commit


@pytest.fixture
def run(monkeypatch: pytest.MonkeyPatch) -> Run:
    """The active run of a package that the process has imported."""
    active = Run()
    package = ModuleType("wandb")
    vars(package).update(run=active, init=lambda: None)
    monkeypatch.setitem(sys.modules, "wandb", package)
    return active


def execute(sandbox: FakeSandbox, request: wire.ExecRequest) -> Executed:
    """`hang` is ended at its limit; any other word is the exit code."""
    assert request.command is not None
    if request.command[0] == "hang":
        return wire.ExecResult(ending="wall_limit")
    return int(request.command[0])


def work(session: Any) -> tuple[Any, Any]:
    """Three executions in one sandbox and one in another; a third one is not used."""
    used, little_used, _ = session.start(3)
    for word in ("0", "1"):
        used.exec([word])
    with pytest.raises(SandboxTimeoutError):
        used.exec(["hang"])
    little_used.exec(["0"])
    return used, little_used


WORK = {
    "sandboxes_created": 3,
    "executions": 4,
    "exec_successes": 2,
    "exec_failures": 1,
    "exec_errors": 1,
    "success_rate": 0.5,
    "error_rate": 0.25,
    "avg_execs_per_sandbox": 2.0,
    "min_execs_per_sandbox": 1,
    "max_execs_per_sandbox": 3,
}


def named(metrics: dict[str, Any], prefix: str = "aviato/") -> dict[str, Any]:
    return {f"{prefix}{name}": value for name, value in metrics.items()}


def test_a_session_reports_by_itself_and_once_more_at_its_end(kind: Kind, run: Run) -> None:
    proctor = FakeProctor(execute=execute)
    with a_client(kind, proctor) as client:
        with a_session(client) as session:
            used, _ = work(session)
            assert session.log_metrics(step=3)
            assert session.stats.executions == 0
            run.log({"train/loss": 0.5})
            used.exec(["0"])
        session.close()
        assert session.stats.executions == 1
    [first, _, last] = run.logged
    assert first == (named(WORK), 3)
    assert last[0]["aviato/executions"] == last[0]["aviato/min_execs_per_sandbox"] == 1
    assert last[0]["aviato/sandboxes_created"] == 0
    assert last[1] is None


def test_what_comes_late_for_a_step_is_told_with_what_was_told_of_it(kind: Kind, run: Run) -> None:
    """For the same step W&B puts a later value in the place of an earlier one."""
    with a_client(kind, FakeProctor(execute=execute)) as client:
        with a_session(client) as session:
            used, _ = work(session)
            for _ in range(3):
                assert session.log_metrics(step=3)
                used.exec(["0"])
        assert session.stats.executions == 1
    assert [step for _, step in run.logged] == [3, 3, 3, 3]
    assert [data["aviato/executions"] for data, _ in run.logged] == [4, 5, 6, 7]
    assert {data["aviato/sandboxes_created"] for data, _ in run.logged} == {3}


def test_the_end_of_a_session_counts_what_it_broke_off(kind: Kind, run: Run) -> None:
    def broken_off(client: Any) -> None:
        with a_session(client, report_to=["wandb"], metrics_prefix="proctor/") as session:
            work(session)
            raise ZeroDivisionError

    with a_client(kind, FakeProctor(execute=execute)) as client, pytest.raises(ZeroDivisionError):
        broken_off(client)
    assert run.logged == [(named(WORK, "proctor/"), None)]


def test_counts_that_are_not_reset_are_told_again(kind: Kind, run: Run) -> None:
    with a_client(kind, FakeProctor(execute=execute)) as client, a_session(client) as session:
        work(session)
        assert session.log_metrics(reset=False)
    assert [data for data, _ in run.logged] == [named(WORK)] * 2


def test_a_session_that_is_not_to_report_does_not(kind: Kind, run: Run) -> None:
    with a_client(kind, FakeProctor(execute=execute)) as client:
        with a_session(client, report_to=[]) as session:
            work(session)
            assert not session.log_metrics(step=1)
        assert session.stats.executions == 4
    assert run.logged == []


def test_a_session_that_did_nothing_has_nothing_to_report(kind: Kind, run: Run) -> None:
    with a_client(kind, FakeProctor()) as client, a_session(client) as session:
        assert not session.log_metrics(step=1)
    assert run.logged == []


def test_sandboxes_without_executions_have_no_rates(run: Run) -> None:
    with a_client("threads", FakeProctor()) as client, a_session(client) as session:
        session.start(2)
    counts = {name: 0 for name in WORK if name.startswith("exec")}
    assert run.logged == [(named({"sandboxes_created": 2, **counts}), None)]


def test_without_wandb_nothing_is_imported_and_nothing_lost(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.delitem(sys.modules, "wandb", raising=False)
    with a_client("threads", FakeProctor(execute=execute)) as client, a_session(client) as session:
        work(session)
        assert not session.log_metrics(step=1)
        assert session.stats.executions == 4
        assert "wandb" not in sys.modules
    assert caplog.records == []


def test_a_run_that_begins_later_gets_what_was_done_before(run: Run) -> None:
    package = vars(sys.modules["wandb"])
    package["run"] = None
    with a_client("threads", FakeProctor(execute=execute)) as client, a_session(client) as session:
        work(session)
        assert not session.log_metrics()
        package["run"] = run
        assert session.log_metrics()
    assert run.logged == [(named(WORK), None)]


def test_who_asked_for_reports_is_told_that_there_is_no_run(
    run: Run, caplog: pytest.LogCaptureFixture
) -> None:
    vars(sys.modules["wandb"])["run"] = None
    assert not Reporter(["wandb"]).report({"a": 1.0})
    assert "no active wandb run" in caplog.text


def test_what_goes_wrong_in_wandb_ends_nothing_and_the_counts_go_on(
    run: Run, caplog: pytest.LogCaptureFixture
) -> None:
    run.error = RuntimeError("the run is finished")
    with a_client("threads", FakeProctor(execute=execute)) as client, a_session(client) as session:
        work(session)
        assert not session.log_metrics()
        assert "the run is finished" in caplog.text
        run.error = None
    assert run.logged == [(named(WORK), None)]


def test_metrics_for_a_step_that_is_past_go_to_the_next(run: Run) -> None:
    run.step = 7
    reporter = Reporter(prefix="p/")
    assert reporter.report({"a": 1.0}, step=6)
    assert reporter.report({"a": 2.0}, step=8)
    assert run.logged == [({"p/a": 1.0, "p/step": 6}, None), ({"p/a": 2.0}, 8)]


@pytest.mark.parametrize("names", [["tensorboard"], ["wandb", "x"], "x"])
def test_there_is_nothing_else_to_report_to(run: Run, names: Any) -> None:
    with a_client("threads", FakeProctor()) as client, pytest.raises(ValueError, match="report_to"):
        a_session(client, report_to=names)


def test_a_package_that_is_missing_shows_at_once(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setitem(sys.modules, "wandb", None)
    with pytest.raises(ModuleNotFoundError, match="wandb"):
        Reporter(["wandb"])
    monkeypatch.delitem(sys.modules, "wandb")
    (tmp_path / "wandb").mkdir()  # as an offline run leaves it in the working directory
    monkeypatch.setattr(sys, "path", [str(tmp_path)])
    with pytest.raises(ModuleNotFoundError, match="wandb is not installed"):
        Reporter(["wandb"])
    monkeypatch.delitem(sys.modules, "wandb")
