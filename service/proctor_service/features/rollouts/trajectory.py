"""Input and result of a trajectory as frozen values.

Messages, choices and tools are JSON objects in the format of OpenAI's chat API. The agent and the
grader are the models of the wire format, which are frozen and complete.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal

from pydantic import JsonValue

from proctor_client.wire import Agent, Extract, Grader, NegativeControl, Priority, Scoring, Verdict
from proctor_service.errors import Failure
from proctor_service.judge.extract import NOTHING, Around
from proctor_service.sandbox.interface import DEFAULT, Limits

JsonObject = dict[str, JsonValue]


@dataclass(frozen=True, slots=True)
class Task:
    """Problem with the messages for the policy and the grader for its answer.

    `test_count`: number of tests that an answer without code fails. `around`: what stands around the
    code of an answer.
    """

    id: str
    messages: Sequence[JsonObject]
    grader: Grader
    files: Mapping[str, str]
    test_count: int = 0
    around: Around = NOTHING


@dataclass(frozen=True, slots=True)
class Plan:
    """Trajectory to run until `deadline` (monotonic clock).

    `shell` runs the commands of the tool `bash`; some sandboxes have only `sh`. `seed` goes to the
    policy with every request.
    """

    rollout_id: str
    task: Task
    agent: Agent
    limits: Limits
    scoring: Scoring
    extract: Extract
    tenant: str
    job: str
    deadline: float
    tags: tuple[str, ...] = ()
    priority: Priority = "training"
    shell: Literal["bash", "sh"] = "bash"
    step: int | None = None
    environment: str = DEFAULT
    seed: int | None = None
    negative_control: NegativeControl = "signal"

    @property
    def sandbox_tags(self) -> tuple[str, ...]:
        """Tags of its sandboxes: the tags of the request, and a tag with the rollout id."""
        return (*self.tags, f"rollout:{self.rollout_id}")


@dataclass(frozen=True, slots=True)
class Trajectory:
    """Episode with a verdict and a reward, or with a failure.

    `messages_and_choices`: JSON objects, encoded. Log probabilities need a fifth of the memory then.
    """

    messages_and_choices: Sequence[bytes] = ()
    tools: Sequence[JsonObject] | None = None
    reward: float | None = None
    verdict: Verdict | None = None
    failure: Failure | None = None
    metrics: Mapping[str, float] = field(default_factory=dict)
    sandbox_id: str | None = None
