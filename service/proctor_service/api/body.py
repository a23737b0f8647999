"""Reader of request bodies: bounded, sliced, and with errors that name the field.

pydantic's own JSON parser rejects lone surrogates, but a model may write them; the standard
library's parser accepts them, at the same speed. A large body is parsed and validated in slices,
because a C parser holds the interpreter lock even in another thread.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Iterable, Mapping
from typing import Any, TypeVar

from pydantic import BaseModel, ValidationError
from starlette.requests import ClientDisconnect, Request

from proctor_client.wire import (
    MAX_SUBMISSIONS,
    Call,
    RewardRequest,
    RolloutRequest,
    RolloutTask,
    StdioCase,
    Submission,
)
from proctor_service.api.rewards.slices import Pacer, SlicedJson
from proctor_service.errors import BodyTooSlow, InvalidRequest, TooLarge

M = TypeVar("M", bound=BaseModel)

SLICED_BODY_BYTES = 512 * 1024
MOST_ERRORS = 5
MOST_LISTED = MAX_SUBMISSIONS
CASES: tuple[tuple[str, type[BaseModel]], ...] = (("calls", Call), ("stdio", StdioCase))
DISCARDED_TIMES = 8
DISCARD_SECONDS = 10.0
SILENT_SECONDS = 60.0
"""Longest wait for the next bytes of a body; a client without a connection sends none, for ever."""
MEBIBYTE = 1024 * 1024


async def read_body(request: Request, max_mb: int) -> bytearray:
    """Return the whole body.

    Raises TooLarge if the body is longer than `max_mb`, and BodyTooSlow after SILENT_SECONDS
    without a byte.

    The rest of a too large body is read and discarded, within bounds: most clients send the whole
    body before they read, and would otherwise see a connection reset instead of the answer.
    """
    most = max_mb * MEBIBYTE
    declared = request.headers.get("content-length", "")
    # Python's `int` accepts signs, underscores and non-ASCII digits; HTTP forbids them.
    if declared.isascii() and declared.isdigit() and int(declared[:20]) > most:
        await _discard(request, most * DISCARDED_TIMES)
        raise TooLarge(f"the body is {int(declared[:20])} bytes; at most {max_mb} MB are taken")
    body = bytearray()  # grows chunk by chunk; joining 30 MB at once would take 20 ms
    chunks = aiter(request.stream())
    try:
        while (chunk := await _next(chunks)) is not None:
            if len(body) + len(chunk) > most:
                body = bytearray()
                await _discard(request, most * DISCARDED_TIMES)
                raise TooLarge(f"the body is longer than {max_mb} MB")
            body += chunk
    except ClientDisconnect:
        raise InvalidRequest("the client went away before its request was whole") from None
    return body


async def _next(chunks: AsyncIterator[bytes]) -> bytes | None:
    """Return the next bytes of a body, or None at the end. Raises BodyTooSlow."""
    try:
        async with asyncio.timeout(SILENT_SECONDS):
            return await anext(chunks, None)
    except TimeoutError:
        message = f"no byte of the request's body came for {SILENT_SECONDS:g} s"
        raise BodyTooSlow(message) from None


async def _discard(request: Request, most: int) -> None:
    """Read and discard the rest of a body: at most `most` bytes, for at most DISCARD_SECONDS."""
    length = 0
    try:
        async with asyncio.timeout(DISCARD_SECONDS):
            while length <= most:
                message = await request.receive()
                length += len(message.get("body", b""))
                if message["type"] != "http.request" or not message.get("more_body"):
                    return
    except TimeoutError:
        return


async def parse_body(model: type[M], body: bytes | bytearray) -> M:
    """Return the request of any other route. Raises InvalidRequest, naming the field."""
    try:
        return model.model_validate(await _decode(body))
    except ValidationError as error:
        raise _invalid(error) from None


async def parse_reward_request(body: bytes | bytearray) -> RewardRequest:
    """Return the request of POST /reward. Raises InvalidRequest, naming the field."""
    data = await _decode(body)
    if not isinstance(data, dict):
        raise InvalidRequest("the body is not a JSON object")
    if len(body) > SLICED_BODY_BYTES:
        data = await _validate_long_fields(data)
    try:
        return RewardRequest.model_validate(data)
    except ValidationError as error:
        raise _invalid(error) from None


async def parse_rollout_request(body: bytes | bytearray) -> RolloutRequest:
    """Return the request of POST /rollout. Raises InvalidRequest, naming the field."""
    data = await _decode(body)
    if not isinstance(data, dict):
        raise InvalidRequest("the body is not a JSON object")
    tasks = data.get("tasks")
    if isinstance(tasks, list) and len(body) > SLICED_BODY_BYTES:
        data = {**data, "tasks": await _validate_each(RolloutTask, tasks, ("tasks",), Pacer())}
    try:
        return RolloutRequest.model_validate(data)
    except ValidationError as error:
        raise _invalid(error) from None


async def _validate_long_fields(data: dict[str, Any]) -> dict[str, Any]:
    """Validate the items of long lists in steps; pydantic then accepts these models unchecked."""
    pacer = Pacer()
    grader = data.get("grader")
    if isinstance(grader, dict):
        case = next((model for kind, model in CASES if grader.get("kind") == kind), None)
        cases = grader.get("cases")
        if case is not None and isinstance(cases, list):
            cases = await _validate_each(case, cases, ("grader", "cases"), pacer)
            data = {**data, "grader": {**grader, "cases": cases}}
    submissions = data.get("submissions")
    if isinstance(submissions, list):
        each = await _validate_each(Submission, submissions, ("submissions",), pacer)
        data = {**data, "submissions": each}
    return data


async def _validate_each(
    model: type[BaseModel], values: list[Any], where: tuple[str, ...], pacer: Pacer
) -> list[Any]:
    if len(values) > MOST_LISTED:
        return values  # too many for any field: full validation rejects this quickly
    found: list[BaseModel] = []
    for index, value in enumerate(values):
        try:
            found.append(model.model_validate(value))
        except ValidationError as error:
            raise _invalid(error, (*where, index)) from None
        await pacer.pause()
    return found


def _invalid(error: ValidationError, where: tuple[int | str, ...] = ()) -> InvalidRequest:
    found = error.errors(include_url=False, include_context=False, include_input=False)
    return InvalidRequest(
        describe_errors({**each, "loc": (*where, *each["loc"])} for each in found)
    )


BRANCHES: Mapping[str, frozenset[str]] = {
    "grader": frozenset({"exec", "asserts", "calls", "stdio", "pytest", "command"}),
    "agent": frozenset({"tools", "refine"}),
    "completion": frozenset({"str", "list[Message]"}),
    "prompt": frozenset({"str", "list[Message]"}),
}
"""Names that pydantic inserts after a field's name, for the tried branch of a union."""


