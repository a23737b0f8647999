"""Models of every request and response of Proctor over HTTP.

The service imports these models, the client sends them, and no other module defines a field.
Requests forbid unknown fields, so that a typo causes a 422 with its name. Responses ignore unknown
fields, so that an older client can read a newer service. Names carry the units: `_seconds`, `_mb`,
`_kb`.
"""

from __future__ import annotations

from datetime import datetime
from typing import Annotated, Any, ClassVar, Literal, Self

from pydantic import (
    BaseModel,
    ConfigDict,
    Field,
    FieldSerializationInfo,
    JsonValue,
    SecretStr,
    field_serializer,
    model_validator,
)

Verdict = Literal[
    "passed",
    "failed",
    "runtime_error",
    "syntax_error",
    "timeout",
    "memory_limit",
    "output_limit",
    "early_exit",
    "no_code",
]
ErrorReason = Literal[
    "sandbox_unavailable",
    "sandbox_lost",
    "judge_failed",
    "deadline",
    "overloaded",
    "cancelled",
    "invalid_task",
    "policy_unavailable",
]
RefusalReason = Literal[
    "batch_too_large",
    "invalid_request",
    "unauthorized",
    "forbidden",
    "not_found",
    "sandbox_not_found",
    "sandbox_stopped",
    "file_not_found",
    "busy",
    "quota_exceeded",
    "draining",
    "internal",
]
Integrity = Literal["separated", "in_process"]
Level = Literal["calls", "values", "shared"]
CacheResult = Literal["miss", "hit", "coalesced"]
Scoring = Literal["all", "fraction"]
Priority = Literal["evaluation", "training"]
Extract = Literal["auto", "xml", "fence", "none"]

SandboxStatus = Literal["pending", "running", "stopped", "failed"]
Ending = Literal[
    "exited", "signalled", "cpu_limit", "wall_limit", "memory_limit", "output_limit", "killed"
]
Tool = Literal["execute_code", "submit_solution", "bash", "read_file", "write_file"]

MAX_SUBMISSIONS = 4096
MAX_TASKS = 1024
MAX_TRAJECTORIES = 4096
MAX_FAILURES = 10


class Request(BaseModel):
    """Base of the client's requests: unknown fields are rejected, values are frozen."""

    model_config = ConfigDict(extra="forbid", frozen=True)


class Response(BaseModel):
    """Base of the service's responses: unknown fields are ignored, values are frozen."""

    model_config = ConfigDict(extra="ignore", frozen=True)


# ---------------------------------------------------------------- graders


class _Grader(Request):
    reveal: bool = Field(False, description="Let expected values appear in messages and failures.")


class ExecGrader(_Grader):
    """Program run: passes when the program reaches its end and exits with code 0."""

    kind: Literal["exec"]


class AssertsGrader(_Grader):
    """Test statements, in the form of MBPP and HumanEval: passes when every statement holds."""

    kind: Literal["asserts"]
    tests: list[str] = Field(min_length=1, max_length=4096, description="Python statements.")
    setup: str = Field("", description="Python that runs after the submission, before the tests.")
    entry_point: str | None = Field(
        None, description="The function that a `check(candidate)` among the tests is called with."
    )
    integrity: Integrity | None = Field(
        None,
        description="`separated`: tests that need the submission's process are an `invalid_task`. "
        "`in_process`: run the tests there in any case. Default: as the tests need it.",
    )


class Call(Request):
    """One call of the entry point, and the expected return value."""

    args: list[JsonValue] = []
    kwargs: dict[str, JsonValue] = {}
    expected: JsonValue


class CallsGrader(_Grader):
    """Function calls: passes when each call of `entry_point` returns the expected value."""

    kind: Literal["calls"]
    entry_point: str = Field(min_length=1)
    cases: list[Call] = Field(min_length=1, max_length=4096)
    tolerance: float = Field(0.0, ge=0, description="Relative and absolute, for floats.")


class StdioCase(Request):
    """One run of the program: its standard input and the expected standard output."""

    stdin: str = ""
    stdout: str


