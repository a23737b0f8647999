"""What the OpenAPI page shows: an example for every route, and the schemas of bodies.

Bodies are parsed by hand (`body.py`), so FastAPI does not know their models; they are added here.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from fastapi import FastAPI
from fastapi.openapi.utils import get_openapi
from pydantic import BaseModel
from pydantic.json_schema import models_json_schema

from proctor_client.wire import ProblemBody, RewardRequest

NDJSON = "application/x-ndjson"
Answers = dict[int | str, dict[str, Any]]

REQUEST_EXAMPLE: Mapping[str, Any] = {
    "submissions": [
        {
            "id": "p1-c0",
            "group": "p1",
            "completion": "<answer>\ndef double(n):\n    return 2 * n\n</answer>",
        }
    ],
    "grader": {"kind": "asserts", "tests": ["assert double(2) == 4", "assert double(0) == 0"]},
    "limits": {"cpu_seconds": 5},
    "job": "run-17",
}
RESULT_EXAMPLE: Mapping[str, Any] = {
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
    "hack_signals": [],
    "usage": {
        "cpu_seconds": 0.004,
        "wall_seconds": 0.006,
        "queue_seconds": 0.001,
        "peak_memory_mb": 9.1,
    },
    "cache": "miss",
    "sandbox_id": "sb_17",
    "degraded": [],
}
SUMMARY_EXAMPLE: Mapping[str, Any] = {
    "count": 1,
    "judged": 1,
    "passed": 1,
    "no_code": 0,
    "errors": 0,
    "mean_reward": 1.0,
}
PROBLEM_TEXTS: Mapping[int, tuple[str, str, bool]] = {
    401: ("unauthorized", "a valid token is needed: Authorization: Bearer TOKEN", False),
    413: ("invalid_request", "the body is longer than 32 MB", False),
    422: ("invalid_request", "submissions.0.completionn: unknown field", False),
    429: ("busy", "the queue holds 20000 of 20000 submissions", True),
    500: ("internal", "the service failed; its log says how", True),
    503: ("draining", "the service is stopping", True),
}


def problems(*statuses: int) -> Answers:
    """The problems that a route may answer with, each with an example."""
    found: Answers = {}
    for status in statuses:
        reason, message, retryable = PROBLEM_TEXTS[status]
        body = {
            "reason": reason,
            "message": message,
            "retryable": retryable,
            "retry_after_seconds": 2.5 if status in (429, 503) else None,
        }
        content = {"application/json": {"example": {"error": body}}}
        found[status] = {"model": ProblemBody, "description": reason, "content": content}
    return found


def answers(example: Mapping[str, Any], *statuses: int) -> Answers:
    """A route's 200 with its example, and its problems."""
    return {200: {"content": {"application/json": {"example": example}}}, **problems(*statuses)}


def body_of(model: type[BaseModel], example: Mapping[str, Any]) -> dict[str, Any]:
    """The documentation of a body that is parsed by hand."""
    content = {
        "schema": {"$ref": f"#/components/schemas/{model.__name__}"},
        "example": example,
    }
    return {"requestBody": {"required": True, "content": {"application/json": content}}}


def reward_docs() -> dict[str, Any]:
    """What the OpenAPI page says about POST /reward."""
    example = {"results": [RESULT_EXAMPLE], "summary": SUMMARY_EXAMPLE}
    found = answers(example, 401, 413, 422, 429, 500, 503)
    found[200]["content"][NDJSON] = {
        "schema": {"type": "string"},
        "example": "a result a line, as they finish, and last a line with the summary",
    }
    key = {
        "name": "Idempotency-Key",
        "in": "header",
        "required": False,
        "schema": {"type": "string", "maxLength": 255},
        "description": "A repeated request gets the first one's answer; items whose error is "
        "retryable are judged anew.",
    }
    extra = body_of(RewardRequest, REQUEST_EXAMPLE) | {"parameters": [key]}
    return {"responses": found, "openapi_extra": extra}


def install_openapi(app: FastAPI, bodies: tuple[type[BaseModel], ...]) -> None:
    """Adds the models of the bodies that are parsed by hand, and says how to authenticate."""

    def schema() -> dict[str, Any]:
        if app.openapi_schema is None:
            found = get_openapi(
                title=app.title,
                version=app.version,
                description=app.description,
                routes=app.routes,
            )
            reference = "#/components/schemas/{model}"
            _, models = models_json_schema(
                [(model, "validation") for model in bodies], ref_template=reference
            )
            components = found.setdefault("components", {})
            components.setdefault("schemas", {}).update(models.get("$defs", {}))
            components["securitySchemes"] = {"token": {"type": "http", "scheme": "bearer"}}
            found["security"] = [{"token": []}]
            app.openapi_schema = found
        return app.openapi_schema

    # FastAPI documents this assignment as the way to extend the schema.
    app.openapi = schema  # type: ignore[method-assign]
