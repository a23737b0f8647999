"""Reading a request's body: bounded, sliced, and with errors that name the field.

pydantic's own JSON parser refuses lone surrogates, and a model may well write one; the standard
library's lets them through, at the same speed. A large body is parsed and validated in slices,
since a parser in C holds the interpreter's lock however many threads there are.
"""

from __future__ import annotations

import asyncio
import json
import re
import time
from collections.abc import Iterable, Mapping
from typing import Any

from pydantic import TypeAdapter, ValidationError
from starlette.requests import ClientDisconnect, Request

from proctor_client.wire import MAX_SUBMISSIONS, RewardRequest, Submission
from proctor_service.errors import InvalidRequest, TooLarge

SLICE_SECONDS = 0.005
SLICED_BODY_BYTES = 512 * 1024
SLICED_SUBMISSIONS = 128
MOST_ERRORS = 5
DISCARDED_TIMES = 8
DISCARD_SECONDS = 10.0
MEBIBYTE = 1024 * 1024
_WHITE_SPACE = re.compile(r"[ \t\n\r]*")


class Pacer:
    """Lets the loop answer others when a slice of work took long enough."""

    def __init__(self, seconds: float = SLICE_SECONDS) -> None:
        self._seconds = seconds
        self._until = time.perf_counter() + seconds

    async def pause(self) -> None:
        """Gives way when it is time to."""
        if time.perf_counter() >= self._until:
            await asyncio.sleep(0)
            self._until = time.perf_counter() + self._seconds


async def read_body(request: Request, max_mb: int) -> bytes:
    """The whole body. Raises TooLarge when it is longer than `max_mb`; nothing of it is kept then.

    The rest is read and thrown away, within bounds: most clients send all before they listen, and
    would find a connection that was reset instead of the answer.
    """
    most = max_mb * MEBIBYTE
    declared = request.headers.get("content-length", "")
    # Python takes signs, underscores and foreign digits for numbers; HTTP does not.
    if declared.isascii() and declared.isdigit() and int(declared[:20]) > most:
        await _discard(request, most * DISCARDED_TIMES)
        raise TooLarge(f"the body is {int(declared[:20])} bytes; at most {max_mb} MB are taken")
    chunks: list[bytes] = []
    length = 0
    try:
        async for chunk in request.stream():
            length += len(chunk)
            if length > most:
                chunks.clear()
                await _discard(request, most * DISCARDED_TIMES)
                raise TooLarge(f"the body is longer than {max_mb} MB")
            chunks.append(chunk)
    except ClientDisconnect:
        raise InvalidRequest("the client went away before its request was whole") from None
    return b"".join(chunks)


async def _discard(request: Request, most: int) -> None:
    """Reads what is left of a body, at most so many bytes and seconds of it."""
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


async def parse_reward_request(body: bytes) -> RewardRequest:
    """The request of POST /reward. Raises InvalidRequest, naming the field."""
    data = await _decode(body)
    if not isinstance(data, dict):
        raise InvalidRequest("the body is not a JSON object")
    submissions = data.get("submissions")
    if not isinstance(submissions, list) or len(submissions) <= SLICED_SUBMISSIONS:
        return _validate_head(data)
    if len(submissions) > MAX_SUBMISSIONS:
        raise InvalidRequest(
            f"submissions: {len(submissions)} of them, and at most {MAX_SUBMISSIONS} at once"
        )
    head = _validate_head({**data, "submissions": submissions[:SLICED_SUBMISSIONS]})
    rest = await _validate_rest(submissions)
    return head.model_copy(update={"submissions": [*head.submissions, *rest]})


def _validate_head(data: dict[str, Any]) -> RewardRequest:
    try:
        return RewardRequest.model_validate(data)
    except ValidationError as error:
        raise _invalid(error, 0) from None


async def _validate_rest(submissions: list[Any]) -> list[Submission]:
    adapter = TypeAdapter(list[Submission])
    rest: list[Submission] = []
    for start in range(SLICED_SUBMISSIONS, len(submissions), SLICED_SUBMISSIONS):
        await asyncio.sleep(0)
        try:
            rest += adapter.validate_python(submissions[start : start + SLICED_SUBMISSIONS])
        except ValidationError as error:
            raise _invalid(error, start) from None
    return rest


