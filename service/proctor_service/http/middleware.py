"""ASGI middleware: tokens, errors without a handler, and headers of every answer.

Every route needs a token, and so do unknown paths. Pages for browsers check their cookie instead.
The compatible routes also accept the token in the path, `/compat/t/TOKEN/…`, since their clients send
no header. `Guard` removes the token from the path, before any code logs the path.
"""

from __future__ import annotations

import ipaddress
import logging
from collections.abc import Callable
from urllib.parse import unquote, unquote_to_bytes, urlsplit

from starlette.datastructures import Headers
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from proctor_client import wire
from proctor_service.errors import Forbidden, Unauthorized
from proctor_service.features.journal.console.policy import is_page, with_policy
from proctor_service.http.problems import internal, of_refusal
from proctor_service.http.tokens import ONLY_TENANT, Tokens

log = logging.getLogger(__name__)

OPEN_PATHS = frozenset({"/healthz", "/readyz"})
METRICS_PATH = "/metrics"
COMPAT, WITH_TOKEN = b"/compat/", b"/compat/t/"
REQUEST_ID = b"proctor-request-id"
WIRE_HEADER = (b"proctor-wire", str(wire.WIRE_VERSION).encode())
LONGEST_REQUEST_ID = 128
ANSWERING = "proctor.answering"
"""Entry of the scope, set by `AnswerHeaders` when an answer has begun."""


class Guard:
    """Middleware that requires a valid token, and answers an unhandled exception with a 500.

    The guard sets `request.state.tenant`, and stands inside of `AnswerHeaders`. `own_url`: where
    clients reach the service, if that is configured.

    Without tokens the service listens on loopback, and a public name in the Host header is refused:
    a web page could have its own name resolve to 127.0.0.1 (DNS rebinding), and then ask and read as
    if it came from here.
    """

    def __init__(
        self, app: ASGIApp, tokens: Tokens, metrics_public: bool, own_url: str | None = None
    ) -> None:
        self._app = app
        self._own_host = None if own_url is None else urlsplit(own_url).hostname
        self._tokens = tokens
        self._open = OPEN_PATHS | ({METRICS_PATH} if metrics_public else frozenset())

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one request."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        try:
            app = self._app
            path: str = scope["path"]
            send = _with_page_headers(send) if is_page(path) else send
            if not self._tokens and path not in self._open and self._is_public(scope):
                message = (
                    "without tokens, the service answers under an IP address or localhost: set "
                    "PROCTOR_TOKENS, or PROCTOR_ADVERTISE_URL to the URL with this name"
                )
                app = of_refusal(Forbidden(message))
            elif path not in self._open and not is_page(path):
                tenant = self._tenant(scope)
                if tenant is None:
                    message = "a valid token is needed: Authorization: Bearer TOKEN"
                    app = of_refusal(Unauthorized(message))
                else:
                    scope.setdefault("state", {})["tenant"] = tenant
            await app(scope, receive, send)
        except Exception:
            log.exception("a request failed", extra={"path": scope["path"]})
            if scope.get(ANSWERING):
                # The answer has begun: only a closed connection tells the client of the failure.
                raise
            await internal()(scope, receive, send)

    def _is_public(self, scope: Scope) -> bool:
        """Return whether the Host header has a name that anybody could own."""
        try:
            host = urlsplit(f"//{Headers(scope=scope).get('host', '')}").hostname or ""
            if "." not in host or host == self._own_host or host.endswith(".localhost"):
                return False
            ipaddress.ip_address(host)
        except ValueError:
            return True
        return False

    def _tenant(self, scope: Scope) -> str | None:
        """Return the tenant of the request's token; remove a token from the path."""
        token = None
        raw: bytes = scope.get("raw_path") or b""
        if raw.startswith(WITH_TOKEN):
            found, _, rest = raw.removeprefix(WITH_TOKEN).partition(b"/")
            scope["raw_path"] = COMPAT + rest
            scope["path"] = unquote(scope["raw_path"].decode("ascii"))
            token = unquote_to_bytes(found)
        if not self._tokens:
            return ONLY_TENANT
        if token is None:
            authorizations = Headers(scope=scope).getlist("authorization")
            scheme, _, text = authorizations[0].partition(" ") if authorizations else ("", "", "")
            if len(authorizations) != 1 or scheme.lower() != "bearer":
                return None
            token = text.strip(" \t").encode("latin-1")  # the received bytes, which are UTF-8
        return self._tokens.tenant(token)


def _with_page_headers(send: Send) -> Send:
    async def heading(message: Message) -> None:
        if message["type"] == "http.response.start":
            message = {**message, "headers": with_policy(message.get("headers", ()))}
        await send(message)

    return heading


class AnswerHeaders:
    """Middleware: the wire's version, the request's id, and the end of connections in a drain.

    The header `Proctor-Request-Id` lets a client detect a connection mixed up with another
    client's; ids other than 1 to 128 visible ASCII characters are ignored. After a drain no client
    and no proxy holds an open connection. Otherwise a client could send a request on a connection
    about to close, and lose the request.
    """

    def __init__(self, app: ASGIApp, draining: Callable[[], bool]) -> None:
        self._app = app
        self._draining = draining

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one request."""
        named = dict(scope["headers"]).get(REQUEST_ID, b"") if scope["type"] == "http" else b""
        if len(named) > LONGEST_REQUEST_ID or not all(33 <= byte <= 126 for byte in named):
            named = b""

        async def heading(message: Message) -> None:
            if message["type"] == "http.response.start":
                scope[ANSWERING] = True
                headers = [*message.get("headers", ()), WIRE_HEADER]
                if self._draining():
                    headers.append((b"connection", b"close"))
                if named:
                    headers.append((REQUEST_ID, named))
                message = {**message, "headers": headers}
            await send(message)

        await self._app(scope, receive, heading)
