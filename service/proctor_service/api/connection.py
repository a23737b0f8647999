"""Client connections: bounds on request heads, and error responses to broken requests."""

from __future__ import annotations

import asyncio
from typing import Any

from starlette.types import ASGIApp, Message, Receive, Scope, Send
from uvicorn.config import Config
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol, RequestResponseCycle
from uvicorn.server import ServerState

from proctor_service.api.heads import (
    MOST_FIELDS,
    MOST_HEAD_BYTES,
    ServerConfig,
    closing_answer,
    malformed,
    too_many_bytes,
    too_many_fields,
)
from proctor_service.errors import Busy, Refusal

PIECE_BYTES = 16 * 1024
LINGER_SECONDS = 2.0
MOST_DISCARDED_BYTES = 1024 * 1024
_FIELD_BYTES = 4  # the colon, a space and the end of the line


class HttpProtocol(HttpToolsProtocol):
    """uvicorn's protocol with bounds on heads, and the contract's body in error responses."""

    def __init__(
        self,
        config: Config,
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
        self._refusal: Refusal | None = None
        self._discarded_bytes = 0

    @property
    def reading_is_paused(self) -> bool:
        """True while the service itself has paused reading from the connection."""
        return self.flow.read_paused

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Accept a connection, and start the time limit of its first head."""
        super().connection_made(transport)
        self._heads.add(self)
        if len(self.connections) > self._most_connections:
            self.refuse(Busy(f"more than {self._most_connections} connections"))

    def connection_lost(self, exc: Exception | None) -> None:
        """Forget the connection."""
        self._heads.remove(self)
        super().connection_lost(exc)

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

    def _count(self, length: int) -> None:
        """Count the bytes of unfinished heads and trailers, without whole heads and bodies."""
        if self._progressed:
            self._heads.shrink(self)
        else:
            self._heads.grow(self, length)
        if self.unparsed_bytes > MOST_HEAD_BYTES:
            self.refuse(too_many_bytes())
        elif self._refusal is None and (
            self._reads_head or not (self._progressed or self._reads_body)
        ):
            self._heads.add(self)

    def on_message_begin(self) -> None:
        """Begin a head."""
        super().on_message_begin()
        self._reads_head = True
        self._head_bytes = 0

    def on_url(self, url: bytes) -> None:
        """Take a part of the request's target. Raises ValueError if too long, to end parsing."""
        self._head_bytes += len(url)
        self._check_head()
        super().on_url(url)

    def on_header(self, name: bytes, value: bytes) -> None:
        """Take a field of the head or trailer. Raises ValueError beyond bounds, to end parsing."""
        self._head_bytes += len(name) + len(value) + _FIELD_BYTES
        self._check_head()
        if len(self.headers) >= MOST_FIELDS:
            self._refusal = too_many_fields()
            raise ValueError("too many fields")
        super().on_header(name, value)

    def _check_head(self) -> None:
        if self._head_bytes > MOST_HEAD_BYTES:
            self._refusal = too_many_bytes()
            raise ValueError("too many bytes")

    def on_headers_complete(self) -> None:
        """Begin a request. Raises ValueError for a body after `Upgrade`, which is ambiguous.

        The parser would report an empty body, and parse the real body as the next request.
        """
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

    def _start_asgi_task(self, cycle: RequestResponseCycle, app: Any) -> None:
        """Start the work for a request; closing the connection ends an answer to HTTP/1.0."""
        serving: Any = _unchunked(app, cycle) if cycle.scope["http_version"] == "1.0" else app
        super()._start_asgi_task(cycle, serving)

    def send_400_response(self, msg: str) -> None:
        """Send the last answer on this connection: parsing has ended, for any reason."""
        self.refuse(self._refusal or malformed(msg))

    def refuse(self, refusal: Refusal) -> None:
        """Answer with an error, and close the connection.

        If an earlier request is being answered, its answer is the last. Later bytes of the client
        are discarded for LINGER_SECONDS; otherwise the client would see a reset instead of the
        answer.
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
            self.transport.write(closing_answer(refusal))
            if not answering and self.transport.can_write_eof():
                self.transport.write_eof()
                self.loop.call_later(LINGER_SECONDS, self.transport.close)
                return
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
