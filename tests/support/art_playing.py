"""A training loop with the in-memory backend, against a real service."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from typing import Any

import art
import httpx
from art_students import WORTH, Student, fate_of
from openai.types.chat.chat_completion import Choice
from waits import WAIT_SECONDS

from proctor_trainers.addresses import async_client_for
from proctor_trainers.art.memory import MemoryBackend
from proctor_trainers.art.policies import Endpoint
from proctor_trainers.art.rollouts import Order
from proctor_trainers.art.training import TrainingLoop, TrainingPlan
from proctor_trainers.problems import Problem, load_problems

AGENT = {"kind": "tools", "max_turns": 4}


def problems(count: int = 4) -> list[Problem]:
    return load_problems("toy", limit=count)


def order(trajectories: int = 4, **fields: Any) -> Order:
    return Order(
        **{
            "project": "proctor-tests",
            "run_name": "run-7",
            "job_id": "0a1b2c3d",
            "trajectories_per_problem": trajectories,
            "agent": AGENT,
            **fields,
        }
    )


@asynccontextmanager
async def training(
    service_url: str,
    policy_url: str,
    *,
    of: Sequence[Problem] | None = None,
    trajectories: int = 4,
    retry_seconds: float = 30.0,
    say: Any = print,
    backend: MemoryBackend | None = None,
    **plan: Any,
) -> AsyncIterator[tuple[TrainingLoop, MemoryBackend]]:
    """A loop that is ready to run, with a step over all problems."""
    chosen = problems() if of is None else list(of)
    backend = backend or MemoryBackend()
    model = art.TrainableModel(name="run-7", project="proctor-tests", base_model="none")
    await model.register(backend)
    fields = {"num_steps": 3, "batch_size": len(chosen), "learning_rate": 1e-5, **plan}
    async with async_client_for(service_url, retry_seconds=retry_seconds) as client:
        endpoint = Endpoint(base_url=policy_url, model="policy")
        yield (
            TrainingLoop(
                TrainingPlan(order=order(trajectories), **fields),
                chosen,
                model,
                backend,
                client,
                endpoint.policy,
                say=say,
            ),
            backend,
        )


def outcomes(service_url: str) -> Counter[str]:
    """How many trajectories ended at the service, by verdict or reason of error."""
    found: Counter[str] = Counter()
    for line in httpx.get(f"{service_url}/metrics", trust_env=False, timeout=240).text.splitlines():
        if line.startswith("proctor_trajectories_total{"):
            name, count = line.split(" ")
            found[name.split('"')[1]] += int(float(count))
    return found


def until(holds: Callable[[], bool]) -> None:
    """Waits until it does; another process has no event for us."""
    turns = int(WAIT_SECONDS / 0.02)
    while not holds():
        turns -= 1
        assert turns > 0, "it did not come about"
        threading.Event().wait(0.02)


def fate_in(trajectory: art.Trajectory) -> str:
    """The fate that the policy drew for it."""
    [first, *_] = [each for each in trajectory.messages_and_choices if isinstance(each, Choice)]
    [call] = first.message.tool_calls or []
    return fate_of(call.id)


def check_trajectory(trajectory: art.Trajectory, student: Student) -> None:
    """It is complete, to the last logprob, and its reward is what it is worth."""
    fate = fate_in(trajectory)
    assert trajectory.reward == WORTH[fate]
    system, user, *rest = trajectory.messages_and_choices
    assert (system["role"], user["role"]) == ("system", "user")
    choices = [each for each in rest if isinstance(each, Choice)]
    observations = [each for each in rest if not isinstance(each, Choice)]
    assert len(choices) == (2 if fate == "retried" else 1)
    for choice in choices:
        [call] = choice.message.tool_calls or []
        assert choice.to_dict(mode="json") == student.sent[call.id]
        assert choice.logprobs is not None
        assert choice.logprobs.content is not None
        assert [token.token for token in choice.logprobs.content] == [
            f"token_id:{ord(letter)}" for letter in call.id
        ]
    for observation in observations:
        assert observation["role"] == "tool"
        assert "slip" in observation["content"]
    assert len(observations) == len(choices) - 1
    assert trajectory.tools is not None
    assert [each["function"]["name"] for each in trajectory.tools] == [
        "execute_code",
        "submit_solution",
    ]
    assert trajectory.tools[0]["function"]["parameters"]["required"] == ["code"]
    assert trajectory.metrics["turns"] == len(choices)
    assert trajectory.metrics["duration"] > 0
    assert trajectory.metadata["verdict"] == {1.0: "passed"}.get(
        trajectory.reward, trajectory.metadata["verdict"]
    )
    assert trajectory.metadata["rollout_id"]
