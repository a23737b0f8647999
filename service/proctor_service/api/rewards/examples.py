"""Content of the OpenAPI page: an example for every route, and the schemas of bodies.

Bodies are parsed by hand (`body.py`), so FastAPI does not know their models; this module adds them.
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
)
from proctor_service.api.responses import NDJSON

BODIES: tuple[type[BaseModel], ...] = (
    RewardRequest,
    SandboxRequest,
    ExecRequest,
    GradeRequest,
    RolloutRequest,
)
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
    "level": "calls",
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
ROLLOUT_EXAMPLE: Mapping[str, Any] = {
    "tasks": [
        {
            "id": "p1",
            "prompt": "Write a function double(n).",
            "grader": {"kind": "asserts", "tests": ["assert double(2) == 4"]},
        }
    ],
    "policy": {"base_url": "http://127.0.0.1:8000/v1", "model": "policy", "api_key": "…"},
    "agent": {"kind": "refine", "max_attempts": 3},
    "trajectories_per_task": 1,
}
TRAJECTORY_EXAMPLE: Mapping[str, Any] = {
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
ROLLOUT_SUMMARY_EXAMPLE: Mapping[str, Any] = {
    "count": 1,
    "judged": 1,
    "passed": 1,
    "errors": 0,
    "mean_reward": 1.0,
}
PROBLEM_TEXTS: Mapping[int, tuple[str, str, bool]] = {
    401: ("unauthorized", "a valid token is needed: Authorization: Bearer TOKEN", False),
    404: ("sandbox_not_found", "no sandbox 'sb_1f0c'", False),
    410: ("sandbox_stopped", "sandbox sb_1f0c is stopped: its ttl of 600 s passed", False),
    413: ("invalid_request", "the body is longer than 32 MB", False),
    422: ("invalid_request", "submissions.0.completionn: unknown field", False),
    429: ("busy", "the queue holds 20000 of 20000 submissions", True),
    500: ("internal", "the service failed; its log says how", True),
    503: ("draining", "the service is stopping", True),
    504: ("overloaded", "it is not done yet", True),
}


def problems(*statuses: int) -> Answers:
    """Return a route's error responses, each with an example."""
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
    """Return a route's 200 response with its example, and its error responses."""
    return {200: {"content": {"application/json": {"example": example}}}, **problems(*statuses)}


def body_of(model: type[BaseModel], example: Mapping[str, Any]) -> dict[str, Any]:
    """Return the documentation of a body parsed by hand."""
    content = {
        "schema": {"$ref": f"#/components/schemas/{model.__name__}"},
        "example": example,
    }
    return {"requestBody": {"required": True, "content": {"application/json": content}}}


def reward_docs() -> dict[str, Any]:
    """Return the OpenAPI documentation of POST /reward."""
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


def rollout_docs() -> dict[str, Any]:
    """Return the OpenAPI documentation of POST /rollout."""
    example = {"trajectories": [TRAJECTORY_EXAMPLE], "summary": ROLLOUT_SUMMARY_EXAMPLE}
    found = answers(example, 401, 413, 422, 429, 500, 503)
    found[200]["content"][NDJSON] = {
        "schema": {"type": "string"},
        "example": "a trajectory a line, as they end, and last a line with the summary",
    }
    extra = body_of(RolloutRequest, ROLLOUT_EXAMPLE)
    return {"responses": found, "openapi_extra": extra}


def install_openapi(app: FastAPI, bodies: tuple[type[BaseModel], ...]) -> None:
    """Add the models of bodies parsed by hand, and the authentication scheme."""

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
