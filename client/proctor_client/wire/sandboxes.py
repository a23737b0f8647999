"""Requests and responses of /sandboxes."""

from __future__ import annotations

from datetime import datetime
from typing import Self

from pydantic import ConfigDict, Field, JsonValue, model_validator

from proctor_client.wire.base import (
    Arguments,
    Ending,
    NegativeControl,
    Request,
    Response,
    SandboxStatus,
    Scoring,
    Texts,
)
from proctor_client.wire.environments import EnvironmentChoice
from proctor_client.wire.graders import Grader
from proctor_client.wire.limits import Limits
from proctor_client.wire.repositories import RepositoryGrader
from proctor_client.wire.rewards import Code, ItemError, Usage

_SANDBOX: dict[str, JsonValue] = {
    "id": "sb_1f0cb3c1d0a94b5c8e2f7a6d5b4c3e2a",
    "status": "running",
    "tags": ["wandb-run:17", "env:code"],
    "backend": "local",
    "environment": "default",
    "created_at": "2025-11-20T10:00:00.000000+00:00",
    "expires_at": "2025-11-20T10:10:00.000000+00:00",
    "exec_stats": {"total": 3, "successes": 2, "failures": 1, "errors": 0},
    "message": "",
}


class SandboxRequest(Request):
    """Body of POST /sandboxes: a sandbox that keeps its state between calls."""

    model_config = ConfigDict(
        json_schema_extra={
            "examples": [
                {
                    "tags": ["wandb-run:17", "env:code"],
                    "ttl_seconds": 600,
                    "files": {"data/n.txt": "42"},
                }
            ]
        }
    )

    tags: list[str] = Field([], max_length=64)
    limits: Limits | None = None
    ttl_seconds: float = Field(600, gt=0, le=86_400, description="Renewed by use.")
    files: Texts = Field({}, description="Path to text; written into it first.")
    job: str = Field("default", min_length=1, max_length=200)
    environment: EnvironmentChoice | None = Field(
        None,
        description="Environment of the sandbox, as in GET /environments; by default `default`.",
    )
    repository: RepositoryGrader | None = Field(
        None,
        description="Task of an agent: `prepare`, `hide`, one commit; its commands run in `directory`, with "
        "`activate` and `env`. Tests and reference stay outside.",
    )


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

    model_config = ConfigDict(json_schema_extra={"examples": [_SANDBOX]})

    id: str
    status: SandboxStatus | str
    tags: list[str] = Field([])
    backend: str
    created_at: datetime
    expires_at: datetime
    exec_stats: ExecStats = ExecStats()
    environment: str = "default"
    message: str = Field("", description="Why it stopped or failed.")


class SandboxList(Response):
    """Answer of GET /sandboxes."""

    model_config = ConfigDict(json_schema_extra={"examples": [{"sandboxes": [_SANDBOX]}]})

    sandboxes: list[Sandbox]
    replicas_missing: int = Field(
        0, description="Replicas that did not answer; what they hold is not counted here."
    )


class StopResponse(Response):
    """Answer of both DELETE routes: the number of stopped sandboxes."""

    model_config = ConfigDict(json_schema_extra={"examples": [{"stopped": 1}]})

    stopped: int
    replicas_missing: int = Field(
        0, description="Replicas that did not answer; what they hold is not counted here."
    )


class ExecRequest(Request):
    """Body of POST /sandboxes/{id}/exec: exactly one of `command` and `code`."""

    model_config = ConfigDict(
        json_schema_extra={"examples": [{"command": ["cat", "data/n.txt"], "timeout_seconds": 10}]}
    )

    command: Arguments | None = Field(None, min_length=1, description="An argv; no shell.")
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

    model_config = ConfigDict(
        json_schema_extra={
            "examples": [
                {
                    "exit_code": 0,
                    "stdout": "42\n",
                    "stderr": "",
                    "ending": "exited",
                    "truncated": False,
                    "usage": {
                        "cpu_seconds": 0.004,
                        "wall_seconds": 0.006,
                        "queue_seconds": 0.001,
                        "peak_memory_mb": 9.1,
                        "compile_seconds": 0.0,
                        "control_seconds": 0.0,
                    },
                }
            ]
        }
    )

    exit_code: int | None = None
    stdout: str = ""
    stderr: str = ""
    ending: Ending | str
    truncated: bool = False
    usage: Usage = Usage()


class ExecLine(Response):
    """Line of an exec's NDJSON stream, with a single field set.

    The last line has `result`, with the whole output, or `error`.
    """

    stdout: str | None = None
    stderr: str | None = None
    result: ExecResult | None = None
    error: ItemError | None = None


class GradeRequest(Code):
    """Body of POST /sandboxes/{id}/grade. The submission is the sandbox's `solution.py`."""

    model_config = ConfigDict(
        json_schema_extra={
            "examples": [{"grader": {"kind": "asserts", "tests": ["assert double(2) == 4"]}}]
        }
    )

    grader: Grader
    scoring: Scoring = "all"
    negative_control: NegativeControl = Field("signal", description="As in /reward.")
    limits: Limits | None = None
    step: int | None = Field(
        None, ge=0, le=2**53, description="Step of the training run, for the journal."
    )
