"""What goes wrong around the loop: no reward is made up, and nothing is left at the service."""

from __future__ import annotations

import asyncio
import logging
import threading
from collections.abc import Callable

import pytest
from art_playing import check_trajectory, fate_in, outcomes, problems, training, until
from art_students import FATES, WORTH, Student
from policy_server import Act, Asked, PolicyServer, policy_server
from service_process import ServiceProcess
from waits import WAIT_SECONDS

from proctor_client import Client, wire
from proctor_trainers.art.memory import MemoryBackend
from proctor_trainers.art.training import Summary, TooManyFailures
from proctor_trainers.art.trajectories import RolloutFailed, trajectory_of


def train(
    service: ServiceProcess,
    policy: PolicyServer,
    *,
    max_exceptions: float = 0.25,
    num_steps: int = 3,
    retry_seconds: float = 30.0,
    said: list[str] | None = None,
) -> tuple[Summary, MemoryBackend, Exception | None]:
    """A run to its end, whatever that is."""
    backend = MemoryBackend()

    async def run() -> tuple[Summary, Exception | None]:
        async with training(
            service.url,
            policy.url,
            backend=backend,
            max_exceptions=max_exceptions,
            num_steps=num_steps,
            retry_seconds=retry_seconds,
            say=(said if said is not None else []).append,
        ) as (loop, _):
            try:
                await loop.run()
            except TooManyFailures as failure:
                return loop.summary, failure
            return loop.summary, None

    summary, failure = asyncio.run(run())
    return summary, backend, failure


def nothing_left(client: Client) -> bool:
    return client.count_active().total == 0


def test_too_many_failures_end_the_training_and_what_is_under_way(service: ServiceProcess) -> None:
    """A quarter may fail, and five of sixteen do; six never come to an end."""
    student = Student(
        lambda number: "broken" if number < 5 else "endless" if number < 11 else "right"
    )
    with Client(service.url) as client, policy_server(student.answer) as policy:
        summary, backend, failure = train(service, policy)
        until(lambda: outcomes(service.url).total() == 16)
        assert outcomes(service.url)["cancelled"] >= 6
        until(lambda: nothing_left(client))
    assert "more than 25% of 16 rollouts failed: policy_unavailable" in str(failure)
    assert backend.trained == []
    assert summary == Summary()


def test_steps_without_any_reward_train_nothing_where_that_is_tolerable(
    service: ServiceProcess, caplog: pytest.LogCaptureFixture
) -> None:
    student = Student(lambda number: "broken" if number < 16 else "right")
    said: list[str] = []
    with policy_server(student.answer) as policy:
        summary, backend, failure = train(
            service, policy, max_exceptions=1.0, num_steps=2, said=said
        )
    assert failure is None
    assert [len(each.groups) for each in backend.trained] == [4]
    assert (summary.trajectories, summary.successful, summary.steps) == (16, 16, 2)
    assert said[0].startswith("Step 1: no rollout was judged, time=")
    assert said[0].endswith(", 16 unavailable")
    assert "step 1: 16 of 16 rollouts failed: policy_unavailable: " in caplog.text


@pytest.mark.parametrize("share", [0.0, 1.0])
def test_a_policy_that_dies_is_never_a_reward(service: ServiceProcess, share: float) -> None:
    """It dies in the middle of the second step."""
    student = Student(lambda number: "endless" if number == 31 else FATES[number % 4])
    with Client(service.url) as client, policy_server(student.answer) as policy:

        def kill() -> None:
            policy.wait_for(16 + 4 + 16 + 4 + 1)  # each, and once more for those that try twice
            policy.kill()

        killing = threading.Thread(target=kill)
        killing.start()
        _, backend, failure = train(service, policy, max_exceptions=share)
        killing.join()
        until(lambda: nothing_left(client))
    trajectories = [each for step in backend.trained for group in step.groups for each in group]
    assert [each.reward for each in trajectories] == [WORTH[fate_in(each)] for each in trajectories]
    if share:
        assert failure is None
        assert [sum(map(len, each.groups)) for each in backend.trained] == [16, 15]
    else:
        assert "policy_unavailable" in str(failure)
        assert [sum(map(len, each.groups)) for each in backend.trained] == [16]


