"""Common base and helpers for the request models of the compatible services.

Unknown fields are ignored, because the clients send more fields than the service uses. Limits above
the server's ceilings are lowered to the ceilings: these clients have no way to learn the ceilings.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from pydantic import BaseModel, ConfigDict, model_validator

from proctor_client import wire
from proctor_client.wire.base import Bounded
from proctor_service.rewards.examples import Answers, body_of, problems
from proctor_service.settings import Settings

PREFIX = "/compat"  # in each router, so the metrics include the prefix in the route
MOST_TESTS = 4096


class Form(Bounded):
    """Base of the compatible requests; a null means a missing field."""

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
    """Return limits of `seconds` CPU time and `seconds` idle time, within the server's ceilings.

    `None`: the server's default.
    """
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
    """Return a route's OpenAPI entries: examples of request and answer, and error responses."""
    found = answered(answer, 413, 422, *statuses)
    return {"responses": found, "openapi_extra": body_of(model, request)}


def answered(answer: Any, *statuses: int) -> Answers:
    """Return the OpenAPI entries of a route's 200, with an example, and of its error responses."""
    return {200: {"content": {"application/json": {"example": answer}}}, **problems(401, *statuses)}
