"""Reader of request bodies: bounded, sliced, and with the field's name in each error.

pydantic's own JSON parser rejects lone surrogates, but a model may write them; the standard
library's parser accepts them, at the same speed. A large body is parsed and validated in slices,
with a pause for the event loop after each slice, because C code holds the interpreter lock even in
another thread.
"""

from __future__ import annotations

import asyncio
import hashlib
import json
from collections.abc import Awaitable, Iterable, Mapping
from dataclasses import dataclass
from itertools import islice
from typing import Any, TypeVar, get_args

from pydantic import BaseModel, ValidationError
from starlette.datastructures import Headers
from starlette.requests import ClientDisconnect, Request

from proctor_client.wire import (
    MAX_SUBMISSIONS,
    Call,
    ExtractName,
    RewardRequest,
    RolloutRequest,
    RolloutTask,
    StdioCase,
    Submission,
    TaskFields,
    TasksRequest,
)
from proctor_client.wire.graders import GRADERS
from proctor_client.wire.near_fields import unknown_field
from proctor_client.wire.repositories import ReportName
from proctor_service.errors import InvalidRequest, MalformedRequest, TooLarge, TooSlow
from proctor_service.http.json import PacedJson
from proctor_service.scheduling.pacer import Pacer

M = TypeVar("M", bound=BaseModel)
T = TypeVar("T")

SLICED_BODY_BYTES = 512 * 1024
MOST_ERRORS = 5
MOST_DESCRIBED = 10_000
DEEPEST = 240
SLICED_VALUES = 10_000
PARSED: Mapping[str, bool] = {"is_json": True}
"""Context of a validation: the values were parsed from JSON."""
MOST_LISTED = MAX_SUBMISSIONS
LONG_LISTS: Mapping[type[BaseModel], tuple[str, type[BaseModel]]] = {
    RewardRequest: ("submissions", Submission),
    RolloutRequest: ("tasks", RolloutTask),
    TasksRequest: ("tasks", TaskFields),
}
CASES: Mapping[str, type[BaseModel]] = {"calls": Call, "stdio": StdioCase}
DISCARDED_TIMES = 8
DISCARD_SECONDS = 10.0
SILENT_SECONDS = 60.0
"""Longest wait for the next bytes of a body; a client without a connection would be waited for forever."""
BODY_SECONDS = 600.0
MEBIBYTE = 1024 * 1024
KEY_HEADER = "idempotency-key"
FORWARDED = "proctor-forwarded"
"""Header of a request passed on by another replica."""
FINGERPRINT = "proctor-fingerprint"
"""Header of a slice: the fingerprint of its replica, and of each replica allowed to judge the slice."""
LONGEST_KEY = 255
HASHED_IN_THREAD_BYTES = MEBIBYTE


@dataclass(frozen=True, slots=True)
class RequestName:
    """Identity of a request: tenant and key. The fingerprint of the body must match as well.

    `judged_with`: fingerprint of the replicas sharing its results; empty without sharing.
    """

    tenant: str
    key: str
    fingerprint: bytes
    judged_with: str = ""


async def read_body(request: Request, max_mb: int) -> bytearray:
    """Return the whole body.

    Raises TooLarge if the body is longer than `max_mb`, and TooSlow after SILENT_SECONDS without a byte,
    or after BODY_SECONDS with an incomplete body.

    The rest of a too large body is read and discarded, within bounds: most clients send the whole body
    before they read, and would otherwise see a connection reset instead of the answer.
    """
    most = max_mb * MEBIBYTE
    declared = request.headers.get("content-length", "")
    # Python's `int` accepts signs, underscores and non-ASCII digits; HTTP forbids them.
    if declared.isascii() and declared.isdigit() and int(declared[:20]) > most:
        await _discard(request, most * DISCARDED_TIMES)
        raise TooLarge(f"the body is {int(declared[:20])} bytes; at most {max_mb} MB are taken")
    body = bytearray()  # grows chunk by chunk; joining 30 MB at once would take 20 ms
    now = asyncio.get_running_loop().time
    end = now() + BODY_SECONDS
    try:
        async with asyncio.timeout_at(min(now() + SILENT_SECONDS, end)) as limit:
            async for chunk in request.stream():
                body += chunk
                if len(body) > most:
                    break
                limit.reschedule(min(now() + SILENT_SECONDS, end))
    except TimeoutError:
        message = f"no byte of the request's body came for {SILENT_SECONDS:g} s"
        if now() >= end:
            message = f"the request's body was not whole after {BODY_SECONDS:g} s"
        raise TooSlow(message) from None
    except ClientDisconnect:
        raise InvalidRequest("the client went away before its request was whole") from None
    if len(body) > most:
        body.clear()
        await _discard(request, most * DISCARDED_TIMES)
        raise TooLarge(f"the body is longer than {max_mb} MB")
    return body


