"""Responses: JSON in one piece, or the results of a job as JSON or NDJSON while they finish.

A response in pieces watches its connection: work ends with the connection of its last client.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Collection, Coroutine, Mapping, Sequence
from contextlib import AbstractContextManager, aclosing, nullcontext, suppress
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any, TypeVar

from starlette.requests import ClientDisconnect
from starlette.responses import Response
from starlette.types import Message, Receive, Scope, Send

from proctor_service.http.jobs import Job
from proctor_service.http.json import encode

NDJSON = "application/x-ndjson"
PIECE_BYTES = 1 << 18
T = TypeVar("T")
_NONE: Mapping[str, str] = MappingProxyType({})


@dataclass(frozen=True, slots=True)
class Line:
    """An encoded result, with the fields needed by a summary and by a repeated request."""

    json: bytes
    reward: float | None
    verdict: str | None
    retryable: bool = False

    @property
    def size_bytes(self) -> int:
        """Approximate memory of the line."""
        return len(self.json) + 200


def json_response(body: dict[str, Any], status: int = 200) -> Response:
    """Return a response with a JSON object."""
    return Response(encode(body), status, media_type="application/json")


def response_of(
    pieces: Sequence[bytes], media_type: str, status: int = 200, headers: Mapping[str, str] = _NONE
) -> Response:
    """Return a response with content that is made already; a long one is sent in these pieces."""
    size = sum(map(len, pieces))
    if size <= PIECE_BYTES:
        return Response(b"".join(pieces), status, headers, media_type)
    response = StreamedResponse(_each(pieces), media_type, status=status)
    response.headers.update({**headers, "content-length": str(size)})
    return response


async def _each(pieces: Sequence[bytes]) -> AsyncGenerator[bytes]:
    for piece in pieces:
        yield piece


async def while_connected(work: Coroutine[Any, Any, T], receive: Receive) -> T:
    """Return the result of the work; the request's body must be fully read before.

    Raises the errors of the work, and ClientDisconnect if the client disconnects first: the work is
    then cancelled, and has ended.
    """

    async def watch(limit: asyncio.Timeout) -> None:
        while (await receive())["type"] != "http.disconnect":
            pass
        limit.reschedule(asyncio.get_running_loop().time())

    try:
        async with asyncio.timeout(None) as limit:
            watching = asyncio.create_task(watch(limit))
            try:
                return await work
            finally:
                watching.cancel()
    except TimeoutError:
        if not limit.expired():
            raise
        raise ClientDisconnect from None


class StreamedResponse(Response):
    """A response in pieces, which end when the client disconnects.

    The headers are sent with the first piece, so an earlier error can still be an error response.
    `reading`: context that is open until the last piece.
    """

    def __init__(
        self,
        pieces: AsyncGenerator[bytes],
        media_type: str,
        reading: AbstractContextManager[None] | None = None,
        status: int = 200,
    ) -> None:
        super().__init__(status_code=status, media_type=media_type)
        del self.headers["content-length"]
        self._pieces = pieces
        self._reading = reading or nullcontext()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Send all pieces, or stop when the client disconnects."""
        with self._reading, suppress(ClientDisconnect):
            await while_connected(self._send(send), receive)

    async def _send(self, send: Send) -> None:
        start: Message | None = {
            "type": "http.response.start",
            "status": self.status_code,
            "headers": self.raw_headers,
        }
        async with aclosing(self._pieces) as pieces:
            async for piece in pieces:
                if start is not None:
                    await send(start)
                    start = None
                await send({"type": "http.response.body", "body": piece, "more_body": True})
        await send({"type": "http.response.body", "body": b"", "more_body": False})


@dataclass(frozen=True, slots=True)
class AnswerFormat:
    """Format of a job's response: a JSON object with `field`, or NDJSON `by_line`.

    `counted`: the verdicts counted in the summary. `at_once`: the most results in a piece.
    `headers_first`: send the headers at once. `gather_seconds`: time in which further results come
    into the same piece, since a receiver pays for each piece.
    """

    field: str
    counted: Collection[str]
    by_line: bool
    at_once: int
    headers_first: bool
    gather_seconds: float = 0.0


def job_response(job: Job[Line], form: AnswerFormat) -> StreamedResponse:
    """Return the response with the results of a job, which is left when the client disconnects."""
    if form.by_line:
        return StreamedResponse(_lines(job, form), NDJSON, job.reading())
    return StreamedResponse(_object(job, form), "application/json", job.reading())


async def _lines(job: Job[Line], form: AnswerFormat) -> AsyncGenerator[bytes]:
    yield b""  # sends the headers
    sent = 0
    while True:
        if found := job.finished(sent, form.at_once):
            sent += len(found)
            yield b"".join(each.json + b"\n" for each in found)
        elif job.done:
            break
        else:
            await job.progress()
            if form.gather_seconds:
                await job.wait(form.gather_seconds)
    yield b'{"summary":' + _summary(job.results(), form) + b"}\n"


async def _object(job: Job[Line], form: AnswerFormat) -> AsyncGenerator[bytes]:
    if form.headers_first:
        yield b""
    await job.wait()
    lines = job.results()
    piece = b'{"%s":[' % form.field.encode()
    for start in range(0, len(lines), form.at_once):
        if start:
            yield piece
            piece = b","
        piece += b",".join(each.json for each in lines[start : start + form.at_once])
    yield piece + b'],"summary":' + _summary(lines, form) + b"}"


def _summary(lines: Collection[Line], form: AnswerFormat) -> bytes:
    rewards = [each.reward for each in lines if each.reward is not None]
    verdicts = [each.verdict for each in lines]
    return encode(
        {
            "count": len(lines),
            "judged": len(rewards),
            **{verdict: verdicts.count(verdict) for verdict in form.counted},
            "errors": len(lines) - len(rewards),
            "mean_reward": sum(rewards) / len(rewards) if rewards else None,
        }
    )
