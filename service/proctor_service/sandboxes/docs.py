"""OpenAPI documentation of the routes of /sandboxes, with the examples of their models."""

from __future__ import annotations

from typing import Any

from starlette.responses import Response

from proctor_client import wire
from proctor_service.http.responses import NDJSON
from proctor_service.rewards.examples import (
    Answers,
    answers,
    body_of,
    problems,
)

Docs = dict[str, Any]

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
        "responses": answers(wire.Sandbox, 401, 410, 413, 422, 429, 500, 503, success=201),
        "openapi_extra": body_of(wire.SandboxRequest) | {"parameters": [KEY]},
    }


def listing() -> Docs:
    """GET /sandboxes."""
    return {"response_model": wire.SandboxList, "responses": answers(wire.SandboxList, 401, 422)}


def get() -> Docs:
    """GET /sandboxes/{id}."""
    found = answers(wire.Sandbox, 401, 404, 422, 500)
    return {"response_model": wire.Sandbox, "responses": found}


def stop() -> Docs:
    """DELETE /sandboxes/{id}."""
    found = answers(wire.StopResponse, *OF_A_SANDBOX, 422)
    return {"response_model": wire.StopResponse, "responses": found}


def stop_tagged() -> Docs:
    """DELETE /sandboxes."""
    return {"response_model": wire.StopResponse, "responses": answers(wire.StopResponse, 401, 422)}


def execute() -> Docs:
    """POST /sandboxes/{id}/exec."""
    found = answers(wire.ExecResult, *OF_A_SANDBOX, 413, 422, 429, 503)
    found[200]["content"][NDJSON] = {
        "schema": {"type": "string"},
        "example": '{"stdout":"4"}\n{"stdout":"2\\n"}\n{"result":{"exit_code":0,"stdout":"42\\n"}}\n',
    }
    return {
        "response_model": wire.ExecResult,
        "responses": found,
        "openapi_extra": body_of(wire.ExecRequest),
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
        "responses": answers(wire.Result, *OF_A_SANDBOX, 413, 422, 429, 503),
        "openapi_extra": body_of(wire.GradeRequest),
    }
