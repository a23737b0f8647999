"""Values of the evaluator and of rollouts: an item with its outcome, a plan with its trajectory.

The evaluator, the routes, the observers and the journal share these frozen values. Messages, choices
and tools are JSON objects in the format of OpenAI's chat API. Agents and graders are the models of the
wire format, which are frozen and complete.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal

from pydantic import JsonValue

from proctor_client.wire import (
    Agent,
    CacheResult,
    Extract,
    Grader,
    Integrity,
    NegativeControl,
    Priority,
    Scoring,
    Verdict,
)
from proctor_service.errors import Failure
from proctor_service.judge.extract import NOTHING, Around
from proctor_service.judge.submission import Judgement, Submission, TreeRules
from proctor_service.sandbox.interface import DEFAULT, Limits

JsonObject = dict[str, JsonValue]


@dataclass(frozen=True, slots=True)
class NoCode:
    """Completion without code. `tests`: number of tests failed by the completion."""

    tests: int = 0
    message: str = "No code was found in the completion."
    environment: str = DEFAULT
    integrity: Integrity = "separated"


@dataclass(frozen=True, slots=True)
class Origin:
    """Where a submission comes from, for the journal.

    `completion`: the source of the submission, by the rule `extract`. `task`: the group of a
    submission, or the task of a rollout. `step`: the step of the training run. `prompt`: JSON of
    the policy's view, or an empty text.
    """

    completion: str = ""
    extract: Extract = "none"
    submission_id: str | None = None
    task: str | None = None
    step: int | None = None
    prompt: str = ""


@dataclass(frozen=True, slots=True)
class Item:
    """Submission in the evaluator, with its owner and deadline (monotonic clock).

    `cache_key`: hash of every input to the verdict; None turns the cache off. `begun`: the item
    belongs to begun work, which continues while the service drains. `rollout_id` and
    `graded_sandbox_id` are for the logs: the rollout of the item, and the sandbox with the judged
    state. `portable`: a peer may judge the item, which is this replica's own. `goes_to_owners`: the
    replicas which own its image may. `traceparent`: span
    of the item, for a peer. `origin`: None for an item of a peer, whose journal has the record.
    """

    evaluation_id: str
    submission: Submission | NoCode
    tenant: str
    job: str
    deadline: float
    cache_key: bytes | None = None
    tags: tuple[str, ...] = ()
    priority: Priority = "training"
    begun: bool = False
    rollout_id: str | None = None
    graded_sandbox_id: str | None = None
    portable: bool = False
    goes_to_owners: bool = False
    traceparent: str = ""
    origin: Origin | None = None


@dataclass(frozen=True, slots=True)
class Outcome:
    """Either a judgement with its reward, or the failure.

    `peer_degraded`: missing protections of the judging peer; None without a peer.
    """

    judgement: Judgement | None = None
    reward: float | None = None
    failure: Failure | None = None
    queue_seconds: float = 0.0
    cache: CacheResult = "miss"
    peer_degraded: tuple[str, ...] | None = None


def outcome_bytes(outcome: Outcome) -> int:
    """Return the approximate memory of an outcome in bytes, for the limit of the cache."""
    judgement = outcome.judgement
    if judgement is None:
        return 256
    texts = len(judgement.message) + len(judgement.stdout) + len(judgement.stderr)
    return 1024 + texts + sum(len(f.test) + len(f.message) + 128 for f in judgement.failures)


@dataclass(frozen=True, slots=True)
class TrajectoryTask:
    """Problem with the messages for the policy and the grader for its answer.

    `test_count`: number of tests failed by an answer without code. `around`: the surroundings of an
    answer's code. `tree`: how a grader of repositories meets the agent's sandbox.
    """

    id: str
    messages: Sequence[JsonObject]
    grader: Grader
    files: Mapping[str, str]
    test_count: int = 0
    around: Around = NOTHING
    tree: TreeRules | None = None


@dataclass(frozen=True, slots=True)
class TrajectoryPlan:
    """Trajectory to run until `deadline` (monotonic clock).

    `shell` runs the commands of the tool `bash`; some sandboxes have only `sh`. `seed` goes to the
    policy with every request.
    """

    rollout_id: str
    task: TrajectoryTask
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
