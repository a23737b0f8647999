"""slime's and miles' `remote_rm`: a prompt, a response and a label in, a bare number out.

Their clients raise an exception for every status except 200. slime's client first tries ten times.
miles' client posts once, so a 503 ends the rollout; even so, a 503 is better than a made-up reward.
The reward service defines the meaning of a label. Here a label holds the tests, as JSON or as JSON
in a string:

    {"kind": "asserts", …}                     a grader of Proctor's
    ["assert f(1) == 2", …]                    assert statements; or a single text
    [{"input", "output"}, …]                   programs with stdin and stdout
    {"inputs": […], "outputs": […]}            the same in columns
"""

from __future__ import annotations

import json
from functools import partial
from typing import Any

from fastapi import APIRouter
from pydantic import TypeAdapter, ValidationError
from starlette.requests import Request
from starlette.responses import Response

from proctor_client import wire
from proctor_service.api.body import describe_errors
from proctor_service.api.compat.form import PREFIX, Form, documented
from proctor_service.api.compat.handler import ClientProfile, CompatHandler, RequestContext
from proctor_service.api.compat.skypilot import try_later
from proctor_service.errors import InvalidRequest, InvalidTask

JOB = "slime"
WAIT_SECONDS = 100.0  # some clients wait for only 120

_GRADER: TypeAdapter[wire.Grader] = TypeAdapter(wire.Grader)


class RemoteRm(Form):
    """Body of /remote_rm."""

    prompt: Any = None
    response: str
    label: Any


MANNER: ClientProfile[RemoteRm] = ClientProfile(JOB, lambda asked: WAIT_SECONDS, try_later)


async def _remote_rm(handler: CompatHandler, asked: RemoteRm, context: RequestContext) -> float:
    submission = wire.Submission(completion=asked.response, grader=grader_of(asked.label))
    [judged] = await handler.judge(wire.RewardRequest(submissions=[submission]), context)
    if isinstance(judged, InvalidTask):
        raise InvalidRequest(f"label: {judged.message}")
    return judged.reward


def grader_of(label: Any) -> wire.Grader:
    """Return the grader described by a label. Raises InvalidRequest."""
    value = _decoded(label) if isinstance(label, str) else label
    if isinstance(value, dict) and "kind" not in value:
        value = _rows(value)
    if isinstance(value, str):
        value = [value]
    if isinstance(value, list):
        if all(isinstance(test, str) for test in value):
            value = {"kind": "asserts", "tests": value}
        else:
            value = {"kind": "stdio", "cases": [_case(test) for test in value]}
    if not isinstance(value, dict):
        raise InvalidRequest("label: neither a grader nor tests")
    try:
        return _GRADER.validate_python(value)
    except ValidationError as error:
        said = describe_errors(error.errors(include_url=False, include_input=False))
        raise InvalidRequest(f"label: {said}") from None


def _decoded(label: str) -> Any:
    try:
        return json.loads(label)
    except (ValueError, RecursionError):
        return label


def _rows(columns: dict[str, Any]) -> list[Any]:
    inputs, outputs = columns.get("inputs"), columns.get("outputs")
    if not isinstance(inputs, list) or not isinstance(outputs, list):
        raise InvalidRequest("label: a grader with its kind, or inputs and outputs")
    if len(inputs) != len(outputs):
        raise InvalidRequest(f"label: {len(inputs)} inputs and {len(outputs)} outputs")
    return [{"input": a, "output": b} for a, b in zip(inputs, outputs, strict=True)]


def _case(test: Any) -> dict[str, Any]:
    if not isinstance(test, dict):
        raise InvalidRequest("label: its tests are neither all texts nor all objects")
    stdin, stdout = test.get("stdin", test.get("input", "")), test.get("stdout", test.get("output"))
    return {"stdin": _lines(stdin), "stdout": _lines(stdout)}


def _lines(stream: Any) -> Any:
    """Return the text; a list of texts is joined as lines."""
    if isinstance(stream, list) and all(isinstance(line, str) for line in stream):
        return "\n".join(stream)
    return stream


EXAMPLE = {
    "prompt": "Write double(n).",
    "response": "```python\ndef double(n):\n    return 2 * n\n```",
    "label": '["assert double(2) == 4"]',
}


def slime_routes(handler: CompatHandler) -> APIRouter:
    """Return the route."""
    routes = APIRouter(prefix=PREFIX)

    @routes.post("/remote_rm", **documented(RemoteRm, EXAMPLE, 1.0, 503))
    async def remote_rm(request: Request) -> Response:
        """slime, miles: returns the reward of a response."""
        return await handler.serve(request, RemoteRm, partial(_remote_rm, handler), MANNER)

    return routes
