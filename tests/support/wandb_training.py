"""A training that reports to an offline W&B run, and the rows that W&B has then."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import pytest
import wandb
from grpo_training import ROWS, some_fail, trained
from wandb_files import history

from proctor_client.testing import FakeProctor
from proctor_trainers.trl import reward_function

STEPS = 3
NAMES = frozenset(
    f"aviato/{name}"
    for name in (
        "sandboxes_created", "executions", "exec_successes", "exec_failures", "exec_errors",
        "success_rate", "error_rate", "avg_execs_per_sandbox", "min_execs_per_sandbox",
        "max_execs_per_sandbox",
    )
)  # fmt: skip


def check_that_each_step_is_one_row(
    tokenizer: Any, folder: Path, monkeypatch: pytest.MonkeyPatch, **options: Any
) -> None:
    """Train, and compare the rows that the trainer's own callback of W&B has written."""
    monkeypatch.setenv("WANDB_MODE", "offline")
    monkeypatch.setenv("WANDB_DIR", str(folder))
    monkeypatch.setenv("WANDB_SILENT", "true")
    with FakeProctor(some_fail).client() as client:
        reward = reward_function(client=client, grader={"kind": "exec"})
        report = {"report_to": ["wandb"]}
        run = trained(ROWS, tokenizer, steps=STEPS, config=report, reward_funcs=[reward], **options)
        with run as (_, steps):
            wandb.finish()
            wandb.teardown()  # a process of its own writes, and goes on after the run's end
    rows = history(folder)
    counted = [row for row in rows if NAMES & row.keys()]
    # TRL commits several rows for each step, its timings among them, with the steps done before.
    assert [row["train/global_step"] for row in counted] == list(range(STEPS))
    rated = {row["train/global_step"]: row for row in rows if "train/proctor/pass_rate" in row}
    for number, (row, step) in enumerate(zip(counted, steps, strict=True), 1):
        assert row.keys() >= NAMES
        judged = [each for each in step.rewards if not math.isnan(each)]
        assert row["aviato/executions"] == len(step.rewards) == row["aviato/sandboxes_created"]
        assert row["aviato/exec_successes"] == sum(judged)
        assert row["aviato/exec_errors"] == len(step.rewards) - len(judged)
        assert rated[number]["train/proctor/pass_rate"] == pytest.approx(sum(judged) / len(judged))