def field_path(location: Iterable[int | str]) -> str:
    """Return the path of a field without pydantic's branch names: `submissions.0.grader.tests`."""
    path: list[str] = []
    before = ""
    for part in map(str, location):
        if part not in BRANCHES.get(before, ()):
            path.append(part)
        before = part
    return ".".join(path) or "body"


def describe_errors(errors: Iterable[Mapping[str, Any]]) -> str:
    """Describe the first few errors by field, without input values: they may be programs."""
    found: list[str] = []
    for each in errors:
        said = "unknown field" if each["type"] == "extra_forbidden" else each["msg"]
        line = f"{field_path(each['loc'])}: {said}"
        if line not in found:
            found.append(line)
    more = len(found) - MOST_ERRORS
    return "; ".join(found[:MOST_ERRORS]) + (f"; and {more} more" if more > 0 else "")


async def _decode(body: bytes | bytearray) -> Any:
    """Return the JSON value. Raises InvalidRequest for bad JSON, bad UTF-8, or deep nesting."""
    try:
        text = body.decode("utf-8-sig") if body.startswith(b"\xef\xbb\xbf") else body.decode()
        if len(body) <= SLICED_BODY_BYTES:
            return json.loads(text)
        return await SlicedJson(text).decode()
    except UnicodeDecodeError as error:
        raise InvalidRequest(f"the body is not UTF-8: byte {error.start}") from None
    except json.JSONDecodeError as error:
        at = f"line {error.lineno} column {error.colno}"
        raise InvalidRequest(f"the body is not JSON: {error.msg} at {at}") from None
    except RecursionError:
        raise InvalidRequest("the body is nested too deeply") from None
    except ValueError as error:  # an integer with more digits than Python converts
        raise InvalidRequest(f"the body is not JSON that is taken here: {error}") from None
