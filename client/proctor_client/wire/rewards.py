"""Request and response of POST /reward."""

from __future__ import annotations

from typing import Annotated, ClassVar, TypeAlias

from pydantic import ConfigDict, Field, JsonValue

from proctor_client.wire.base import (
    MAX_MESSAGES,
    MAX_SUBMISSIONS,
    MAX_TASKS,
    Bounded,
    CacheResult,
    ControlOutcome,
    ErrorReason,
    Extract,
    Integrity,
    JsonObject,
    Level,
    NegativeControl,
    Priority,
    Request,
    Response,
    Scoring,
    Texts,
    Verdict,
)
from proctor_client.wire.environments import EnvironmentChoice
from proctor_client.wire.graders import Grader
from proctor_client.wire.limits import Limits
from proctor_client.wire.repositories import RepositoryResult

DEADLINE_SECONDS = 600.0
"""Default of `deadline_seconds` without a repository."""
LONGEST_DEADLINE_SECONDS = 86_400.0


def default_deadline_seconds(repository_seconds: float) -> float:
    """Return the default of `deadline_seconds`; `repository_seconds`: the limits of all repositories.

    So they have the time to be judged one after another, and each twice: tests may run without the
    change, too.
    """
    return min(DEADLINE_SECONDS + 2 * repository_seconds, LONGEST_DEADLINE_SECONDS)


_RESULT: dict[str, JsonValue] = {
    "index": 0,
    "id": "p1-c0",
    "group": "p1",
    "evaluation_id": "ev_5f0c6f2b8d2e4a0c9a5b1f3d7e6c8a90",
    "reward": 1.0,
    "verdict": "passed",
    "error": None,
    "tests": {"passed": 2, "total": 2, "failures": []},
    "message": "",
    "stdout": "",
    "stderr": "",
    "truncated": False,
    "exit_code": 0,
    "integrity": "separated",
    "level": "calls",
    "hack_signals": [],
    "negative_control": None,
    "usage": {
        "cpu_seconds": 0.004,
        "wall_seconds": 0.006,
        "queue_seconds": 0.001,
        "peak_memory_mb": 9.1,
        "compile_seconds": 0.0,
        "control_seconds": 0.0,
    },
    "cache": "miss",
    "sandbox_id": "sb_17",
    "degraded": [],
    "repository": None,
}
_SUMMARY: dict[str, JsonValue] = {
    "count": 1,
    "judged": 1,
    "passed": 1,
    "no_code": 0,
    "errors": 0,
    "mean_reward": 1.0,
}


class Message(Bounded):
    """Chat message; extra fields are allowed."""

    model_config = ConfigDict(extra="allow", frozen=True)

    role: str
    content: str | Annotated[list[JsonObject], Field(max_length=MAX_MESSAGES)] | None = None


class Compiler(Request):
    """Options of a compiler, each from the list of the service."""

    standard: str | None = Field(None, max_length=64, description="Such as `gnu++20`.")
    defines: list[str] = Field([], max_length=64, description="Such as `LOCAL` or `N=5`.")
    flags: list[str] = Field([], max_length=64, description="Such as `-O3`.")


Messages: TypeAlias = Annotated[list[Message], Field(max_length=MAX_MESSAGES)]


class Code(Request):
    """Code around the code of a completion, in its language; part of the task."""

    prelude: str | None = Field(
        None, description="Source before the submission: imports, helpers, a recursion limit."
    )
    prompt_code: str | None = Field(
        None,
        description="Code that the completion may go on with: a body, a whole function, or a whole file. "
        "The grader names the `entry_point`.",
    )
    suffix_code: str | None = Field(
        None, description="Code behind a completion that fills in the middle."
    )
    compiler: Compiler | None = None


class TaskFields(Code):
    """Everything about a task before a completion comes."""

    grader: Grader | None = None
    limits: Limits | None = None
    scoring: Scoring | None = None
    negative_control: NegativeControl | None = Field(None, description="Instead of the request's.")
    files: Texts = Field(
        default_factory=dict, description="Path to text; written into the sandbox first."
    )
    language: str = "python"
    extract: Extract | None = None
    environment: EnvironmentChoice | None = Field(None, description="Instead of the request's.")
    prompt: str | Messages | None = Field(
        None,
        description="What the policy saw; for the journal and for `verifier`, never judged otherwise.",
    )


class Submission(TaskFields):
    """Completion to judge. A field here replaces the request's field of the same name."""

    id: str | None = Field(None, description="Echoed.")
    completion: str | Messages = Field(
        description="Text, or chat messages of which the last assistant message's text counts."
    )
    group: str | None = Field(None, description="Echoed: the prompt that a GRPO group shares.")
    task: str | None = Field(
        None,
        pattern=r"^sha256:[0-9a-f]{64}$",
        description="Name of a task of POST /tasks. A field of the submission replaces the task's.",
    )


class TasksRequest(Request):
    """Body of POST /tasks: tasks that submissions will name, each sent once."""

    model_config = ConfigDict(
        json_schema_extra={
            "examples": [
                {"tasks": [{"grader": {"kind": "asserts", "tests": ["assert double(2) == 4"]}}]}
            ]
        }
    )

    tasks: list[TaskFields] = Field(min_length=1, max_length=MAX_TASKS)


