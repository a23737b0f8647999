"""Bounds on request heads: bytes, fields, time to completion, and number of unfinished heads.

The service reads a head before authentication, so the client must not control its cost. A connection
counts as unfinished from its acceptance until its first head is whole, and again from the first byte of
each later head. Idle kept-alive connections are left out. `HttpProtocol` is uvicorn's protocol with these
bounds.
"""

from __future__ import annotations

import asyncio
from functools import lru_cache
from typing import Any

import uvicorn
from starlette.types import ASGIApp, Message, Receive, Scope, Send
from uvicorn.protocols.http.httptools_impl import (
    STATUS_LINE,
    HttpToolsProtocol,
    RequestResponseCycle,
)
from uvicorn.server import ServerState

from proctor_service.errors import Busy, HeadTooLarge, MalformedRequest, Refusal, TooSlow
from proctor_service.http.problems import WIRE_HEADER, problem
from proctor_service.scheduling.queue import stopping

MOST_HEAD_BYTES = 64 * 1024
MOST_FIELDS = 100
HEAD_SECONDS = 10.0
MOST_UNFINISHED = 2048
"""In connections; equals the listening socket's backlog, so a burst evicts no honest client."""
MOST_UNFINISHED_BYTES = 16 * 1024 * 1024
PIECE_BYTES = 16 * 1024
LINGER_SECONDS = 2.0
MOST_LINGERING = 32
"""In connections; more would use up the descriptors of the sandboxes during a flood."""
MOST_DISCARDED_BYTES = 1024 * 1024
UNREAD_SECONDS = 600.0
"""Longest pause of a client in reading its answer, which the service holds meanwhile."""
MOST_PIPELINED = 32
"""Requests behind the answered request of a connection; parsing more would hold up the loop."""
_FIELD_BYTES = 4  # the colon, a space and the end of the line
TOO_MANY_BYTES = f"the request's head is longer than {MOST_HEAD_BYTES >> 10} KB"
TOO_MANY_FIELDS = f"the request's head has more than {MOST_FIELDS} fields"
_EXPIRED_AT_ONCE = 100  # connections closed in one turn of the loop
_BETWEEN_TURNS_SECONDS = 0.005


class HeadQueue:
    """Queue of all connections of a server with an unfinished request head, oldest first.

    Beyond its bounds the queue closes the oldest connection, so a new client, such as a probe of
    /healthz, is always served. Belongs to a single event loop.
    """

    def __init__(self, most: int) -> None:
        self._most = most
        self._seconds = HEAD_SECONDS
        self._deadlines: dict[HttpProtocol, float] = {}
        self._bytes = 0
        self._timer: asyncio.TimerHandle | None = None
        self._lingering: set[HttpProtocol] = set()

    def __len__(self) -> int:
        return len(self._deadlines)

    def __contains__(self, connection: HttpProtocol) -> bool:
        return connection in self._deadlines

    def add(self, connection: HttpProtocol) -> None:
        """Start the time limit of a connection's head, unless already running."""
        if connection in self._deadlines:
            return
        loop = asyncio.get_running_loop()
        self._deadlines[connection] = loop.time() + self._seconds
        if len(self._deadlines) > self._most:
            self._refuse(next(iter(self._deadlines)), "too many requests are unfinished")
        if self._timer is None:
            self._timer = loop.call_later(self._seconds, self._expire)

    def grow(self, connection: HttpProtocol, count: int) -> None:
        """Count `count` more bytes of a connection's head."""
        connection.unparsed_bytes += count
        self._bytes += count
        while self._bytes > MOST_UNFINISHED_BYTES:
            oldest = next((each for each in self._deadlines if each.unparsed_bytes), connection)
            self._refuse(oldest, "too many requests are unfinished")

    def shrink(self, connection: HttpProtocol) -> None:
        """Stop counting a connection's bytes: the parser has consumed them."""
        self._bytes -= connection.unparsed_bytes
        connection.unparsed_bytes = 0

    def remove(self, connection: HttpProtocol) -> None:
        """End the time limit of a connection's head: the head is whole, or no longer wanted."""
        self.shrink(connection)
        self._deadlines.pop(connection, None)
        if not self._deadlines and self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def linger(self, connection: HttpProtocol) -> bool:
        """Keep an answered connection open until `forget`; False beyond the bound."""
        if len(self._lingering) >= MOST_LINGERING:
            return False
        self._lingering.add(connection)
        return True

    def lingers(self, connection: HttpProtocol) -> bool:
        """Return True for an answered connection kept open."""
        return connection in self._lingering

    def forget(self, connection: HttpProtocol) -> None:
        """Forget a connection that is closed or lingers no longer."""
        self.remove(connection)
        self._lingering.discard(connection)

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

    def _refuse(self, connection: HttpProtocol, why: str) -> None:
        self.remove(connection)
        connection.refuse(TooSlow(why))


