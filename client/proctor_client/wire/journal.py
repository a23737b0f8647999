"""Query and responses of the journal: recorded evaluations and rollouts, and replays."""

from __future__ import annotations

from datetime import datetime
from typing import Literal

from pydantic import ConfigDict, Field, JsonValue

from proctor_client.wire.base import (
    CacheResult,
    ControlOutcome,
    ErrorReason,
    ExtractRule,
    Integrity,
    Level,
    Request,
    Response,
    Verdict,
)
from proctor_client.wire.rewards import Tests, Usage

_EVALUATION: dict[str, JsonValue] = {
    "id": "ev_5f0c6f2b8d2e4a0c9a5b1f3d7e6c8a90",
    "at": "2026-03-14T09:26:53.589793+00:00",
    "job": "run-17",
    "step": 120,
    "task": "p1",
    "submission_id": "p1-c0",
    "rollout_id": None,
    "tags": ["warm-up"],
    "verdict": "failed",
    "reward": 0.0,
    "error": None,
    "tests": {"passed": 1, "total": 2, "failures": []},
    "integrity": "separated",
    "level": "calls",
    "hack_signals": [],
    "negative_control": None,
    "exit_code": 0,
    "cache": "miss",
    "usage": {
        "cpu_seconds": 0.004,
        "wall_seconds": 0.006,
        "queue_seconds": 0.001,
        "peak_memory_mb": 9.1,
        "compile_seconds": 0.0,
        "control_seconds": 0.0,
    },
    "seconds": 0.012,
    "sandbox_id": "sb_17",
    "graded_sandbox_id": None,
    "trace_id": None,
    "version": "0.9.0",
    "grader_kind": "asserts",
    "completion_characters": 56,
    "with_texts": True,
}
_FAILURE: dict[str, JsonValue] = {
    "index": 1,
    "test": "assert double(2) == 4",
    "message": "AssertionError",
}
_DETAIL: dict[str, JsonValue] = {
    **_EVALUATION,
    "tests": {"passed": 1, "total": 2, "failures": [_FAILURE]},
    "replayable": True,
    "completion": "<answer>\ndef double(n):\n    return n\n</answer>",
    "source": "def double(n):\n    return n",
    "source_begin": 9,
    "extract": "auto",
    "prompt": "Write a function double(n).",
    "language": "python",
    "environment": "default",
    "grader": {"kind": "asserts", "tests": ["assert double(0) == 0", "assert double(2) == 4"]},
    "limits": {"cpu_seconds": 5.0, "wall_seconds": 60.0, "memory_mb": 512},
    "scoring": "all",
    "files": {},
    "message": "1 of 2 tests failed",
    "stdout": "",
    "stderr": "",
    "truncated": False,
    "error_message": "",
}
_RECORDED: dict[str, JsonValue] = {
    "verdict": "failed",
    "reward": 0.0,
    "error": None,
    "message": "1 of 2 tests failed",
    "tests": {"passed": 1, "total": 2, "failures": [_FAILURE]},
    "integrity": "separated",
    "level": "calls",
    "hack_signals": [],
    "negative_control": None,
    "exit_code": 0,
    "stdout": "",
    "stderr": "",
    "version": "0.9.0",
}
_REPLAYED: dict[str, JsonValue] = {
    **_RECORDED,
    "verdict": "passed",
    "reward": 1.0,
    "message": "",
    "tests": {"passed": 2, "total": 2, "failures": []},
    "version": "0.10.0",
}


class EvaluationQuery(Request):
    """Query of GET /evaluations: conditions joined by "and", and the place in the list."""

    job: str | None = Field(None, max_length=200)
    step: int | None = Field(None, ge=0, le=2**53)
    task: str | None = Field(None, max_length=1000)
    tag: str | None = Field(None, max_length=256)
    signal: str | None = Field(None, max_length=256, description="One of the hack signals.")
    verdict: Verdict | None = None
    error: Literal["*", ErrorReason] | None = Field(
        None, description="The reason of the error; `*` stands for any."
    )
    reward: float | None = Field(None, allow_inf_nan=False, description="Exactly this reward.")
    rollout_id: str | None = Field(None, max_length=128)
    text: str | None = Field(
        None,
        min_length=1,
        max_length=1000,
        description="Words that all stand in the completion.",
    )
    limit: int = Field(50, ge=1, le=500, description="Longest page.")
    cursor: str | None = Field(
        None, pattern="^[0-9]{1,18}$", description="The `next` of the page before."
    )


