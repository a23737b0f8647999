"""What the forms of the compatible services have in common.

Unknown fields are let through, for their clients send more than is used here. Limits above this
server's ceilings are lowered to them: these clients cannot be told otherwise.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from pydantic import BaseModel, ConfigDict, model_validator

from proctor_client import wire
from proctor_service.api.rewards.examples import Answers, body_of, problems
from proctor_service.settings import Settings

PREFIX = "/compat"  # in each router, or the metrics would know their routes without it
MOST_TESTS = 4096


class Form(BaseModel):
    """Base of the compatible requests; a null is a field left out."""

    model_config = ConfigDict(extra="ignore", frozen=True)

    @model_validator(mode="before")
    @classmethod
    def _without_nulls(cls, value: Any) -> Any:
        if not isinstance(value, dict):
            return value
        return {name: each for name, each in value.items() if each is not None}


def limits(
    settings: Settings,
    seconds: float,
    *,
    memory_mb: int | None = None,
    output_kb: int | None = None,
) -> wire.Limits:
    """So many seconds of CPU time, and of idling; `None`: this server's default."""
    if memory_mb is not None:
        memory_mb = min(memory_mb, settings.max_memory_mb)
    if output_kb is not None:
        output_kb = min(output_kb, settings.max_output_kb)
    return wire.Limits(
        cpu_seconds=min(seconds, settings.max_cpu_seconds),
        wall_seconds=min(seconds, settings.max_wall_seconds),
        memory_mb=memory_mb,
        output_kb=output_kb,
    )


def documented(
    model: type[BaseModel], request: Mapping[str, Any], answer: Any, *statuses: int
) -> dict[str, Any]:
    """What the OpenAPI page says about a route: an example of both, and the problems."""
    found = answered(answer, 413, 422, *statuses)
    return {"responses": found, "openapi_extra": body_of(model, request)}


def answered(answer: Any, *statuses: int) -> Answers:
    """A route's 200 with its example, and its problems."""
    return {200: {"content": {"application/json": {"example": answer}}}, **problems(401, *statuses)}
