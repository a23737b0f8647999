"""The loop, with a real service and a policy that is known: what reaches `backend.train`."""

from __future__ import annotations

import asyncio
import importlib.util
import json
import re
from pathlib import Path

import art
import pytest
from art_playing import check_trajectory, fate_in, problems, training
from art_students import FATES, Student
from policy_server import PolicyServer, policy_server
from recorded_steps import recorded_steps
from service_process import ServiceProcess

from proctor_client import Client
from proctor_trainers.art.memory import MemoryBackend
from proctor_trainers.art.training import TrainingLoop


def test_a_trainer_holds_nothing_of_the_service() -> None:
    assert importlib.util.find_spec("proctor_service") is None
    assert importlib.util.find_spec("torch") is None


def test_the_memory_backend_has_what_art_asks_of_a_backend() -> None:
    wanted = {name for name in vars(art.Backend) if callable(getattr(art.Backend, name))}
    wanted = {name for name in wanted if not name.startswith("__")}
    assert "train" in wanted
    assert not wanted - set(dir(MemoryBackend))


def test_what_reaches_the_backend_is_complete_and_worth_what_it_says(
    service: ServiceProcess, capsys: pytest.CaptureFixture[str]
) -> None:
    """Three steps, four problems, four trajectories each; one rollout of the second step fails."""
    student = Student(lambda number: "broken" if number == 21 else FATES[number % 4])

    async def train(policy: PolicyServer) -> tuple[TrainingLoop, MemoryBackend]:
        async with training(service.url, policy.url) as (loop, backend):
            await loop.run()
            return loop, backend

    with Client(service.url) as client, policy_server(student.answer) as policy:
        loop, backend = asyncio.run(train(policy))
        assert client.count_active().total == 0
        check_tags(client)
    assert [each.step for each in backend.trained] == [1, 2, 3]
    assert all(each.options == {"learning_rate": 1e-5} for each in backend.trained)
    for trained in backend.trained:
        assert len(trained.groups) == 4
        ids = [group.metadata["scenario_id"] for group in trained.groups]
        assert ids == [problem.id for problem in problems()]
        for group, problem in zip(trained.groups, problems(), strict=True):
            for trajectory in group.trajectories:
                check_trajectory(trajectory, student)
                assert trajectory.metadata["task_id"] == problem.id
                assert problem.text in trajectory.messages_and_choices[1]["content"]
    counts = [sum(map(len, each.groups)) for each in backend.trained]
    assert counts == [16, 15, 16]
    failed = [error for group in backend.trained[1].groups for error in group.exceptions]
    assert ["policy_unavailable" in error.message for error in failed] == [True]
    rewards = [each.reward for step in backend.trained for group in step.groups for each in group]
    assert loop.summary.trajectories == len(rewards) == 47
    assert loop.summary.successful == sum(rewards)
    check_output(capsys.readouterr().out)
    check_log()


def test_right_and_wrong_rollouts(service: ServiceProcess) -> None:
    """64 rollouts that solve their problem, and 64 that do not."""
    student = Student(lambda number: "right" if number % 2 == 0 else "wrong")

    async def train(policy: PolicyServer) -> MemoryBackend:
        run = training(service.url, policy.url, trajectories=32, num_steps=1)
        async with run as (loop, backend):
            await loop.run()
            return backend

    with policy_server(student.answer) as policy:
        [trained] = asyncio.run(train(policy)).trained
    rewards = [(fate_in(each), each.reward) for group in trained.groups for each in group]
    assert sorted(rewards) == [("right", 1.0)] * 64 + [("wrong", 0.0)] * 64


def check_tags(client: Client) -> None:
    """Each sandbox has the tags of its problem."""
    for problem in problems():
        tags = ["art-training", "art-rollout", "proctor-tests", "run-7", "job-0a1b2c3d"]
        found = client.sandboxes(tags=[*tags, f"problem-{problem.id}"])
        assert found
        assert all(sum(tag.startswith("problem-") for tag in each.tags) == 1 for each in found)


def check_output(out: str) -> None:
    lines = [line for line in out.splitlines() if line.startswith("Step ")]
    assert len(lines) == 3
    form = r"Step (\d): reward=0\.500, success=50\.0% \(8/16\), time=\d+\.\ds"
    assert re.fullmatch(form, lines[0])
    assert re.fullmatch(form, lines[2])
    assert re.fullmatch(
        r"Step 2: reward=0\.\d{3}, success=\d\d\.\d% \(\d/15\), time=\d+\.\ds, 1 unavailable",
        lines[1],
    )


def check_log() -> None:
    """What ART's own log has of it."""
    history = Path(".art/proctor-tests/models/run-7/history.jsonl").read_text().splitlines()
    rows = [json.loads(line) for line in history]
    assert [row["step"] for row in rows] == [1, 2, 3]
    assert rows[0]["train/reward"] == 0.5
    assert rows[0]["train/proctor/pass_rate"] == 0.5
    assert rows[0]["train/proctor/no_code_rate"] == 0.0
    assert rows[0]["train/proctor/unavailable_rate"] == 0.0
    assert rows[1]["train/proctor/unavailable_rate"] == pytest.approx(1 / 16)
    assert rows[1]["train/exception_rate"] == pytest.approx(1 / 16)


def test_the_journal_has_the_step_of_each_rollout(tmp_path: Path) -> None:
    path = tmp_path / "journal.db"
    student = Student(lambda number: "right")

    async def train(service_url: str, policy_url: str) -> None:
        async with training(service_url, policy_url, num_steps=2) as (loop, _):
            await loop.run()

    with ServiceProcess(PROCTOR_JOURNAL=f"sqlite:///{path}") as service:
        with policy_server(student.answer) as policy:
            asyncio.run(train(service.url, policy.url))
        assert recorded_steps(service.url, path, "rollouts") == {1: 16, 2: 16}
        assert recorded_steps(service.url, path) == {1: 16, 2: 16}
