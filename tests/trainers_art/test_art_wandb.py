"""The real wandb, offline: what sessions and reward calls report is read back from its file."""

from __future__ import annotations

import asyncio
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import art
import pytest
import wandb
from art_playing import order, problems
from wandb_files import history

from proctor_client import Session, wire
from proctor_client.testing import Executed, FakeProctor, FakeSandbox
from proctor_trainers.art.memory import MemoryBackend
from proctor_trainers.art.training import TrainingLoop, TrainingPlan
from proctor_trainers.rewards import Rewards, Settings, Trainer, judge
from proctor_trainers.trl import reward_function


@pytest.fixture
def run(tmp_path: Path) -> Iterator[Any]:
    """The active run; finished by the test."""
    active = wandb.init(dir=tmp_path, settings=wandb.Settings(silent=True))
    try:
        yield active
    finally:
        wandb.teardown()


def written(tmp_path: Path) -> list[dict[str, Any]]:
    """What is in the file, without what W&B adds, once all of it is there."""
    wandb.finish()
    wandb.teardown()  # a process of its own writes, and goes on for a while after the run's end
    own = ("_runtime", "_timestamp")
    return [
        {name: value for name, value in row.items() if name not in own} for row in history(tmp_path)
    ]


def ten_names(row: dict[str, Any]) -> list[float]:
    """Take out the counts of the W&B guide, in its order."""
    rates = ("success_rate", "error_rate")
    each = (f"{which}_execs_per_sandbox" for which in ("avg", "min", "max"))
    counts = ("sandboxes_created", "executions", "exec_successes", "exec_failures", "exec_errors")
    return [row.pop(f"aviato/{name}") for name in (*counts, *rates, *each)]


def execute(sandbox: FakeSandbox, request: wire.ExecRequest) -> Executed:
    assert request.command is not None
    return int(request.command[0])


def judged(submission: wire.Submission) -> wire.ItemError | str:
    if submission.completion == "lost":
        return wire.ItemError(reason="sandbox_lost", message="gone", retryable=True)
    return str(submission.completion)


def test_a_session_beside_a_trainer_that_logs(run: Any, tmp_path: Path) -> None:
    """Two steps; the sandbox after them comes late for the second, whose row is still open."""
    proctor = FakeProctor(execute=execute)
    with proctor.client() as client, Session(client, report_to=["wandb"]) as session:
        for step in (0, 1):
            for sandbox in session.start(2):
                sandbox.exec(["0"])
                sandbox.exec(["1"])
            run.log({"train/loss": 0.5 + step}, step=step)
            assert session.log_metrics(step=step)
        assert session.execution_stats == {}
        session.start()
    counts = {
        "sandboxes_created": 2,
        "executions": 4,
        "exec_successes": 2,
        "exec_failures": 2,
        "exec_errors": 0,
        "success_rate": 0.5,
        "error_rate": 0.0,
        "avg_execs_per_sandbox": 2.0,
        "min_execs_per_sandbox": 2,
        "max_execs_per_sandbox": 2,
    }
    first = {f"aviato/{name}": value for name, value in counts.items()}
    assert written(tmp_path) == [
        {"_step": 0, "train/loss": 0.5, **first},
        {"_step": 1, "train/loss": 1.5, **first, "aviato/sandboxes_created": 3},
    ]


def test_metrics_of_a_step_that_is_past_are_not_lost(run: Any, tmp_path: Path) -> None:
    with FakeProctor(execute=execute).client() as client, Session(client) as session:
        [sandbox] = session.start()
        sandbox.exec(["0"])
        for _ in range(5):
            run.log({"train/loss": 1.0})
        assert session.log_metrics(step=2)
    [row] = [row for row in written(tmp_path) if "aviato/executions" in row]
    assert row["aviato/executions"] == 1
    assert row["aviato/step"] == 2
    assert row["_step"] >= 5


@pytest.mark.parametrize("numbers_rows", [True, False])
def test_no_row_of_the_trainer_is_lost(run: Any, tmp_path: Path, numbers_rows: bool) -> None:
    """Two reward calls and a session for each; a row of ours would have taken the trainer's place."""
    proctor = FakeProctor(execute=execute)
    with proctor.client() as client:
        reward = reward_function(client=client, grader={"kind": "exec"}, report_to=["wandb"])
        for step in range(3):
            reward(prompts=["p"], completions=["x"])
            reward(prompts=["p"], completions=["y"])
            with Session(client) as session:
                session.start()
            run.log({"train/loss": 0.5 + step}, step=step if numbers_rows else None)
    rows = written(tmp_path)
    assert [row["_step"] for row in rows] == [0, 1, 2]
    assert [row["train/loss"] for row in rows] == [0.5, 1.5, 2.5]
    # A row with a number is open until the next one: there ours come a row early.
    for row in rows[:2] if numbers_rows else rows:
        assert row["aviato/pass_rate"] == 1.0
        assert row["aviato/sandboxes_created"] == 1