class Evaluation(Response):
    """A recorded evaluation, without its texts; `failures` of `tests` is empty.

    `verdict` and `reward` are null exactly when `error` is set.
    """

    model_config = ConfigDict(json_schema_extra={"examples": [_EVALUATION]})

    id: str
    at: datetime = Field(description="When it ended.")
    job: str
    step: int | None = None
    task: str | None = Field(
        None,
        description="The group of a submission, or a rollout's task; a long name ends in a digest.",
    )
    submission_id: str | None = None
    rollout_id: str | None = None
    tags: list[str] = Field([])
    verdict: Verdict | str | None = None
    reward: float | None = None
    error: ErrorReason | str | None = Field(None, description="The reason of the error.")
    tests: Tests = Tests()
    integrity: Integrity | str | None = None
    level: Level | str | None = None
    hack_signals: list[str] = Field([])
    negative_control: ControlOutcome | str | None = None
    exit_code: int | None = None
    cache: CacheResult | str
    usage: Usage = Usage()
    seconds: float = Field(description="From its admission to its end.")
    sandbox_id: str | None = None
    graded_sandbox_id: str | None = Field(
        None, description="The stateful sandbox whose files were judged."
    )
    trace_id: str | None = None
    version: str = Field(description="Version of the service.")
    grader_kind: str | None = None
    completion_characters: int
    with_texts: bool = Field(description="False where the journal kept no texts.")


class EvaluationDetail(Evaluation):
    """A recorded evaluation with all its fields. Texts are null in a journal without texts."""

    model_config = ConfigDict(json_schema_extra={"examples": [_DETAIL]})

    replayable: bool = Field(description="True if it can be judged again.")
    completion: str | None = None
    source: str | None = Field(None, description="The judged code; null without code.")
    source_begin: int | None = Field(
        None, description="Index in `completion`; null if the code is no part of it."
    )
    extract: ExtractRule | str | None = None
    prompt: JsonValue = Field(None, description="What the policy saw: a text or messages.")
    language: str | None = None
    environment: str | None = None
    grader: dict[str, JsonValue] | None = None
    limits: dict[str, JsonValue] | None = None
    scoring: str | None = None
    files: dict[str, str] = Field({})
    message: str | None = None
    stdout: str | None = None
    stderr: str | None = None
    truncated: bool | None = None
    error_message: str | None = None


class EvaluationPage(Response):
    """Answer of GET /evaluations: the newest first."""

    model_config = ConfigDict(
        json_schema_extra={"examples": [{"evaluations": [_EVALUATION], "next": "81723"}]}
    )

    evaluations: list[Evaluation]
    next: str | None = Field(None, description="The `cursor` of the next page; null on the last.")


class Judged(Response):
    """Outcome of judging a submission. `message` is the error's, if any."""

    verdict: Verdict | str | None = None
    reward: float | None = None
    error: ErrorReason | str | None = None
    message: str = ""
    tests: Tests = Tests()
    integrity: Integrity | str | None = None
    level: Level | str | None = None
    hack_signals: list[str] = Field([])
    negative_control: ControlOutcome | str | None = None
    exit_code: int | None = None
    stdout: str = ""
    stderr: str = ""
    version: str = Field(description="Version of the service that judged.")


class Replay(Response):
    """Answer of POST /evaluations/{id}/replay. A replay is not recorded."""

    model_config = ConfigDict(
        json_schema_extra={
            "examples": [
                {
                    "id": _EVALUATION["id"],
                    "same": False,
                    "recorded": _RECORDED,
                    "replayed": _REPLAYED,
                }
            ]
        }
    )

    id: str
    same: bool = Field(description="True if verdict, reward and the reason of an error are equal.")
    recorded: Judged
    replayed: Judged


class RolloutRecord(Response):
    """A recorded rollout, with its evaluations in their order. Texts are null in a journal without texts.

    `verdict` and `reward` are null exactly when `error` is set.
    """

    model_config = ConfigDict(
        json_schema_extra={
            "examples": [
                {
                    "id": "ro_1f0c6f2b8d2e4a0c9a5b1f3d7e6c8a90",
                    "at": "2026-03-14T09:26:53.589793+00:00",
                    "job": "run-17",
                    "step": 120,
                    "task": "p1",
                    "tags": [],
                    "verdict": "failed",
                    "reward": 0.0,
                    "error": None,
                    "error_message": "",
                    "metrics": {"turns": 1, "duration_seconds": 2.5},
                    "sandbox_id": "sb_17",
                    "version": "0.9.0",
                    "messages_and_choices": [{"role": "user", "content": "Write double(n)."}],
                    "tools": [],
                    "evaluations": [_EVALUATION],
                }
            ]
        }
    )

    id: str
    at: datetime = Field(description="When it ended.")
    job: str
    step: int | None = None
    task: str | None = None
    tags: list[str] = Field([])
    verdict: Verdict | str | None = None
    reward: float | None = None
    error: ErrorReason | str | None = Field(None, description="The reason of the error.")
    error_message: str | None = None
    metrics: dict[str, float] = Field({})
    sandbox_id: str | None = None
    version: str
    messages_and_choices: list[dict[str, JsonValue]] | None = None
    tools: list[dict[str, JsonValue]] | None = None
    evaluations: list[Evaluation] = Field([])
