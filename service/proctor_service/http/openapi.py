"""Content of the OpenAPI page: an example for every route, and the schemas of bodies.

The examples stand in the models. Only four kinds stand at the routes: error responses, which share a
model and differ by status; NDJSON and bytes, without a model; other services' formats; and the answer of
/readyz, which shares its model with /healthz. Bodies are parsed by hand (`body.py`), so their models are
unknown to FastAPI; this module adds them.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from fastapi import FastAPI
from fastapi.openapi.utils import get_openapi
from pydantic import BaseModel
from pydantic.json_schema import models_json_schema

from proctor_client.wire import (
    ExecRequest,
    GradeRequest,
    ProblemBody,
    RewardRequest,
    RolloutRequest,
    SandboxRequest,
    TasksRequest,
    example_of,
)

BODIES: tuple[type[BaseModel], ...] = (
    RewardRequest,
    SandboxRequest,
    ExecRequest,
    GradeRequest,
    RolloutRequest,
    TasksRequest,
)
_REFERENCE = "#/components/schemas/{model}"
Answers = dict[int | str, dict[str, Any]]

ProblemText = tuple[str, str, bool]
"""Reason, message, and whether to retry."""

PROBLEM_TEXTS: Mapping[int, ProblemText] = {
    401: ("unauthorized", "a valid token is needed: Authorization: Bearer TOKEN", False),
    403: ("forbidden", "this tenant is no operator", False),
    404: ("sandbox_not_found", "no sandbox 'sb_1f0c'", False),
    410: ("sandbox_stopped", "sandbox sb_1f0c is stopped: its ttl of 600 s passed", False),
    413: ("invalid_request", "the body is longer than 32 MB", False),
    422: ("invalid_request", "submissions.0.completionn: unknown field", False),
    429: ("busy", "the queue holds 20000 of 20000 submissions", True),
    500: ("internal", "the service failed; its log says how", True),
    503: ("draining", "the service is stopping", True),
    504: ("overloaded", "it is not done yet", True),
}


def problems(*statuses: int, own: Mapping[int, ProblemText] = PROBLEM_TEXTS) -> Answers:
    """Return a route's error responses, each with an example. `own`: texts of this route."""
    found: Answers = {}
    for status in statuses:
        reason, message, retryable = own.get(status) or PROBLEM_TEXTS[status]
        body = {
            "reason": reason,
            "message": message,
            "retryable": retryable,
            "retry_after_seconds": 2.5 if status in (429, 503) else None,
        }
        # By name: for a model, FastAPI would build a validator for each status of each route.
        schema = {"$ref": _REFERENCE.format(model=ProblemBody.__name__)}
        content = {"application/json": {"schema": schema, "example": {"error": body}}}
        found[status] = {"description": reason, "content": content}
    return found


def answers(
    model: type[BaseModel],
    *statuses: int,
    success: int = 200,
    example: Mapping[str, Any] | None = None,
    own: Mapping[int, ProblemText] = PROBLEM_TEXTS,
) -> Answers:
    """Return a route's success response and its error responses, each with an example.

    Default of `example`: the model's own. `own`: texts of this route's errors.
    """
    content = {"application/json": {"example": example or example_of(model)}}
    return {success: {"content": content}, **problems(*statuses, own=own)}


def body_of(model: type[BaseModel], example: Mapping[str, Any] | None = None) -> dict[str, Any]:
    """Return the documentation of a body parsed by hand. Default: the model's own example."""
    content = {
        "schema": {"$ref": _REFERENCE.format(model=model.__name__)},
        "example": example or example_of(model),
    }
    return {"requestBody": {"required": True, "content": {"application/json": content}}}


def install_openapi(app: FastAPI, bodies: tuple[type[BaseModel], ...]) -> None:
    """Add the models of bodies parsed by hand and of errors, and the authentication scheme."""

    def schema() -> dict[str, Any]:
        if app.openapi_schema is None:
            found = get_openapi(
                title=app.title,
                version=app.version,
                description=app.description,
                routes=app.routes,
            )
            named: tuple[type[BaseModel], ...] = (ProblemBody, *bodies)
            _, models = models_json_schema(
                [(model, "validation") for model in named],
                ref_template=_REFERENCE,
            )
            components = found.setdefault("components", {})
            components.setdefault("schemas", {}).update(models.get("$defs", {}))
            components["securitySchemes"] = {"token": {"type": "http", "scheme": "bearer"}}
            found["security"] = [{"token": []}]
            app.openapi_schema = found
        return app.openapi_schema

    # FastAPI documents this assignment as the way to extend the schema.
    app.openapi = schema  # type: ignore[method-assign]
