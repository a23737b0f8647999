"""Request and response of POST /rollout."""

from __future__ import annotations

from typing import Annotated, Literal, Self, get_args

from pydantic import (
    ConfigDict,
    Field,
    FieldSerializationInfo,
    JsonValue,
    SecretStr,
    field_serializer,
    field_validator,
    model_validator,
)

from proctor_client.wire.base import (
    MAX_TASKS,
    MAX_TRAJECTORIES,
    Extract,
    JsonObject,
    NegativeControl,
    Priority,
    Request,
    Response,
    Scoring,
    Texts,
    Tool,
    Verdict,
)
from proctor_client.wire.environments import EnvironmentChoice
from proctor_client.wire.graders import Grader
from proctor_client.wire.limits import Limits
from proctor_client.wire.rewards import Code, ItemError, Messages

_TRAJECTORY: dict[str, JsonValue] = {
    "task_id": "p1",
    "index": 0,
    "messages_and_choices": [
        {"role": "user", "content": "Write a function double(n)."},
        {
            "finish_reason": "stop",
            "index": 0,
            "logprobs": None,
            "message": {
                "role": "assistant",
                "content": "```python\ndef double(n):\n    return 2 * n\n```",
            },
        },
    ],
    "tools": None,
    "reward": 1.0,
    "verdict": "passed",
    "error": None,
    "metrics": {
        "turns": 1,
        "tool_calls": 0,
        "exec_errors": 0,
        "bad_tool_calls": 0,
        "hit_max_turns": 0,
        "context_exceeded": 0,
        "prompt_tokens": 12,
        "completion_tokens": 17,
        "attempts": 1,
        "duration_seconds": 0.84,
    },
    "metadata": {},
    "sandbox_id": "sb_17",
    "rollout_id": "ro_0d9be7a1b2c94f6c8f2c3d1f5d5a6e70",
}
_SUMMARY: dict[str, JsonValue] = {
    "count": 1,
    "judged": 1,
    "passed": 1,
    "errors": 0,
    "mean_reward": 1.0,
}


class RolloutTask(Code):
    """Problem for the policy: the prompt, and the grader of the answer."""

    id: str
    prompt: str | Messages
    grader: Grader
    files: Texts = Field({}, description="Path to text; written into the sandbox first.")
    metadata: JsonObject = Field({}, description="Echoed.")
    environment: EnvironmentChoice | None = Field(None, description="In place of the request's.")
    negative_control: NegativeControl | None = Field(None, description="In place of the request's.")


class Policy(Request):
    """An OpenAI-compatible chat endpoint. `api_key` is never logged, stored or echoed."""

    base_url: str = Field(min_length=1, description="Up to and with /v1.")
    model: str = Field(min_length=1)
    api_key: SecretStr | None = None
    temperature: float | None = None
    max_tokens: int | None = Field(None, gt=0)
    logprobs: bool | Literal["optional"] = Field(
        True, description="`optional`: an endpoint that refuses them is asked without."
    )
    seed: int | None = Field(
        None,
        ge=0,
        le=2**53,
        description="Trajectory `index` of a task has this plus `index`, so that they differ.",
    )
    send_reasoning: bool = Field(
        False,
        description="Send `reasoning` and `reasoning_content` of a reply back in later requests.",
    )
    extra_body: JsonObject = Field({})
    timeout_seconds: float = Field(120, gt=0, le=3600, description="Of one answer.")

    @field_serializer("api_key", when_used="json")
    def _key(self, key: SecretStr | None, info: FieldSerializationInfo) -> str | None:
        if key is not None and (info.context or {}).get("with_secrets"):
            return key.get_secret_value()
        return None if key is None else str(key)


class _Agent(Request):
    system_prompt: str | None = Field(None, description="In place of the built-in one.")


class ToolFunction(Request):
    """A function in the format of OpenAI's API. `parameters`: the JSON schema of an object."""

    name: str = Field(pattern=r"^[A-Za-z0-9_-]{1,64}$")
    description: str = ""
    parameters: JsonObject = Field({"type": "object", "properties": {}})
    strict: bool | None = None


class CustomTool(Request):
    """A tool of the caller: a command in the sandbox that gets the arguments as JSON on stdin."""

    type: Literal["function"] = "function"
    function: ToolFunction
    command: list[str] = Field(min_length=1, max_length=256, description="An argv, no shell.")