class StdioGrader(_Grader):
    """Program runs: passes when each run prints the expected output and exits with code 0."""

    kind: Literal["stdio"]
    cases: list[StdioCase] = Field(min_length=1, max_length=4096)
    compare: Literal["tokens", "lines", "exact"] = "tokens"
    tolerance: float = Field(0.0, ge=0, description="Relative and absolute, for numeric tokens.")


class PytestGrader(_Grader):
    """pytest run: passes when pytest collects at least one test in `files`, and all pass."""

    kind: Literal["pytest"]
    files: dict[str, str] = Field(min_length=1)


class CommandGrader(_Grader):
    """Command: passes when the command exits with the expected code."""

    kind: Literal["command"]
    argv: list[str] = Field(min_length=1)
    expect_exit_code: int = 0


Grader = Annotated[
    ExecGrader | AssertsGrader | CallsGrader | StdioGrader | PytestGrader | CommandGrader,
    Field(discriminator="kind"),
]


# ---------------------------------------------------------------- POST /reward, request


class Limits(Request):
    """Resource limits of one submission. An omitted field has the server's default."""

    cpu_seconds: float | None = Field(None, gt=0, description="CPU time of all its processes.")
    wall_seconds: float | None = Field(None, gt=0, description="Wall time in which it idled.")
    memory_mb: int | None = Field(None, gt=0, description="Memory of all its processes together.")
    output_kb: int | None = Field(None, gt=0, description="Kept of stdout, and of stderr.")
    processes: int | None = Field(None, gt=0, description="Processes and threads at once.")
    disk_mb: int | None = Field(None, gt=0, description="Working directory and /tmp together.")
    network: bool | None = Field(None, description="Reach the network; most servers refuse it.")


class Message(BaseModel):
    """One chat message; extra fields are allowed."""

    model_config = ConfigDict(extra="allow", frozen=True)

    role: str
    content: str | list[dict[str, JsonValue]] | None = None


class Submission(Request):
    """One completion to judge."""

    id: str | None = Field(None, description="Echoed.")
    completion: str | list[Message] = Field(
        description="Text, or chat messages of which the last assistant message's text counts."
    )
    grader: Grader | None = None
    limits: Limits | None = None
    scoring: Scoring | None = None
    files: dict[str, str] = Field({}, description="Path to text; written into the sandbox first.")
    language: str = "python"
    group: str | None = Field(None, description="Echoed: the prompt that a GRPO group shares.")


class RewardRequest(Request):
    """Body of POST /reward."""

    submissions: list[Submission] = Field(min_length=1, max_length=MAX_SUBMISSIONS)
    grader: Grader | None = None
    limits: Limits | None = None
    scoring: Scoring = "all"
    extract: Extract = "auto"
    tags: list[str] = Field([], max_length=64)
    job: str = Field("default", min_length=1, max_length=200)
    priority: Priority = "training"
    deadline_seconds: float = Field(
        600,
        gt=0,
        le=86_400,
        description="Wall time for each item, from the request's arrival: waiting in the queue, waiting for "
        "a core and running. An item that is not judged by then has the error `deadline`, and no reward.",
    )
    cache: bool = True


# ---------------------------------------------------------------- POST /reward, response


class ItemError(Response):
    """Reason for an item that the service could not judge. An error never becomes a reward."""

    reason: ErrorReason | str
    message: str
    retryable: bool


class Failure(Response):
    """One failed test."""

    index: int
    test: str
    message: str


class Tests(Response):
    """Number of the grader's tests that passed; `failures` holds at most ten."""

    __test__: ClassVar[bool] = False  # not for pytest, despite the name

    passed: int = 0
    total: int = 0
    failures: list[Failure] = []


class Usage(Response):
    """Resources used by the evaluation. `queue_seconds` never counts against the submission."""

    cpu_seconds: float = 0.0
    wall_seconds: float = 0.0
    queue_seconds: float = 0.0
    peak_memory_mb: float = 0.0


class Result(Response):
    """Result of one submission.

    `verdict` and `reward` are null exactly when `error` is set.
    """

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
        description="How `asserts` judged: by calls alone, with test code in a sandbox of its own, "
        "or beside the submission.",
    )
    hack_signals: list[str] = []
    usage: Usage = Usage()
    cache: CacheResult | str
    sandbox_id: str | None = None
    degraded: list[str] = Field([], description="Protections this machine cannot enforce.")


