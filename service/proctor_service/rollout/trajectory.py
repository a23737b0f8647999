"""What a trajectory is made from, and what it comes to: frozen values.

Messages, choices and tools are JSON objects in the form of OpenAI's chat API. The agent and the
grader are the wire's own models, which are frozen and complete.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal

from pydantic import JsonValue

from proctor_client.wire import Agent, Extract, Grader, Priority, Scoring, Verdict
from proctor_service.errors import Failure
from proctor_service.sandbox.interface import Limits

JsonObject = dict[str, JsonValue]


@dataclass(frozen=True, slots=True)
class Task:
    """One problem: what the policy is told, and how its answer is graded.

    `test_count`: how many tests an answer without code fails.
    """

    id: str
    messages: Sequence[JsonObject]
    grader: Grader
    files: Mapping[str, str]
    test_count: int = 0


@dataclass(frozen=True, slots=True)
class Plan:
    """One trajectory that is to be played, by `deadline` (monotonic clock).

    `shell` runs the commands of the tool `bash`, where a sandbox may have no bash.
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

    @property
    def sandbox_tags(self) -> tuple[str, ...]:
        """The tags of its sandboxes: the request's, and its own."""
        return (*self.tags, f"rollout:{self.rollout_id}")


@dataclass(frozen=True, slots=True)
class Trajectory:
    """One episode, with a verdict and a reward, or with the failure that prevented them."""

    messages_and_choices: Sequence[JsonObject] = ()
    tools: Sequence[JsonObject] | None = None
    reward: float | None = None
    verdict: Verdict | None = None
    failure: Failure | None = None
    metrics: Mapping[str, float] = field(default_factory=dict)
    sandbox_id: str | None = None