class ToolsAgent(_Agent):
    """Agent with tools in a sandbox, turn by turn; `submit_solution` ends the episode."""

    kind: Literal["tools"]
    tools: list[Tool] = Field(["execute_code", "submit_solution"])
    custom_tools: list[CustomTool] = Field(
        [], max_length=64, description="Further tools; none has the name of another tool."
    )
    mcp_servers: list[str] = Field(
        [], max_length=8, description="Names of servers that the service lists; all their tools."
    )
    max_turns: int = Field(20, gt=0, le=1000)
    exec_timeout_seconds: float = Field(30, gt=0)
    observation_characters: int = Field(8192, ge=256, le=1 << 20)

    @field_validator("custom_tools")
    @classmethod
    def _own_names(cls, tools: list[CustomTool]) -> list[CustomTool]:
        taken = set(get_args(Tool))
        for tool in tools:
            if tool.function.name in taken:
                raise ValueError(f"there are two tools {tool.function.name!r}")
            taken.add(tool.function.name)
        return tools


class RefineAgent(_Agent):
    """Agent with answers in code; each failure is shown before the next answer."""

    kind: Literal["refine"]
    max_attempts: int = Field(3, gt=0, le=100)
    observation_characters: int = Field(8192, ge=256, le=1 << 20)


Agent = Annotated[ToolsAgent | RefineAgent, Field(discriminator="kind")]


class RolloutRequest(Request):
    """Body of POST /rollout."""

    model_config = ConfigDict(
        json_schema_extra={
            "examples": [
                {
                    "tasks": [
                        {
                            "id": "p1",
                            "prompt": "Write a function double(n).",
                            "grader": {"kind": "asserts", "tests": ["assert double(2) == 4"]},
                        }
                    ],
                    "policy": {
                        "base_url": "http://127.0.0.1:8000/v1",
                        "model": "policy",
                        "api_key": "…",
                    },
                    "agent": {"kind": "refine", "max_attempts": 3},
                    "trajectories_per_task": 1,
                }
            ]
        }
    )

    tasks: list[RolloutTask] = Field(min_length=1, max_length=MAX_TASKS)
    policy: Policy
    agent: Agent = ToolsAgent(kind="tools")
    trajectories_per_task: int = Field(1, gt=0, le=MAX_TRAJECTORIES)
    limits: Limits | None = None
    scoring: Scoring = "all"
    negative_control: NegativeControl = Field("signal", description="As in /reward.")
    extract: Extract = "auto"
    tags: list[str] = Field([], max_length=64)
    job: str = Field("default", min_length=1, max_length=200)
    step: int | None = Field(
        None, ge=0, le=2**53, description="Step of the training run, for the journal."
    )
    priority: Priority = "training"
    deadline_seconds: float = Field(3600, gt=0, le=86_400)
    environment: EnvironmentChoice | None = Field(
        None,
        description="Environment of its sandboxes, as in GET /environments; by default `default`.",
    )

    @model_validator(mode="after")
    def _not_too_many(self) -> Self:
        if len(self.tasks) * self.trajectories_per_task > MAX_TRAJECTORIES:
            raise ValueError(f"at most {MAX_TRAJECTORIES} trajectories in one request")
        return self


class Trajectory(Response):
    """One episode.

    `messages_and_choices` holds messages, and the policy's `Choice` objects as received, so that a
    trainer can read tokens and logprobs. A `prompt_token_ids` beside the choices of an answer is
    kept in its choice.
    """

    task_id: str
    index: int
    messages_and_choices: list[dict[str, JsonValue]] = Field([])
    tools: list[dict[str, JsonValue]] | None = None
    reward: float | None = None
    verdict: Verdict | str | None = None
    error: ItemError | None = None
    metrics: dict[str, float] = Field({})
    metadata: dict[str, JsonValue] = Field({})
    sandbox_id: str | None = None
    rollout_id: str = ""


class RolloutSummary(Response):
    """Summary of the rollout. `mean_reward` is over judged trajectories, or null."""

    count: int
    judged: int
    passed: int
    errors: int
    mean_reward: float | None = None


class RolloutResponse(Response):
    """Answer of POST /rollout, in the order of the tasks."""

    model_config = ConfigDict(
        json_schema_extra={"examples": [{"trajectories": [_TRAJECTORY], "summary": _SUMMARY}]}
    )

    trajectories: list[Trajectory]
    summary: RolloutSummary
