"""OpenAPI documentation of the routes of /sandboxes: an example for each."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from starlette.responses import Response

from proctor_client import wire
from proctor_service.api.responses import NDJSON
from proctor_service.api.rewards.examples import (
    RESULT_EXAMPLE,
    Answers,
    answers,
    body_of,
    problems,
)

Docs = dict[str, Any]

SANDBOX_ID = "sb_1f0cb3c1d0a94b5c8e2f7a6d5b4c3e2a"
SANDBOX: Mapping[str, Any] = {
    "id": SANDBOX_ID,
    "status": "running",
    "tags": ["wandb-run:17", "env:code"],
    "backend": "local",
    "created_at": "2025-11-20T10:00:00.000000+00:00",
    "expires_at": "2025-11-20T10:10:00.000000+00:00",
    "exec_stats": {"total": 3, "successes": 2, "failures": 1, "errors": 0},
    "message": "",
}
EXECUTED: Mapping[str, Any] = {
    "exit_code": 0,
    "stdout": "42\n",
    "stderr": "",
    "ending": "exited",
    "truncated": False,
    "usage": RESULT_EXAMPLE["usage"],
}
ORDER = {"tags": ["wandb-run:17", "env:code"], "ttl_seconds": 600, "files": {"data/n.txt": "42"}}
EXEC = {"command": ["cat", "data/n.txt"], "timeout_seconds": 10}
GRADE = {"grader": {"kind": "asserts", "tests": ["assert double(2) == 4"]}}
STOPPED = {"stopped": 1}
BYTES = {"schema": {"type": "string", "format": "binary"}, "example": "42\n"}
KEY = {
    "name": "Idempotency-Key",
    "in": "header",
    "required": False,
    "schema": {"type": "string", "maxLength": 255},
    "description": "A repeated request gets the sandbox that the first one made.",
}
OF_A_SANDBOX = (401, 404, 410, 500)


def create() -> Docs:
    """POST /sandboxes."""
    return {
        "status_code": 201,
        "response_model": wire.Sandbox,
        "responses": _answer(SANDBOX, 201) | problems(401, 410, 413, 422, 429, 500, 503),
        "openapi_extra": body_of(wire.SandboxRequest, ORDER) | {"parameters": [KEY]},
    }


def listing() -> Docs:
    """GET /sandboxes."""
    example = {"sandboxes": [SANDBOX]}
    return {"response_model": wire.SandboxList, "responses": answers(example, 401, 422)}


def get() -> Docs:
    """GET /sandboxes/{id}."""
    return {"response_model": wire.Sandbox, "responses": answers(SANDBOX, 401, 404, 422, 500)}


def stop() -> Docs:
    """DELETE /sandboxes/{id}."""
    found = answers(STOPPED, *OF_A_SANDBOX, 422)
    return {"response_model": wire.StopResponse, "responses": found}


def stop_tagged() -> Docs:
    """DELETE /sandboxes."""
    return {"response_model": wire.StopResponse, "responses": answers(STOPPED, 401, 422)}


def execute() -> Docs:
    """POST /sandboxes/{id}/exec."""
    found = answers(EXECUTED, *OF_A_SANDBOX, 413, 422, 429, 503)
    found[200]["content"][NDJSON] = {
        "schema": {"type": "string"},
        "example": '{"stdout":"4"}\n{"stdout":"2\\n"}\n{"result":{"exit_code":0,"stdout":"42\\n"}}\n',
    }
    return {
        "response_model": wire.ExecResult,
        "responses": found,
        "openapi_extra": body_of(wire.ExecRequest, EXEC),
    }


def write_file() -> Docs:
    """PUT /sandboxes/{id}/files/{path}."""
    body = {"required": True, "content": {"application/octet-stream": BYTES}}
    return {
        "status_code": 204,
        "responses": problems(*OF_A_SANDBOX, 413, 422),
        "openapi_extra": {"requestBody": body},
    }


def read_file() -> Docs:
    """GET /sandboxes/{id}/files/{path}."""
    found: Answers = {200: {"content": {"application/octet-stream": BYTES}}}
    return {"response_class": Response, "responses": found | problems(*OF_A_SANDBOX, 422)}


def grade() -> Docs:
    """POST /sandboxes/{id}/grade."""
    return {
        "response_model": wire.Result,
        "responses": answers(RESULT_EXAMPLE, *OF_A_SANDBOX, 413, 422, 429, 503),
        "openapi_extra": body_of(wire.GradeRequest, GRADE),
    }


def _answer(example: Mapping[str, Any], status: int) -> Answers:
    return {status: {"content": {"application/json": {"example": example}}}}
