"""Answer of GET /verifiers."""

from __future__ import annotations

from pydantic import ConfigDict, Field, JsonValue

from proctor_client.wire.base import Response

_EXACT: dict[str, JsonValue] = {
    "name": "exact",
    "description": "The completion, or its text after a marker, equals an answer.",
    "language": "python",
    "environment": None,
    "params": {
        "answer": {
            "types": ["string", "array"],
            "required": True,
            "default": None,
            "choices": [],
            "description": "Right answer, or a list of right answers, as texts.",
        }
    },
    "limits": {"cpu_seconds": 5.0},
    "digest": "0f9d2b6c1e7a4d35",
    "available": True,
    "reason": None,
}


class VerifierParam(Response):
    """Parameter of a verifier."""

    types: list[str] = Field(description="Types of JSON, of which a value has one.")
    required: bool = False
    default: JsonValue = Field(None, description="Null: none.")
    choices: list[JsonValue] = Field([], description="The only values, if there are any.")
    description: str = ""


class VerifierLimits(Response):
    """Limits of a verifier's runs; null: the service's default."""

    cpu_seconds: float | None = None
    wall_seconds: float | None = None
    total_cpu_seconds: float | None = None
    total_wall_seconds: float | None = None
    memory_mb: int | None = None
    output_kb: int | None = None
    processes: int | None = None
    disk_mb: int | None = None


class Verifier(Response):
    """Verifier of the service, for the grader `verifier` by its name."""

    model_config = ConfigDict(json_schema_extra={"examples": [_EXACT]})

    name: str
    description: str
    language: str = "python"
    environment: str | None = Field(None, description="Of its sandbox; null: `default`.")
    params: dict[str, VerifierParam] = Field(default_factory=dict)
    limits: VerifierLimits | None = Field(None, description="Of its runs, where it sets some.")
    digest: str = Field("", description="Changes with its source and its parameters.")
    available: bool = True
    reason: str | None = Field(None, description="Why it is not available, and the remedy.")


class VerifierList(Response):
    """Answer of GET /verifiers, by name."""

    model_config = ConfigDict(json_schema_extra={"examples": [{"verifiers": [_EXACT]}]})

    verifiers: list[Verifier]
