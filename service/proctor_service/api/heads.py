"""Bounds on request heads: bytes, fields, time to completion, and number of unfinished heads.

The service reads a head before authentication, so the client must not control its cost. A
connection counts as unfinished from its acceptance until its first head is whole, and again from
the first byte of each later head. An idle kept-alive connection does not count.
"""

from __future__ import annotations

import asyncio
from functools import lru_cache
from typing import Any, Protocol

import uvicorn
from uvicorn.protocols.http.httptools_impl import STATUS_LINE

from proctor_service.api.problems import problem
from proctor_service.errors import HeadTooLarge, HeadTooSlow, MalformedRequest, Refusal

MOST_HEAD_BYTES = 64 * 1024
MOST_FIELDS = 100
HEAD_SECONDS = 10.0
MOST_UNFINISHED = 2048
"""In connections; equals the listening socket's backlog, so a burst evicts no honest client."""
MOST_UNFINISHED_BYTES = 16 * 1024 * 1024
_EXPIRED_AT_ONCE = 100  # connections closed in one turn of the loop
_BETWEEN_TURNS_SECONDS = 0.005


class Unfinished(Protocol):
    """A connection with an unfinished request head."""

    unparsed_bytes: int

    @property
    def reading_is_paused(self) -> bool:
        """True while the service itself has paused reading from the connection."""

    def refuse(self, refusal: Refusal) -> None:
        """Answer with an error if possible, and close the connection."""


class HeadQueue:
    """Queue of all connections of one server with an unfinished request head, oldest first.

    Beyond its bounds the queue closes the oldest connection, so a new client, such as a probe of
    /healthz, is always served. Belongs to one event loop.
    """

    def __init__(self, most: int) -> None:
        self._most = most
        self._seconds = HEAD_SECONDS
        self._deadlines: dict[Unfinished, float] = {}
        self._bytes = 0
        self._timer: asyncio.TimerHandle | None = None

    def __len__(self) -> int:
        return len(self._deadlines)

    def add(self, connection: Unfinished) -> None:
        """Start the time limit of a connection's head, unless already running."""
        if connection in self._deadlines:
            return
        loop = asyncio.get_running_loop()
        self._deadlines[connection] = loop.time() + self._seconds
        if len(self._deadlines) > self._most:
            self._refuse(next(iter(self._deadlines)), "too many requests are unfinished")
        if self._timer is None:
            self._timer = loop.call_later(self._seconds, self._expire)

    def grow(self, connection: Unfinished, count: int) -> None:
        """Count `count` more bytes of a connection's head."""
        connection.unparsed_bytes += count
        self._bytes += count
        while self._bytes > MOST_UNFINISHED_BYTES:
            oldest = next((each for each in self._deadlines if each.unparsed_bytes), connection)
            self._refuse(oldest, "too many requests are unfinished")

    def shrink(self, connection: Unfinished) -> None:
        """Stop counting a connection's bytes: the parser has consumed them."""
        self._bytes -= connection.unparsed_bytes
        connection.unparsed_bytes = 0

    def remove(self, connection: Unfinished) -> None:
        """Forget a connection: its head is whole, or the connection is closed."""
        self.shrink(connection)
        self._deadlines.pop(connection, None)
        if not self._deadlines and self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _expire(self) -> None:
        """Close connections past their deadline, a few in each turn of the loop."""
        self._timer = None
        loop = asyncio.get_running_loop()
        now = loop.time()
        for connection in list(self._deadlines)[:_EXPIRED_AT_ONCE]:
            if self._deadlines[connection] > now:
                break
            if connection.reading_is_paused:  # the head may be waiting in an unread buffer
                del self._deadlines[connection]
                self._deadlines[connection] = now + self._seconds
            else:
                self._refuse(
                    connection, f"the request's head was not whole after {self._seconds:g} s"
                )
        if self._deadlines:
            first = next(iter(self._deadlines.values()))
            wait = max(first - loop.time(), _BETWEEN_TURNS_SECONDS)
            self._timer = loop.call_later(wait, self._expire)

    def _refuse(self, connection: Unfinished, why: str) -> None:
        self.remove(connection)
        connection.refuse(HeadTooSlow(why))


class ServerConfig(uvicorn.Config):
    """uvicorn's configuration, plus the state shared by the connections of one server."""

    def __init__(self, app: Any, heads: HeadQueue, most_connections: int, **options: Any) -> None:
        super().__init__(app, **options)
        self.heads = heads
        self.most_connections = most_connections


def closing_answer(refusal: Refusal) -> bytes:
    """Return the bytes of an error response after which the connection is closed."""
    return _answer(refusal.status, refusal.reason, refusal.message, refusal.retryable)


@lru_cache(maxsize=16)
def _answer(status: int, reason: str, message: str, retryable: bool) -> bytes:
    """Encode an error response; cached, since a thousand connections may expire at once."""
    answer = problem(status, reason, message, retryable=retryable)
    answer.headers["connection"] = "close"
    head = b"".join(name + b": " + value + b"\r\n" for name, value in answer.raw_headers)
    return STATUS_LINE[status] + head + b"\r\n" + bytes(answer.body)


def too_many_bytes() -> HeadTooLarge:
    """Return the error for a head with too many bytes."""
    return HeadTooLarge(f"the request's head is longer than {MOST_HEAD_BYTES >> 10} KB")


def too_many_fields() -> HeadTooLarge:
    """Return the error for a head with too many fields."""
    return HeadTooLarge(f"the request's head has more than {MOST_FIELDS} fields")


def malformed(message: str) -> MalformedRequest:
    """Return the error for bytes other than valid HTTP."""
    return MalformedRequest(message)