class ServerConfig(uvicorn.Config):
    """uvicorn's configuration, plus the state shared by the connections of a server."""

    def __init__(self, app: Any, heads: HeadQueue, most_connections: int, **options: Any) -> None:
        super().__init__(app, **options)
        self.heads = heads
        self.most_connections = most_connections


@lru_cache(maxsize=16)
def _closing_answer(
    status: int, reason: str, message: str, retryable: bool, retry_after_seconds: float | None
) -> bytes:
    """Return the bytes of an error response after which the connection is closed.

    Cached, since a thousand connections may expire at once.
    """
    answer = problem(
        status, reason, message, retryable=retryable, retry_after_seconds=retry_after_seconds
    )
    answer.headers["connection"] = "close"
    headers = (*answer.raw_headers, WIRE_HEADER)
    head = b"".join(name + b": " + value + b"\r\n" for name, value in headers)
    return STATUS_LINE[status] + head + b"\r\n" + bytes(answer.body)


class HttpProtocol(HttpToolsProtocol):
    """uvicorn's protocol with bounds on heads, and the contract's body in error responses."""

    def __init__(
        self,
        config: uvicorn.Config,
        server_state: ServerState,
        app_state: dict[str, Any],
        _loop: asyncio.AbstractEventLoop | None = None,
    ) -> None:
        super().__init__(config, server_state, app_state, _loop)
        assert isinstance(config, ServerConfig), "made by `make_server`"
        self.unparsed_bytes = 0
        self._heads = config.heads
        self._most_connections = config.most_connections
        self._reads_body = False
        self._reads_head = False
        self._progressed = False
        self._head_bytes = 0
        self._fields = 0
        self._running: RequestResponseCycle | None = None
        self._refusal: Refusal | None = None
        self._discarded_bytes = 0
        self._unread: asyncio.TimerHandle | None = None

    @property
    def reading_is_paused(self) -> bool:
        """True while the service itself has paused reading from the connection."""
        return self.flow.read_paused

    @property
    def lingers(self) -> bool:
        """True while only the client's end of an answered connection is awaited."""
        return self._heads.lingers(self)

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Accept a connection, and start the time limit of its first head."""
        super().connection_made(transport)
        self._heads.add(self)
        if len(self.connections) > self._most_connections:
            self.refuse(Busy(f"more than {self._most_connections} connections"))

    def connection_lost(self, exc: Exception | None) -> None:
        """Forget the connection, and end the running request's work.

        uvicorn tells only the newest request, and pipelined requests may follow the running request.
        """
        self._heads.forget(self)
        self._stop_waiting_for_reader()
        super().connection_lost(exc)
        if self._running is not None and not self._running.response_complete:
            self._running.disconnected = True
            self._running.message_event.set()

    def pause_writing(self) -> None:
        """Start the time limit of a client with an unread answer."""
        super().pause_writing()
        self._unread = self.loop.call_later(UNREAD_SECONDS, self.transport.abort)

    def resume_writing(self) -> None:
        """End the time limit: the client has read."""
        super().resume_writing()
        self._stop_waiting_for_reader()

    def _stop_waiting_for_reader(self) -> None:
        if self._unread is not None:
            self._unread.cancel()
            self._unread = None

    def data_received(self, data: bytes) -> None:
        """Parse the received bytes in pieces, with a check of the bounds after each piece."""
        for start in range(0, len(data), PIECE_BYTES):
            if self._refusal is not None or self.transport.is_closing():
                self._discard(len(data) - start)
                return
            piece = data if len(data) <= PIECE_BYTES else data[start : start + PIECE_BYTES]
            self._progressed = False
            super().data_received(piece)
            if self._refusal is None and not self.transport.is_closing():
                self._count(len(piece))
        self._keep_alive_for_a_while()

    def _keep_alive_for_a_while(self) -> None:
        """Limit the time of an answered connection; uvicorn ends the limit at any further byte.

        A body arriving after its answer, such as a 401, would leave the connection open for ever.
        """
        answered = self.cycle is not None and self.cycle.response_complete
        if answered and self.timeout_keep_alive_task is None and not self.transport.is_closing():
            self.timeout_keep_alive_task = self.loop.call_later(
                self.timeout_keep_alive, self.timeout_keep_alive_handler
            )

    def _count(self, length: int) -> None:
        """Count the bytes of unfinished heads and trailers, without whole heads and bodies."""
        if self._progressed:
            self._heads.shrink(self)
        else:
            self._heads.grow(self, length)
        if self.unparsed_bytes > MOST_HEAD_BYTES:
            self.refuse(HeadTooLarge(TOO_MANY_BYTES))
        elif self._refusal is None and (
            self._reads_head or not (self._progressed or self._reads_body)
        ):
            self._heads.add(self)

    def on_message_begin(self) -> None:
        """Begin a head."""
        super().on_message_begin()
        self._reads_head = True
        self._head_bytes = self._fields = 0

    def on_url(self, url: bytes) -> None:
        """Take a part of the request's target. Raises ValueError if too long, to end parsing."""
        self._add_head_bytes(len(url))
        super().on_url(url)

    def on_header(self, name: bytes, value: bytes) -> None:
        """Take a field of the head. Raises ValueError beyond bounds, to end parsing.

        A field of a trailer counts, and is ignored: proxies check only the head.
        """
        self._add_head_bytes(len(name) + len(value) + _FIELD_BYTES)
        self._fields += 1
        if self._fields > MOST_FIELDS:
            self._refusal = HeadTooLarge(TOO_MANY_FIELDS)
            raise ValueError("too many fields")
        if self._reads_head:
            super().on_header(name, value)

    def _add_head_bytes(self, count: int) -> None:
        self._head_bytes += count
        if self._head_bytes > MOST_HEAD_BYTES:
            self._refusal = HeadTooLarge(TOO_MANY_BYTES)
            raise ValueError("too many bytes")

    def on_headers_complete(self) -> None:
        """Begin a request. Raises ValueError for a body after `Upgrade`, which is ambiguous.

        The parser would report an empty body, and parse the real body as the next request. Raises
        ValueError for too many pipelined requests, too: the last answer then closes the connection.
        """
        if len(self.pipeline) >= MOST_PIPELINED:
            raise ValueError("too many pipelined requests")
        names = {name for name, _ in self.headers}
        if self.parser.should_upgrade() and names & {b"content-length", b"transfer-encoding"}:
            raise ValueError("a body behind Upgrade")
        self._progressed = self._reads_body = True
        self._reads_head = False
        self._heads.remove(self)
        super().on_headers_complete()

    def on_body(self, body: bytes) -> None:
        """Take a part of the body."""
        self._progressed = True
        super().on_body(body)

    def on_message_complete(self) -> None:
        """End a request's body."""
        self._progressed, self._reads_body = True, False
        super().on_message_complete()

    def shutdown(self) -> None:
        """End the connection: an idle connection now, otherwise after the answer.

        A client may just be sending a request with an incomplete head; this client is told to ask
        elsewhere.
        """
        if self in self._heads:
            self.refuse(stopping())
        else:
            super().shutdown()

    def interrupt(self) -> None:
        """Give up a request with a slow body, or an answer with a slow reader.

        The server then cancels the other work for a request.
        """
        cycle = self.cycle
        if cycle is not None and cycle.response_started:
            self.transport.abort()
        elif cycle is not None and cycle.more_body:
            self.refuse(stopping())

    def _start_asgi_task(self, cycle: RequestResponseCycle, app: Any) -> None:
        """Start the work for a request; closing the connection ends an answer to HTTP/1.0."""
        self._running = cycle
        serving: Any = _unchunked(app, cycle) if cycle.scope["http_version"] == "1.0" else app
        super()._start_asgi_task(cycle, serving)

    def send_400_response(self, msg: str) -> None:
        """Send the last answer on this connection: parsing has ended, for any reason."""
        self.refuse(self._refusal or MalformedRequest(msg))

    def refuse(self, refusal: Refusal) -> None:
        """Answer with an error, and close the connection.

        If an earlier request is being answered, its answer is the last. Later bytes of the client are
        discarded for LINGER_SECONDS; otherwise the client would see a reset instead of the answer, as can
        happen beyond MOST_LINGERING connections.
        """
        self._refusal = refusal
        self._heads.remove(self)
        if self.transport.is_closing():
            return
        cycle = self.cycle
        answering = cycle is not None and not cycle.response_complete
        if answering and not cycle.more_body:
            cycle.keep_alive = False
            return
        if not self.pipeline and not (answering and cycle.response_started):
            answer = refusal.status, refusal.reason, refusal.message, refusal.retryable
            self.transport.write(_closing_answer(*answer, refusal.retry_after_seconds))
            if answering:  # its body is not whole, and no more of it is taken
                cycle.disconnected = True
                cycle.message_event.set()
                self.flow.resume_reading()
            if self.transport.can_write_eof() and self._heads.linger(self):
                self.transport.write_eof()
                self.loop.call_later(LINGER_SECONDS, self._end_lingering)
                return
        self.transport.close()

    def _end_lingering(self) -> None:
        self._heads.forget(self)  # a client that reads nothing keeps the connection open
        self.transport.close()

    def _discard(self, length: int) -> None:
        self._discarded_bytes += length
        if self._discarded_bytes > MOST_DISCARDED_BYTES:
            self.transport.close()


def _unchunked(app: ASGIApp, cycle: RequestResponseCycle) -> ASGIApp:
    """Wrap an app so answers of unknown length are sent unchunked: HTTP/1.0 has no chunks."""

    async def serving(scope: Scope, receive: Receive, send: Send) -> None:
        measured = False

        async def sending(message: Message) -> None:
            nonlocal measured
            if message["type"] == "http.response.start":
                measured = any(name == b"content-length" for name, _ in message.get("headers", ()))
                cycle.chunked_encoding = None if measured else False
            elif not measured:
                cycle.expected_content_length = len(message.get("body", b""))
            await send(message)

        await app(scope, receive, sending)

    return serving
