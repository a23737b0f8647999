"""Base classes of requests and responses, values of their fields, and limits."""

from __future__ import annotations

import base64
import re
from typing import Annotated, Any, ClassVar, Literal, TypeAlias, cast

from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    JsonValue,
    ValidationInfo,
    ValidatorFunctionWrapHandler,
    WrapValidator,
    model_validator,
)

_VARIABLE = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
"""Name of an environment variable: `MODEL_2`; a digit in front, as in `2MODEL`, is refused."""
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
    "journal_off",
    "not_replayable",
    "busy",
    "quota_exceeded",
    "budget_exceeded",
    "draining",
    "journal_down",
    "internal",
]
Integrity = Literal["separated", "in_process"]
Level = Literal["calls", "values", "shared"]
CacheResult = Literal["miss", "hit", "coalesced"]
Scoring = Literal["all", "fraction", "points"]
NegativeControl = Literal["off", "signal", "verdict"]
ControlOutcome = Literal["clear", "caught", "none"]
Priority = Literal["evaluation", "training"]
ExtractName = Literal["auto", "xml", "fence", "none", "diff", "edits"]

SandboxStatus = Literal["pending", "running", "stopped", "failed"]
Ending = Literal[
    "exited", "signalled", "cpu_limit", "wall_limit", "memory_limit", "output_limit", "killed"
]
Tool = Literal["execute_code", "submit_solution", "bash", "read_file", "write_file"]

WIRE_VERSION = 1
"""Version of the contract, in the header `Proctor-Wire` of every answer.

Additions, such as a new field or route, leave the version as it is: a client of this version can use a
service with additions. A change that breaks such a client increases the version.
"""
MAX_SUBMISSIONS = 4096
MAX_TASKS = 1024
MAX_TRAJECTORIES = 4096
MAX_FAILURES = 10
MAX_MESSAGES = 16_384
MAX_ARGUMENTS = 65_536
MAX_ENTRIES = 4096
"""Entries of an object of a request: pydantic describes each wrong one, which takes time."""


def few_entries(value: Any) -> Any:
    """Return the value. Raises ValueError for an object with more than MAX_ENTRIES entries."""
    if isinstance(value, dict) and len(value) > MAX_ENTRIES:
        raise ValueError(f"{len(value)} entries, and at most {MAX_ENTRIES} are taken")
    return value


def _named_as_variables(variables: dict[str, str]) -> dict[str, str]:
    for name, value in variables.items():
        if not _VARIABLE.fullmatch(name) or "\0" in value:
            raise ValueError(f"{name[:100]!r} is no name of a variable, or has a zero byte")
    return variables


def _in_base64(files: dict[str, str]) -> dict[str, str]:
    for path, text in files.items():
        try:
            base64.b64decode(text, validate=True)
        except ValueError:
            raise ValueError(f"{path[:100]!r} is not base64") from None
    return files


def _if_parsed(kind: type) -> WrapValidator:
    """Take values of this type as they are if the context says `is_json`.

    The service parsed them from JSON: a second check would take as long, in a single piece.
    """

    def taken(value: Any, check: ValidatorFunctionWrapHandler, info: ValidationInfo) -> Any:
        is_json = info.context is not None and info.context.get("is_json", False)
        return value if is_json and isinstance(value, kind) else check(value)

    return WrapValidator(taken)


Arguments: TypeAlias = Annotated[list[str], Field(max_length=MAX_ARGUMENTS, fail_fast=True)]
Texts: TypeAlias = Annotated[dict[str, str], BeforeValidator(few_entries)]
Variables: TypeAlias = Annotated[Texts, AfterValidator(_named_as_variables)]
"""Values of environment variables by name."""
Base64Texts: TypeAlias = Annotated[Texts, AfterValidator(_in_base64)]
"""Bytes in base64 by path."""
AnyJson: TypeAlias = Annotated[JsonValue, _if_parsed(object)]
JsonArray: TypeAlias = Annotated[list[JsonValue], _if_parsed(list)]
JsonObject: TypeAlias = Annotated[dict[str, JsonValue], _if_parsed(dict)]


class Bounded(BaseModel):
    """Base of objects with a bounded number of fields, unknown ones included."""

    _few_fields = model_validator(mode="before")(staticmethod(few_entries))


class Request(Bounded):
    """Base of the client's requests: unknown fields are rejected, values are frozen."""

    model_config = ConfigDict(extra="forbid", frozen=True)


class GraderBase(Request):
    """Base of graders.

    `by_default`: integrity of its results. `any_language`: False for Python alone. `judges`: a program, the
    files of a working directory, the sandbox left by an agent, a completion with or without code, or the
    change of a repository.
    """

    by_default: ClassVar[Integrity] = "in_process"
    any_language: ClassVar[bool] = False
    judges: ClassVar[Literal["program", "files", "sandbox", "completion", "repository"]] = "program"

    reveal: bool = Field(False, description="Let expected values appear in messages and failures.")


class ExtractRule(Request):
    """Place of the code in a completion, instead of a name: inside a tag, in a fenced block, or both."""

    tags: list[str] = Field(
        [],
        max_length=16,
        description="Names: the last `<name>`, closed or not, is what is looked at.",
    )
    fence: Literal["last", "first", "none"] = Field(
        "last", description="Which fenced block is the code; `none`: the text as it is."
    )


Extract: TypeAlias = ExtractName | ExtractRule


class Response(BaseModel):
    """Base of the service's responses: unknown fields are ignored, values are frozen."""

    model_config = ConfigDict(extra="ignore", frozen=True)


def example_of(model: type[BaseModel]) -> Any:
    """Return the first example of a model, in JSON-ready form."""
    extra = model.model_config["json_schema_extra"]
    assert isinstance(extra, dict)
    return cast(list[Any], extra["examples"])[0]


def dump(model: BaseModel) -> dict[str, Any]:
    """Return the JSON-ready form of a request, without fields at their default.

    The form contains a policy's key in clear: use the form only as the request's body.
    """
    return model.model_dump(mode="json", exclude_unset=True, context={"with_secrets": True})
