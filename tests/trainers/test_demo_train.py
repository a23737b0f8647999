"""The training that one can watch: its reward rises, and only judged completions teach."""

from __future__ import annotations

import math
import subprocess
import sys
from collections.abc import Sequence

import pytest
from harness import Service
from waits import WAIT_SECONDS

from proctor_client import Client, ProctorError
from proctor_client.testing import FakeProctor
from proctor_trainers import demo_train
from proctor_trainers.demo_train import Step, plot, summary, train
from proctor_trainers.tiny_policy import STYLES, TASKS, Sample, TinyPolicy


@pytest.mark.slow
@pytest.mark.parametrize("seed", [1, 2, 3])
def test_the_reward_rises(service: Service, seed: int) -> None:
    with Client(service.url) as client:
        done = train(
            client, steps=60, group_size=8, seed=seed, job="demo-train", say=lambda _: None
        )
    first, last = done[:6], done[-6:]
    assert sum(step.reward for step in last) / 6 >= sum(step.reward for step in first) / 6 + 0.3
    assert all(step.unjudged == 0 and step.judged == 64 for step in done)
    assert last[-1].cheating_share < 0.2 < done[0].cheating_share


@pytest.mark.slow
def test_every_way_to_cheat_gets_nothing(service: Service) -> None:
    task = TASKS[0]
    texts = [style.format(name=task.name, expression="a + b") for style in STYLES]
    with Client(service.url) as client:
        results = client.reward(
            texts, grader={"kind": "asserts", "tests": list(task.tests)}
        ).results
    assert [each.reward for each in results] == [1.0, *[0.0] * (len(STYLES) - 1)]


@pytest.mark.slow
def test_the_script_at_a_service(service: Service) -> None:
    done = _script("--url", service.url, "--steps", "3", "--group-size", "2")
    assert done.returncode == 0, done.stderr
    assert f"Charts: {service.url}/console/jobs/demo-train-" in done.stdout
    assert "48 completions were judged." in done.stdout
    assert done.stderr == ""


@pytest.mark.parametrize("steps", ["0", "-1", "ten", "1.5"])
def test_a_wrong_number_of_steps_is_told(steps: str) -> None:
    done = _script(f"--steps={steps}")
    assert done.returncode == 2
    assert "--steps: expected a whole number from 1 to 10000" in done.stderr


def test_no_service() -> None:
    done = _script("--url", "http://127.0.0.1:1", "--steps", "1")
    assert done.returncode == 1
    assert done.stderr.startswith("error: no service at http://127.0.0.1:1")
    assert "Traceback" not in done.stderr


def _script(*arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-W", "error", "-m", demo_train.__name__, *arguments]
    return subprocess.run(
        command, capture_output=True, text=True, timeout=WAIT_SECONDS, check=False
    )


# ---------------------------------------------------------------- what teaches


def choices_of(policy: TinyPolicy, count: int = 200) -> Sequence[Sample]:
    return [policy.sample(TASKS[0]) for _ in range(count)]


def test_unjudged_completions_teach_nothing() -> None:
    taught, untaught = (TinyPolicy(TASKS, learning_rate=5.0, seed=1) for _ in range(2))
    group = [Sample((0, 0, 0, 1), ""), Sample((0, 1, 1, 1), ""), Sample((1, 2, 2, 2), "")]
    taught.learn(TASKS[0], group, [None, None, None])
    taught.learn(TASKS[0], group, [1.0, 1.0, None])  # those that are left tie
    assert choices_of(taught) == choices_of(untaught)


def test_a_reward_makes_a_choice_likelier_for_its_task_alone() -> None:
    policy = TinyPolicy(TASKS, learning_rate=5.0, seed=1)
    good, bad = Sample((0, 0, 0, 1), ""), Sample((0, 1, 1, 2), "")
    for _ in range(20):
        policy.learn(TASKS[0], [good, bad], [1.0, 0.0])
    mine = [policy.sample(TASKS[0]).choices for _ in range(100)]
    others = [policy.sample(TASKS[1]).choices for _ in range(100)]
    assert sum(each[1:] == (0, 0, 1) for each in mine) > 90
    assert sum(each[1:] == (0, 0, 1) for each in others) < 20


def test_a_service_that_cannot_judge_is_no_reward() -> None:
    fake = FakeProctor()
    fake.fail_next(1000)
    with fake.client() as client, pytest.raises(ProctorError):
        train(client, steps=1, group_size=2, seed=1, job="job", say=lambda _: None)


# ---------------------------------------------------------------- what one sees


def test_the_plot_rises_with_the_rewards() -> None:
    lines = plot([0.0, 0.5, 1.0])
    assert lines[0] == " 1.0 │  █"
    assert lines[4] == "     │  █"
    assert lines[5] == "     │ ██"
    assert lines[9] == " 0.0 │ ██"
    assert lines[-1].strip() == "mean reward of each step, 1 to 3"


def test_steps_without_a_reward_are_left_out() -> None:
    steps = [Step(0.25, 0.0, 4, 0), Step(math.nan, 0.0, 0, 4), Step(0.75, 0.0, 4, 0)]
    assert "0.250 in the first tenth of the steps, 0.750 in the last. 8 " in summary(steps)
    assert len(plot([step.reward for step in steps])[0]) <= len(" 1.0 │") + 2
    assert summary([Step(math.nan, 0.0, 0, 4)]) == "No completion was judged."
    assert plot([math.nan])
