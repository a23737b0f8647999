"""Connections: work that is done for one client ends with it, and a service that stops closes them."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any, TypeVar

from starlette.requests import ClientDisconnect
from starlette.types import ASGIApp, Message, Receive, Scope, Send
from uvicorn.protocols.http.httptools_impl import STATUS_LINE, HttpToolsProtocol

from proctor_service.api.problems import problem
from proctor_service.errors import InvalidRequest

T = TypeVar("T")


async def while_connected(work: Coroutine[Any, Any, T], receive: Receive) -> T:
    """What the work gives; the request's body must have been read before.

    Raises what the work raises, and ClientDisconnect when the client went away first: the work is
    cancelled then, and has ended.
    """
    doing = asyncio.create_task(work)
    watching = asyncio.create_task(_gone(receive))
    try:
        await asyncio.wait({doing, watching}, return_when=asyncio.FIRST_COMPLETED)
        if not doing.done():
            raise ClientDisconnect
        return doing.result()
    finally:
        for task in (doing, watching):
            task.cancel()
        await asyncio.gather(doing, watching, return_exceptions=True)


async def _gone(receive: Receive) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass


class LastAnswers:
    """While the service drains, each answer is the last one on its connection.

    At the end no client, and no proxy, then holds one that is about to be closed, and sends on it
    what nobody will read.
    """

    def __init__(self, app: ASGIApp, draining: Callable[[], bool]) -> None:
        self._app = app
        self._draining = draining

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serves one request."""

        async def closing(message: Message) -> None:
            if message["type"] == "http.response.start" and self._draining():
                headers = [*message.get("headers", ()), (b"connection", b"close")]
                message = {**message, "headers": headers}
            await send(message)

        await self._app(scope, receive, closing)


class HttpProtocol(HttpToolsProtocol):
    """uvicorn's; what is no HTTP gets the contract's body from it, too."""

    def on_headers_complete(self) -> None:
        """Begins a request. One with a body behind `Upgrade` is none that can be understood.

        The parser would tell of an empty body, and take the real one for the next request.
        """
        names = {name for name, _ in self.headers}
        if self.parser.should_upgrade() and names & {b"content-length", b"transfer-encoding"}:
            raise ValueError("a body behind Upgrade")
        super().on_headers_complete()

    def send_400_response(self, msg: str) -> None:
        """The last answer on this connection."""
        refused = problem(400, InvalidRequest.reason, msg)
        refused.headers["connection"] = "close"
        head = b"".join(name + b": " + value + b"\r\n" for name, value in refused.raw_headers)
        self.transport.write(STATUS_LINE[400] + head + b"\r\n" + bytes(refused.body))
        self.transport.close()
