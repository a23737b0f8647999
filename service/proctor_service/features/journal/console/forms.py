"""Fields of the pages: parameters, forms, and the playground, where a form judges a completion by hand."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Mapping
from typing import Any
from urllib.parse import parse_qsl

from pydantic import ValidationError
from starlette.requests import Request

from proctor_client import wire
from proctor_service.errors import InvalidRequest
from proctor_service.http.body import read_body, refused

FORM_MB = 2
JOB = "playground"
KINDS: Mapping[str, str] = {
    "asserts": "Python asserts, one per line",
    "stdio": "standard input and expected output",
    "pytest": "a file of pytest tests",
    "exec": "none: it must run and exit with 0",
    "json": "a grader as JSON",
}
EXAMPLE: Mapping[str, str] = {
    "completion": "```python\ndef double(n):\n    return 2 * n\n```",
    "kind": "asserts",
    "tests": "assert double(2) == 4\nassert double(0) == 0",
    "stdin": "",
    "language": "python",
}


async def form_of(request: Request) -> dict[str, str]:
    """Return the fields of a form. Raises InvalidRequest, TooLarge and TooSlow."""
    kind = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    if kind != "application/x-www-form-urlencoded":
        raise InvalidRequest("a form is application/x-www-form-urlencoded")
    body = await read_body(request, FORM_MB)
    try:
        return await asyncio.to_thread(_fields, bytes(body))
    except ValueError as error:
        raise InvalidRequest(f"form: {error}") from None


def _fields(body: bytes) -> dict[str, str]:
    return dict(parse_qsl(body.decode("ascii"), keep_blank_values=True, max_num_fields=50))


def query_of(parameters: Mapping[str, str]) -> wire.EvaluationQuery:
    """Return the query of a list, without empty fields. Raises InvalidRequest."""
    try:
        return wire.EvaluationQuery.model_validate(
            {k: v for k, v in parameters.items() if v.strip()}
        )
    except ValidationError as error:
        raise refused(error, wire.EvaluationQuery) from None


def request_of(form: Mapping[str, str]) -> bytes:
    """Return the body of POST /reward for a form. Raises InvalidRequest."""
    kind = form.get("kind", "")
    if kind not in KINDS:
        raise InvalidRequest(f"kind: one of {', '.join(KINDS)}")
    names = ("tests", "stdin", "completion")
    tests, stdin, completion = (form.get(name, "").replace("\r\n", "\n") for name in names)
    submission = {
        "completion": completion,
        "grader": _GRADERS[kind](tests, stdin),
        "language": form.get("language", "python"),
    }
    return json.dumps({"submissions": [submission], "job": JOB}).encode()


def _json(tests: str, _: str) -> Any:
    try:
        return json.loads(tests)
    except (ValueError, RecursionError) as error:
        raise InvalidRequest(f"tests: no JSON: {error}") from None


_GRADERS: Mapping[str, Callable[[str, str], Any]] = {
    "asserts": lambda tests, _: {
        "kind": "asserts",
        "tests": [each for each in tests.split("\n") if each.strip()],
    },
    "stdio": lambda tests, stdin: {"kind": "stdio", "cases": [{"stdin": stdin, "stdout": tests}]},
    "pytest": lambda tests, _: {"kind": "pytest", "files": {"test_submission.py": tests}},
    "exec": lambda _, __: {"kind": "exec"},
    "json": _json,
}
