"""Parser of what an MCP server answers over HTTP: one JSON object, or server-sent events."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Callable
from typing import Any

import httpx

from proctor_service.http.json import STRICT, without_surrogates
from proctor_service.outcomes import JsonObject

MOST_ANSWER_BYTES = 4 << 20


async def read_answer(
    response: httpx.Response, number: int, masked: Callable[[str], str]
) -> JsonObject:
    """Return the JSON-RPC answer to request `number`, with secrets masked in its text.

    Raises ValueError if the body is too long, compressed or has no such answer, and RecursionError.
    """
    if response.headers.get("content-encoding", "identity") != "identity":
        raise ValueError("compressed")
    kind = response.headers.get("content-type", "").partition(";")[0].strip().lower()
    if kind == "application/json":
        body = b"\n".join([line async for line in _lines(response)])
        message = STRICT.decode(masked(body.decode()))
        if _answers(message, number):
            return _object(message)
    elif kind == "text/event-stream":
        async for data in _events(response):
            message = STRICT.decode(masked(data))
            if _answers(message, number):
                return _object(message)
    raise ValueError("no answer")


def text_of_content(content: list[Any], structured: Any) -> str:
    """Return the text of a tool's result; a marker stands for content that is no text."""
    parts = []
    for each in content:
        block = each if isinstance(each, dict) else {}
        resource = block.get("resource")
        text = block.get("text")
        if text is None and isinstance(resource, dict):
            text = resource.get("text")
        if text is None and block.get("type") == "resource_link":
            text = block.get("uri")
        parts.append(text if isinstance(text, str) else "(content that is no text)")
    if not parts and structured is not None:
        parts.append(json.dumps(structured, ensure_ascii=False))
    return without_surrogates("\n".join(parts))


async def _events(response: httpx.Response) -> AsyncIterator[str]:
    """Yield the data of each event."""
    data: list[str] = []
    async for raw in _lines(response):
        line = raw.decode().removesuffix("\r")
        if line.startswith("data:"):
            data.append(line[5:].removeprefix(" "))
        elif not line and data:
            text, data = "\n".join(data), []
            if text.strip():  # the first event may hold only an id
                yield text


async def _lines(response: httpx.Response) -> AsyncIterator[bytes]:
    """Yield the lines of the body. Raises ValueError if the body is too long."""
    size, rest = 0, bytearray()
    async for piece in response.aiter_raw():
        size += len(piece)
        if size > MOST_ANSWER_BYTES:
            raise ValueError("too long")
        rest += piece
        if b"\n" in piece:
            *whole, last = bytes(rest).split(b"\n")
            rest = bytearray(last)
            for line in whole:
                yield line
    yield bytes(rest)


def _answers(message: Any, number: int) -> bool:
    """Return whether a message is the answer to request `number`."""
    return (
        isinstance(message, dict)
        and type(message.get("id")) is int
        and message["id"] == number
        and ("result" in message or "error" in message)
    )


def _object(message: Any) -> JsonObject:
    found: JsonObject = message
    return found