def _invalid(error: ValidationError, start: int) -> InvalidRequest:
    found = error.errors(include_url=False, include_context=False, include_input=False)
    if start:
        found = [
            {**each, "loc": ("submissions", _offset(each["loc"][0], start), *each["loc"][1:])}
            for each in found
        ]
    return InvalidRequest(describe_errors(found))


def _offset(index: int | str, start: int) -> int:
    return int(index) + start


GRADER_KINDS = frozenset({"exec", "asserts", "calls", "stdio", "pytest", "command"})


def field_path(location: Iterable[int | str]) -> str:
    """`submissions.0.grader.tests`: where a field is, without the names of pydantic's branches."""
    path: list[str] = []
    for part in location:
        before = path[-1] if path else ""
        branch = (before == "grader" and part in GRADER_KINDS) or (
            before == "completion" and part in ("str", "list[Message]")
        )
        if not branch:
            path.append(str(part))
    return ".".join(path) or "body"


def describe_errors(errors: Iterable[Mapping[str, Any]]) -> str:
    """The first few errors, each with its field; the values stay out, they may be programs."""
    found: list[str] = []
    for each in errors:
        said = "unknown field" if each["type"] == "extra_forbidden" else each["msg"]
        line = f"{field_path(each['loc'])}: {said}"
        if line not in found:
            found.append(line)
    more = len(found) - MOST_ERRORS
    return "; ".join(found[:MOST_ERRORS]) + (f"; and {more} more" if more > 0 else "")


async def _decode(body: bytes) -> Any:
    """The JSON value. Raises InvalidRequest when it is none, not UTF-8, or nested too deeply."""
    try:
        text = body.decode("utf-8-sig") if body.startswith(b"\xef\xbb\xbf") else body.decode()
        if len(body) <= SLICED_BODY_BYTES:
            return json.loads(text)
        return await _Slices(text).decode()
    except UnicodeDecodeError as error:
        raise InvalidRequest(f"the body is not UTF-8: byte {error.start}") from None
    except json.JSONDecodeError as error:
        at = f"line {error.lineno} column {error.colno}"
        raise InvalidRequest(f"the body is not JSON: {error.msg} at {at}") from None
    except RecursionError:
        raise InvalidRequest("the body is nested too deeply") from None
    except ValueError as error:  # an integer of more digits than Python reads
        raise InvalidRequest(f"the body is not JSON that is taken here: {error}") from None


class _Slices:
    """A JSON object, decoded with a pause now and then; its list of submissions one by one."""

    def __init__(self, text: str) -> None:
        self._text = text
        self._at = 0
        self._decoder = json.JSONDecoder()
        self._pacer = Pacer()

    async def decode(self) -> Any:
        """The whole value."""
        if self._peek() != "{":
            value = self._value()
        else:
            value = await self._object()
        if self._peek():
            raise json.JSONDecodeError("Extra data", self._text, self._at)
        return value

    async def _object(self) -> dict[str, Any]:
        found: dict[str, Any] = {}
        self._at += 1
        if self._skip("}"):
            return found
        while True:
            if self._peek() != '"':
                raise json.JSONDecodeError("Expecting property name", self._text, self._at)
            name = self._value()
            self._expect(":")
            listed = name == "submissions" and self._peek() == "["
            found[name] = await self._list() if listed else self._value()
            await self._pacer.pause()
            if self._skip("}"):
                return found
            self._expect(",")

    async def _list(self) -> list[Any]:
        found: list[Any] = []
        self._at += 1
        if self._skip("]"):
            return found
        while True:
            self._peek()
            found.append(self._value())
            await self._pacer.pause()
            if self._skip("]"):
                return found
            self._expect(",")

    def _value(self) -> Any:
        self._peek()
        value, self._at = self._decoder.raw_decode(self._text, self._at)
        return value

    def _peek(self) -> str:
        """The next character after white space; empty at the end."""
        space = _WHITE_SPACE.match(self._text, self._at)
        assert space is not None, "the pattern matches the empty string"
        self._at = space.end()
        return self._text[self._at : self._at + 1]

    def _skip(self, character: str) -> bool:
        if self._peek() != character:
            return False
        self._at += 1
        return True

    def _expect(self, character: str) -> None:
        if not self._skip(character):
            raise json.JSONDecodeError(f"Expecting {character!r}", self._text, self._at)