async def part_of_body(coming: Awaitable[T]) -> T:
    """Return the next part of a body to pass on. Raises TooSlow after SILENT_SECONDS."""
    try:
        async with asyncio.timeout(SILENT_SECONDS):
            return await coming
    except TimeoutError:
        message = f"no byte of the request's body came for {SILENT_SECONDS:g} s"
        raise TooSlow(message) from None


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


def key_of(headers: Headers) -> str | None:
    """Return the Idempotency-Key of a request, if any. Raises MalformedRequest for several keys."""
    keys = headers.getlist(KEY_HEADER)
    if len(keys) > 1:
        raise MalformedRequest(f"{KEY_HEADER}: the request has {len(keys)} of them")
    return keys[0] if keys else None


def name_request(tenant: str, key: str, body: bytes | bytearray) -> RequestName:
    """Return the name of a request with a key. Raises InvalidRequest for an invalid key."""
    if not key or len(key) > LONGEST_KEY:
        raise InvalidRequest(f"{KEY_HEADER}: a key has 1 to {LONGEST_KEY} characters")
    return RequestName(tenant, key, hashlib.blake2b(body, digest_size=20).digest())


async def name_any_request(tenant: str, key: str, body: bytes | bytearray) -> RequestName:
    """Return the name of a request, as `name_request`; a thread hashes a large body."""
    if len(body) < HASHED_IN_THREAD_BYTES:
        return name_request(tenant, key, body)
    return await asyncio.to_thread(name_request, tenant, key, body)


async def parse_body(model: type[M], body: bytes | bytearray) -> M:
    """Return the request. Raises InvalidRequest for other bytes than its JSON, naming the field."""
    try:
        text = body.decode("utf-8-sig") if body.startswith(b"\xef\xbb\xbf") else body.decode()
        sliced = len(body) > SLICED_BODY_BYTES
        if sliced:
            data = await _decode_long(text)
        else:
            try:
                data = json.loads(text)
            except json.JSONDecodeError:
                raise
            except ValueError:  # an integer with more digits than Python converts
                data = await PacedJson(text).decode()
    except UnicodeDecodeError as error:
        raise InvalidRequest(f"the body is not UTF-8: byte {error.start}") from None
    except json.JSONDecodeError as error:
        at = f"line {error.lineno} column {error.colno}"
        raise InvalidRequest(f"the body is not JSON: {error.msg} at {at}") from None
    except RecursionError:
        raise InvalidRequest("the body is nested too deeply") from None
    except ValueError as error:  # an integer with too many digits
        raise InvalidRequest(f"the body is not JSON that is taken here: {error}") from None
    if model in LONG_LISTS:
        if not isinstance(data, dict):
            raise InvalidRequest("the body is not a JSON object")
        if sliced:
            data = await _validate_long_fields(data, *LONG_LISTS[model])
    try:
        return model.model_validate(data, context=PARSED if sliced else None)
    except ValidationError as error:
        raise refused(error, model) from None


async def _decode_long(text: str) -> Any:
    """Return the value. Raises ValueError, and RecursionError at the depth refused by pydantic."""
    value = await PacedJson(text).decode()
    pacer = Pacer()
    level = [value] if isinstance(value, list | dict) else []
    for _ in range(DEEPEST):
        inner: list[Any] = []
        for each in level:
            parts = iter(each.values() if type(each) is dict else each)
            while part := list(islice(parts, SLICED_VALUES)):
                inner += [inside for inside in part if type(inside) is list or type(inside) is dict]
                await pacer.pause()
        if not inner:
            return value
        level = inner
    raise RecursionError