class Watched:
    """A student that tells when the episode `number` has begun, and waits there to go on."""

    def __init__(self, number: int) -> None:
        self.student = Student(lambda number: FATES[number % 4])
        self.begun, self.go_on = threading.Event(), threading.Event()
        self._number = number
        self._count = 0
        self._lock = threading.Lock()

    def answer(self, asked: Asked) -> Act:
        with self._lock:
            self._count += asked.turn == 0
            is_here = self._count == self._number and asked.turn == 0
        act = self.student.answer(asked)
        if is_here:
            self.begun.set()
            self.go_on.wait(WAIT_SECONDS)
        return act


def in_thread(work: Callable[[], None]) -> threading.Thread:
    thread = threading.Thread(target=work)
    thread.start()
    return thread


def test_a_service_that_is_killed_and_comes_back_costs_no_trajectory(
    service: ServiceProcess, caplog: pytest.LogCaptureFixture
) -> None:
    """Killed in the middle of the second step; what had come by then is kept."""
    caplog.set_level(logging.WARNING, "proctor_trainers")
    watched = Watched(24)
    results: list[tuple[Summary, MemoryBackend, Exception | None]] = []
    with policy_server(watched.answer) as policy:
        training = in_thread(lambda: results.append(train(service, policy, max_exceptions=0.0)))
        assert watched.begun.wait(WAIT_SECONDS)
        service.kill()
        watched.go_on.set()
        service.start()
        training.join()
        with Client(service.url) as client:
            until(lambda: nothing_left(client))
    [(summary, backend, failure)] = results
    assert failure is None
    assert (summary.trajectories, summary.steps) == (48, 3)
    assert [sum(map(len, each.groups)) for each in backend.trained] == [16, 16, 16]
    ids = set()
    for step in backend.trained:
        for group, problem in zip(step.groups, problems(), strict=True):
            for trajectory in group.trajectories:
                check_trajectory(trajectory, watched.student)
                assert trajectory.metadata["task_id"] == problem.id
                ids.add(trajectory.metadata["rollout_id"])
    assert len(ids) == 48
    assert "asked for again: connection" in caplog.text


def test_a_service_that_is_restarted_in_good_order_costs_no_trajectory(
    service: ServiceProcess,
) -> None:
    """Those under way get an error from it; the policy answers none of them before."""
    student = Student(lambda number: "endless" if 16 <= number < 24 else FATES[number % 4])
    results: list[tuple[Summary, MemoryBackend, Exception | None]] = []
    with policy_server(student.answer) as policy:
        training = in_thread(lambda: results.append(train(service, policy, max_exceptions=0.0)))
        policy.wait_for(16 + 4 + 16 + 8 + 2)
        service.stop()
        service.start()
        training.join()
    [(summary, backend, failure)] = results
    assert failure is None
    assert (summary.trajectories, summary.steps) == (48, 3)
    for step in backend.trained:
        for trajectory in (each for group in step.groups for each in group):
            check_trajectory(trajectory, student)


def test_a_service_that_does_not_come_back_ends_the_training(service: ServiceProcess) -> None:
    watched = Watched(24)
    results: list[tuple[Summary, MemoryBackend, Exception | None]] = []
    with policy_server(watched.answer) as policy:
        training = in_thread(lambda: results.append(train(service, policy, retry_seconds=1.0)))
        assert watched.begun.wait(WAIT_SECONDS)
        service.kill()
        watched.go_on.set()
        training.join()
        service.start()
    [(summary, backend, failure)] = results
    assert "more than 25% of 16 rollouts failed: connection" in str(failure)
    assert (summary.trajectories, summary.steps) == (16, 1)
    assert len(backend.trained) == 1


@pytest.mark.parametrize(
    ("fields", "said"),
    [
        ({"error": {"reason": "deadline", "message": "late", "retryable": True}}, "deadline: late"),
        ({"reward": float("nan"), "verdict": "passed"}, "protocol"),
        ({}, "protocol"),
    ],
)
def test_what_has_no_reward_raises(fields: dict[str, object], said: str) -> None:
    trajectory = wire.Trajectory.model_validate({"task_id": "1", "index": 0, **fields})
    with pytest.raises(RolloutFailed, match=said):
        trajectory_of(trajectory)


def test_metadata_are_what_art_takes() -> None:
    given = {"level": 3, "tags": ["a"], "more": {}, "hard": True, "verdict": "theirs"}
    trajectory = wire.Trajectory(
        task_id="1", index=0, reward=1.0, verdict="passed", metadata=given, rollout_id="ro_1"
    )
    assert trajectory_of(trajectory).metadata == {
        "level": 3,
        "hard": True,
        "verdict": "passed",
        "task_id": "1",
        "rollout_id": "ro_1",
        "sandbox_id": None,
    }