class Summary(Response):
    """Summary of the batch. `mean_reward` is over judged items, null if there are none."""

    count: int
    judged: int
    passed: int
    no_code: int
    errors: int
    mean_reward: float | None = None


class RewardResponse(Response):
    """Answer of POST /reward, in the order of the request."""

    results: list[Result]
    summary: Summary


class SummaryLine(Response):
    """Last line of an NDJSON stream."""

    summary: Summary


# ---------------------------------------------------------------- /sandboxes


class SandboxRequest(Request):
    """Body of POST /sandboxes: a sandbox that keeps its state between calls."""

    tags: list[str] = Field([], max_length=64)
    limits: Limits | None = None
    ttl_seconds: float = Field(600, gt=0, le=86_400, description="Renewed by use.")
    files: dict[str, str] = Field({}, description="Path to text; written into it first.")
    job: str = Field("default", min_length=1, max_length=200)


class ExecStats(Response):
    """Executions of a sandbox by outcome.

    `successes` ended with exit code 0, `failures` with another exit code or a signal. `errors` did
    not end by themselves: a time limit, a lost sandbox.
    """

    total: int = 0
    successes: int = 0
    failures: int = 0
    errors: int = 0


class Sandbox(Response):
    """A sandbox that keeps its state between calls. Times are ISO 8601, in UTC."""

    id: str
    status: SandboxStatus | str
    tags: list[str] = []
    backend: str
    created_at: datetime
    expires_at: datetime
    exec_stats: ExecStats = ExecStats()
    message: str = Field("", description="Why it stopped or failed.")


class SandboxList(Response):
    """Answer of GET /sandboxes."""

    sandboxes: list[Sandbox]
    replicas_missing: int = Field(
        0, description="Replicas that did not answer; what they hold is not counted here."
    )


class StopResponse(Response):
    """Answer of both DELETE routes: the number of stopped sandboxes."""

    stopped: int
    replicas_missing: int = Field(
        0, description="Replicas that did not answer; what they hold is not counted here."
    )


class ExecRequest(Request):
    """Body of POST /sandboxes/{id}/exec: exactly one of `command` and `code`."""

    command: list[str] | None = Field(None, min_length=1, description="An argv; no shell.")
    code: str | None = Field(None, description="Python.")
    stdin: str = ""
    timeout_seconds: float | None = Field(
        None, gt=0, description="Waiting for a core does not count. Default: the sandbox's limits."
    )

    @model_validator(mode="after")
    def _one_of_them(self) -> Self:
        if (self.command is None) == (self.code is None):
            raise ValueError("either command or code is wanted")
        return self


class ExecResult(Response):
    """Result of a command. `exit_code` is null when a signal or a limit ended the command."""

    exit_code: int | None = None
    stdout: str = ""
    stderr: str = ""
    ending: Ending | str
    truncated: bool = False
    usage: Usage = Usage()


class ExecLine(Response):
    """Line of an exec's NDJSON stream, with one field set.

    The last line has `result`, with the whole output, or `error`.
    """

    stdout: str | None = None
    stderr: str | None = None
    result: ExecResult | None = None
    error: ItemError | None = None


class GradeRequest(Request):
    """Body of POST /sandboxes/{id}/grade. The submission is the sandbox's `solution.py`."""

    grader: Grader
    scoring: Scoring = "all"
    limits: Limits | None = None


# ---------------------------------------------------------------- POST /rollout


class RolloutTask(Request):
    """One problem for the policy: the prompt, and the grader of the answer."""

    id: str
    prompt: str | list[Message]
    grader: Grader
    files: dict[str, str] = Field({}, description="Path to text; written into the sandbox first.")
    metadata: dict[str, JsonValue] = Field({}, description="Echoed.")