async def _validate_long_fields(
    data: dict[str, Any], field: str, model: type[BaseModel]
) -> dict[str, Any]:
    """Validate the items of long lists in steps; pydantic then accepts these models unchecked."""
    pacer = Pacer()
    grader = data.get("grader")
    if isinstance(grader, dict):
        case, cases = CASES.get(str(grader.get("kind"))), grader.get("cases")
        if case is not None and isinstance(cases, list):
            cases = await _validate_each(case, cases, ("grader", "cases"), pacer)
            data = {**data, "grader": {**grader, "cases": cases}}
    values = data.get(field)
    if isinstance(values, list):
        data = {**data, field: await _validate_each(model, values, (field,), pacer)}
    return data


async def _validate_each(
    model: type[BaseModel], values: list[Any], where: tuple[str, ...], pacer: Pacer
) -> list[Any]:
    if len(values) > MOST_LISTED:
        return values  # too many for any field: full validation rejects this quickly
    found: list[BaseModel] = []
    for index, value in enumerate(values):
        try:
            found.append(model.model_validate(value, context=PARSED))
        except ValidationError as error:
            raise refused(error, model, (*where, index)) from None
        await pacer.pause()
    return found


def refused(
    error: ValidationError,
    model: type[BaseModel] | None = None,
    where: tuple[int | str, ...] = (),
) -> InvalidRequest:
    """Return the refusal for values unfit for `model`. `where`: the path to the validated value."""
    if error.error_count() > MOST_DESCRIBED:  # pydantic describes all of them, or none
        return InvalidRequest(f"{field_path(where)}: {error.error_count()} values are wrong")
    found = error.errors(include_url=False, include_context=False, include_input=False)
    return InvalidRequest(describe_errors(found, model, where))


def _words(literal: Any) -> str:
    """Return pydantic's name of the branch of a `Literal`."""
    return f"literal[{','.join(map(repr, get_args(literal)))}]"


BRANCHES: Mapping[str, frozenset[str]] = {
    "grader": frozenset(GRADERS),
    "agent": frozenset({"tools", "refine"}),
    "completion": frozenset({"str", "list[Message]"}),
    "prompt": frozenset({"str", "list[Message]"}),
    "extract": frozenset({_words(ExtractName), "ExtractRule"}),
    "tolerance": frozenset({"constrained-float", "Tolerance"}),
    "stdout": frozenset({"str", "list[str]"}),
    "cases": frozenset({"list", "GeneratedCases"}),
    "checker": frozenset({"name", "Checker"}),
    "seeds": frozenset({"int", "str"}),
    "report": frozenset({_words(ReportName), "JunitReport", "ScriptReport"}),
    "build": frozenset({"str", "list[str]"}),
    "test": frozenset({"str", "list[str]"}),
}
"""Names inserted by pydantic after a field's name, for the tried branch of a union."""


def field_path(location: Iterable[int | str]) -> str:
    """Return the path of a field without pydantic's branch names: `submissions.0.grader.tests`."""
    path: list[str] = []
    before = ""
    for part in map(str, location):
        if part not in BRANCHES.get(before, ()):
            path.append(part)
        if not part.isdigit():  # in a list of a field's values
            before = part
    return ".".join(path) or "body"


def describe_errors(
    errors: Iterable[Mapping[str, Any]],
    model: type[BaseModel] | None = None,
    where: tuple[int | str, ...] = (),
) -> str:
    """Describe the first few errors by field, without input values: they may be programs."""
    found: dict[str, str] = {}
    for each in errors:
        path, message = field_path((*where, *each["loc"])), each["msg"]
        if each["type"] != "extra_forbidden":
            found[f"{path}: {message}"] = f"{path}: {message}"
        elif path not in found:
            hint = unknown_field(model, each["loc"]) if len(found) < MOST_ERRORS else ""
            found[path] = f"{path}: {hint}"
    more = len(found) - MOST_ERRORS
    described = list(found.values())[:MOST_ERRORS]
    return "; ".join(described) + (f"; and {more} more" if more > 0 else "")