class TasksResponse(Response):
    """Names of the tasks, in the order of the request: the hashes of their content."""

    model_config = ConfigDict(json_schema_extra={"examples": [{"tasks": [f"sha256:{'0b' * 32}"]}]})

    tasks: list[str]


class RewardRequest(Code):
    """Body of POST /reward."""

    model_config = ConfigDict(
        json_schema_extra={
            "examples": [
                {
                    "submissions": [
                        {
                            "id": "p1-c0",
                            "group": "p1",
                            "completion": "<answer>\ndef double(n):\n    return 2 * n\n</answer>",
                        }
                    ],
                    "grader": {
                        "kind": "asserts",
                        "tests": ["assert double(2) == 4", "assert double(0) == 0"],
                    },
                    "limits": {"cpu_seconds": 5},
                    "job": "run-17",
                }
            ]
        }
    )

    submissions: list[Submission] = Field(min_length=1, max_length=MAX_SUBMISSIONS)
    grader: Grader | None = None
    limits: Limits | None = None
    scoring: Scoring = "all"
    negative_control: NegativeControl = Field(
        "signal",
        description="Of a program that passed beside its tests: `signal` runs it once more, by other "
        "expected values, and reports the outcome; with `verdict` a program that passes two such draws "
        "has failed; `off`: no second run.",
    )
    prompt: str | Messages | None = Field(
        None,
        description="What the policy saw; for the journal and for `verifier`, never judged otherwise.",
    )
    extract: Extract = "auto"
    tags: list[str] = Field([], max_length=64)
    job: str = Field("default", min_length=1, max_length=200)
    step: int | None = Field(
        None, ge=0, le=2**53, description="Step of the training run, for the journal."
    )
    priority: Priority = "training"
    deadline_seconds: float | None = Field(
        None,
        gt=0,
        le=LONGEST_DEADLINE_SECONDS,
        description="Wall time for each item, from the request's arrival: waiting in the queue, waiting for "
        "a core and running. An item that is not judged by then has the error `deadline`, and no reward. "
        "By default 600, and for each submission of the grader `repository` twice its cpu_seconds and "
        "wall_seconds in addition; at most a day.",
    )
    cache: bool = True
    environment: EnvironmentChoice | None = Field(
        None,
        description="Environment of its sandboxes, as in GET /environments; by default `default`.",
    )


class ItemError(Response):
    """Reason for an unjudged item. An error never becomes a reward."""

    reason: ErrorReason | str
    message: str
    retryable: bool


class Failure(Response):
    """Failed test."""

    index: int
    test: str
    message: str


class Tests(Response):
    """Number of the grader's passed tests; `failures` holds at most ten."""

    __test__: ClassVar[bool] = False  # not for pytest, despite the name

    passed: int = 0
    total: int = 0
    failures: list[Failure] = Field([])


class Usage(Response):
    """Resources used by the evaluation. `queue_seconds` never counts against the submission.

    `compile_seconds`: the part of `cpu_seconds` that the compiler took. `control_seconds`: CPU time of the
    negative control, counted only here.
    """

    cpu_seconds: float = 0.0
    wall_seconds: float = 0.0
    queue_seconds: float = 0.0
    peak_memory_mb: float = 0.0
    compile_seconds: float = 0.0
    control_seconds: float = 0.0


class Result(Response):
    """Result of a submission.

    `verdict` and `reward` are null exactly when `error` is set.
    """

    model_config = ConfigDict(json_schema_extra={"examples": [_RESULT]})

    index: int
    id: str | None = None
    group: str | None = None
    evaluation_id: str
    reward: float | None = None
    verdict: Verdict | str | None = None
    error: ItemError | None = None
    tests: Tests = Tests()
    message: str = ""
    stdout: str = ""
    stderr: str = ""
    truncated: bool = False
    exit_code: int | None = None
    integrity: Integrity | str
    level: Level | str | None = Field(
        None,
        description="How `asserts` judged: `calls` by a plan of calls, `values` with test code in a "
        "sandbox of its own, both `separated`; `shared` beside the submission.",
    )
    hack_signals: list[str] = Field([])
    negative_control: ControlOutcome | str | None = Field(
        None,
        description="Of a program that passed beside its tests, once more by other expected values: `clear` "
        "(it failed), `caught` (it passed them, too), or `none` (no finding). Null without a second run.",
    )
    usage: Usage = Usage()
    cache: CacheResult | str
    sandbox_id: str | None = None
    environment: str = Field("default", description="Environment that it was judged in.")
    degraded: list[str] = Field([], description="Protections this machine cannot enforce.")
    repository: RepositoryResult | None = Field(
        None,
        description="Details of the grader `repository`; null of others, and without a verdict.",
    )


class Summary(Response):
    """Summary of the batch. `mean_reward` is over judged items, or null."""

    count: int
    judged: int
    passed: int
    no_code: int
    errors: int
    mean_reward: float | None = None


class RewardResponse(Response):
    """Answer of POST /reward, in the order of the request."""

    model_config = ConfigDict(
        json_schema_extra={"examples": [{"results": [_RESULT], "summary": _SUMMARY}]}
    )

    results: list[Result]
    summary: Summary


class SummaryLine(Response):
    """Last line of an NDJSON stream."""

    summary: Summary