def test_a_session_under_another_prefix_and_one_that_never_reports(
    run: Any, tmp_path: Path
) -> None:
    proctor = FakeProctor(execute=execute)
    with proctor.client() as client:
        with Session(client, metrics_prefix="proctor/") as session:
            session.start(1)
        with Session(client, report_to=[]) as session:
            session.start(2)
    [row] = written(tmp_path)
    assert row["proctor/sandboxes_created"] == 1
    assert not [name for name in row if name.startswith("aviato/")]


def test_a_run_that_is_finished_is_no_run() -> None:
    proctor = FakeProctor(execute=execute)
    with proctor.client() as client, Session(client) as session:
        session.start()
        assert not session.log_metrics(step=1)
        assert session.stats.sandboxes_created == 1


def test_reward_calls_report_their_rates(run: Any, tmp_path: Path) -> None:
    with FakeProctor(judged).client() as client:
        reward = reward_function(client=client, grader={"kind": "exec"}, report_to=["wandb"])
        completions = ["passed", "failed", "no_code", "passed", "lost"]
        rewards = reward(prompts=["p"] * 5, completions=completions)
        assert rewards[:4] == [1.0, 0.0, 0.0, 1.0]
        run.log({})  # the trainer's row
        reward(prompts=["p"] * 2, completions=["lost", "lost"], log_metric=print)
    first, second = written(tmp_path)
    assert first.pop("aviato/latency_seconds") > 0
    assert ten_names(first) == [4, 4, 2, 1, 1, 0.5, 0.25, 1, 1, 1]
    assert first == {
        "_step": 0,
        "aviato/pass_rate": 0.5,
        "aviato/no_code_rate": 0.25,
        "aviato/hack_signal_rate": 0.0,
        "aviato/unavailable_rate": 0.2,
    }
    assert second.pop("aviato/latency_seconds") > 0
    assert ten_names(second) == [2, 2, 0, 0, 2, 0.0, 1.0, 1, 1, 1]
    assert second == {"_step": 1, "aviato/unavailable_rate": 1.0}


@pytest.mark.parametrize(
    ("report_to", "lends", "count"),
    [(None, False, 1), (None, True, 0), ([], False, 0), (["wandb"], True, 1)],
)
def test_a_trainer_that_logs_metrics_itself_gets_them_first(
    run: Any, tmp_path: Path, report_to: Any, lends: bool, count: int
) -> None:
    lent: dict[str, float] = {}
    trainer = Trainer(log_metric=lent.__setitem__ if lends else None)
    options: Any = {"grader": {"kind": "exec"}}
    rewards = Rewards(Settings(say=None, report_to=report_to, options=options))
    with FakeProctor().client() as client:
        batch = rewards.begin(["x"], {})
        rewards.end(batch, judge(client, batch), trainer)
    run.log({"last": 1})
    rows = [row for row in written(tmp_path) if "aviato/pass_rate" in row]
    assert len(rows) == count
    assert (lent.get("proctor/pass_rate") == 1.0) is lends


def test_art_logs_a_training_to_a_run_of_its_own(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("WANDB_API_KEY", "0" * 40)
    monkeypatch.setenv("WANDB_SILENT", "true")

    def rolled_out(task: wire.RolloutTask, index: int) -> str | wire.ItemError:
        if index == 3:
            return wire.ItemError(reason="deadline", message="late", retryable=True)
        return ("passed", "failed", "no_code")[index]

    async def train() -> None:
        backend = MemoryBackend()
        model = art.TrainableModel(name="run-7", project="p", base_model="none")
        await model.register(backend)
        plan = TrainingPlan(order=order(), num_steps=2, batch_size=4, learning_rate=1e-5)
        async with FakeProctor(roll_out=rolled_out).async_client() as client:
            policy = {"base_url": "http://policy/v1", "model": "m"}
            loop = TrainingLoop(plan, problems(), model, backend, client, lambda: policy)
            await loop.run()

    asyncio.run(train())
    first, second = written(tmp_path)
    assert [first["training_step"], second["training_step"]] == [1, 2]
    assert first["train/reward"] == pytest.approx(1 / 3)
    assert first["train/proctor/pass_rate"] == pytest.approx(1 / 3)
    assert first["train/proctor/no_code_rate"] == pytest.approx(1 / 3)
    assert first["train/proctor/unavailable_rate"] == 0.25
    assert "W&B run: " in capsys.readouterr().out
    problem_count = len(problems())
    assert first["aviato/sandboxes_created"] == 4 * problem_count == first["aviato/executions"]
    assert ten_names(first) == ten_names(second)


def test_the_client_imports_no_wandb_by_itself() -> None:
    program = (
        "import sys; from proctor_client import Session; from proctor_client.testing import *\n"
        "with FakeProctor().client() as client, Session(client) as session:\n"
        "    session.start(); session.log_metrics(step=1)\n"
        "assert 'wandb' not in sys.modules"
    )
    subprocess.run([sys.executable, "-c", program], check=True)