class Policy(Request):
    """An OpenAI-compatible chat endpoint. `api_key` is never logged, stored or echoed."""

    base_url: str = Field(min_length=1, description="Up to and with /v1.")
    model: str = Field(min_length=1)
    api_key: SecretStr | None = None
    temperature: float | None = None
    max_tokens: int | None = Field(None, gt=0)
    logprobs: bool = True
    extra_body: dict[str, JsonValue] = {}
    timeout_seconds: float = Field(120, gt=0, le=3600, description="Of one answer.")

    @field_serializer("api_key", when_used="json")
    def _key(self, key: SecretStr | None, info: FieldSerializationInfo) -> str | None:
        if key is not None and (info.context or {}).get("with_secrets"):
            return key.get_secret_value()
        return None if key is None else str(key)


class _Agent(Request):
    system_prompt: str | None = Field(None, description="In place of the built-in one.")


class ToolsAgent(_Agent):
    """Agent that calls tools in one sandbox, turn by turn; `submit_solution` ends the episode."""

    kind: Literal["tools"]
    tools: list[Tool] = Field(["execute_code", "submit_solution"], min_length=1)
    max_turns: int = Field(20, gt=0, le=1000)
    exec_timeout_seconds: float = Field(30, gt=0)
    observation_characters: int = Field(8192, ge=256, le=1 << 20)


class RefineAgent(_Agent):
    """Agent that answers with code, and sees the failures before the next answer."""

    kind: Literal["refine"]
    max_attempts: int = Field(3, gt=0, le=100)
    observation_characters: int = Field(8192, ge=256, le=1 << 20)


Agent = Annotated[ToolsAgent | RefineAgent, Field(discriminator="kind")]


class RolloutRequest(Request):
    """Body of POST /rollout."""

    tasks: list[RolloutTask] = Field(min_length=1, max_length=MAX_TASKS)
    policy: Policy
    agent: Agent = ToolsAgent(kind="tools")
    trajectories_per_task: int = Field(1, gt=0, le=MAX_TRAJECTORIES)
    limits: Limits | None = None
    scoring: Scoring = "all"
    extract: Extract = "auto"
    tags: list[str] = Field([], max_length=64)
    job: str = Field("default", min_length=1, max_length=200)
    priority: Priority = "training"
    deadline_seconds: float = Field(3600, gt=0, le=86_400)

    @model_validator(mode="after")
    def _not_too_many(self) -> Self:
        if len(self.tasks) * self.trajectories_per_task > MAX_TRAJECTORIES:
            raise ValueError(f"at most {MAX_TRAJECTORIES} trajectories in one request")
        return self


class Trajectory(Response):
    """One episode.

    `messages_and_choices` holds messages, and the policy's `Choice` objects as received, so that a
    trainer can read tokens and logprobs.
    """

    task_id: str
    index: int
    messages_and_choices: list[dict[str, JsonValue]] = []
    tools: list[dict[str, JsonValue]] | None = None
    reward: float | None = None
    verdict: Verdict | str | None = None
    error: ItemError | None = None
    metrics: dict[str, float] = {}
    metadata: dict[str, JsonValue] = {}
    sandbox_id: str | None = None
    rollout_id: str = ""


class RolloutSummary(Response):
    """Summary of the rollout. `mean_reward` is over judged trajectories, null if there are none."""

    count: int
    judged: int
    passed: int
    errors: int
    mean_reward: float | None = None


class RolloutResponse(Response):
    """Answer of POST /rollout, in the order of the tasks."""

    trajectories: list[Trajectory]
    summary: RolloutSummary


# ---------------------------------------------------------------- capacity, health, errors


class Capacity(Response):
    """Capacity and load of the service, for the choice of a batch size."""

    slots: int
    busy: int
    queued: int
    max_queued: int
    draining: bool
    recent_rewards_per_second: float


class Health(Response):
    """Answer of /healthz and /readyz."""

    status: str
    reason: str | None = None


class Problem(Response):
    """Error of a request. `reason` is stable; `message` is for people."""

    reason: RefusalReason | str
    message: str
    retryable: bool = False
    retry_after_seconds: float | None = None


class ProblemBody(Response):
    """Body of every 4xx and 5xx."""

    error: Problem


def dump(model: BaseModel) -> dict[str, Any]:
    """Return the JSON-ready form of a request, without fields at their default.

    The form contains a policy's key in clear: use the form only as the request's body.
    """
    return model.model_dump(mode="json", exclude_unset=True, context={"with_secrets": True})
