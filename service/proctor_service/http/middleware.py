"""Middleware around every request: its token, its measurement, its headers, and errors without a handler.

Every route needs a token, and so do unknown paths. Pages for browsers check their cookie instead.
The compatible routes also accept the token in the path, `/compat/t/TOKEN/…`, since their clients send
no header. `Entrance` removes the token from the path, before any code logs the path.
"""

from __future__ import annotations

import asyncio
import hashlib
import hmac
import ipaddress
import logging
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from urllib.parse import unquote, unquote_to_bytes, urlsplit

from starlette.datastructures import Headers
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from proctor_service.errors import Cancelled, Forbidden, Refusal, Unauthorized
from proctor_service.http.problems import WIRE_HEADER, internal, of_failure, of_refusal
from proctor_service.observe.metrics import CLIENT_GONE_STATUS
from proctor_service.scheduling.queue import DRAINING

log = logging.getLogger(__name__)

OPEN_PATHS = frozenset({"/healthz", "/readyz"})
METRICS_PATH = "/metrics"
COMPAT, WITH_TOKEN = b"/compat/", b"/compat/t/"
REQUEST_ID = b"proctor-request-id"
LONGEST_REQUEST_ID = 128
ONLY_TENANT = "local"
"""Tenant of all requests while no token is configured."""

Answered = Callable[[str, str, int, float], None]
"""Observer of an answer: method, route template, status, seconds."""
SAFE_METHODS = frozenset({"GET", "HEAD", "OPTIONS"})
"""Methods without effect; browsers hide their answers from other pages."""


class Tokens:
    """The tenants' tokens; False without tokens."""

    def __init__(self, tokens: Mapping[str, str]) -> None:
        # Digests have equal lengths, so the comparison reveals nothing about a token's length.
        self._digests = {tenant: _digest(token.encode()) for tenant, token in tokens.items()}

    def __bool__(self) -> bool:
        return bool(self._digests)

    def tenant(self, token: bytes) -> str | None:
        """Return the tenant of a token, or None."""
        shown = _digest(token)
        found = None
        for tenant, digest in self._digests.items():  # no early exit: equal time for all tenants
            if hmac.compare_digest(shown, digest):
                found = tenant
        return found

    def key(self, tenant: str, purpose: str) -> bytes | None:
        """Return a key derived from a tenant's token; None for an unknown tenant.

        All replicas with the same tokens derive the same key. The key ends with the token.
        """
        digest = self._digests.get(tenant)
        return None if digest is None else hmac.digest(digest, purpose.encode(), "sha256")


def _digest(token: bytes) -> bytes:
    return hashlib.sha256(token).digest()


@dataclass(frozen=True, slots=True)
class Pages:
    """Pages for browsers, which log in by themselves: all paths at and below `path`.

    `headers`: added to every answer under the path, beside the headers of the answer itself.
    """

    path: str
    headers: Mapping[str, str]


class Entrance:
    """Middleware around all routes, which sets `request.state.tenant`.

    `own_url`: URL of the service for clients, if configured. `draining`: whether the service drains; its
    answers then end their connections, since a client could otherwise send a request on a connection
    about to close, and lose it. `answered` is called for each request.

    Without tokens the service listens on loopback, and a public name in the Host header is refused: a web
    page could have its own name resolve to 127.0.0.1 (DNS rebinding), and then ask and read like a page
    of this service. Another page may still send a request without reading the answer, so browsers'
    requests for changes must come from a page of this service. Pages check their forms themselves.

    The header `Proctor-Request-Id` lets a client detect a connection mixed up with another client's; ids
    other than 1 to 128 visible ASCII characters are ignored.
    """

    def __init__(
        self,
        app: ASGIApp,
        tokens: Tokens,
        metrics_public: bool,
        draining: Callable[[], bool],
        answered: Answered,
        own_url: str | None = None,
        pages: Pages | None = None,
    ) -> None:
        self._app = app
        self._tokens = tokens
        self._has_tokens = bool(tokens)
        self._open = OPEN_PATHS | ({METRICS_PATH} if metrics_public else frozenset())
        self._draining = draining
        self._answered = answered
        self._own_host = None if own_url is None else urlsplit(own_url).hostname
        self._pages = pages

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve a request; an unhandled exception is answered with a 500.

        A cancellation is of the server, at the end of a stop, and is answered with a 503.
        """
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        begun, status = time.perf_counter(), CLIENT_GONE_STATUS
        has_begun = is_counted = False
        page_headers = None
        if (pages := self._pages) is not None and f"{scope['path']}/".startswith(pages.path + "/"):
            page_headers = pages.headers

        def count() -> None:
            nonlocal is_counted
            if not is_counted:
                is_counted = True
                template = getattr(scope.get("route"), "path", None)
                method, route = ("any", "none") if template is None else (scope["method"], template)
                self._answered(method, route, status, time.perf_counter() - begun)

        async def answer(message: Message) -> None:
            nonlocal has_begun, status
            if message["type"] == "http.response.start":
                has_begun, status = True, message["status"]
                own = message.get("headers", ())
                message = {**message, "headers": self._headers(scope, own, page_headers)}
            elif not message.get("more_body", False):
                # Count before the answer ends, so that the client then finds its request counted.
                count()
            await send(message)

        try:
            refusal = self._refusal(scope, page_headers is not None)
            app = self._app if refusal is None else of_refusal(refusal)
            await app(scope, receive, answer)
        except asyncio.CancelledError:
            if has_begun or (task := asyncio.current_task()) is None:
                raise
            task.uncancel()
            await of_failure(Cancelled(DRAINING))(scope, receive, answer)
        except Exception:
            log.exception("a request failed", extra={"path": scope["path"]})
            if has_begun:  # only a closed connection tells the client of the failure
                raise
            await internal()(scope, receive, answer)
        finally:
            count()

    def _headers(
        self,
        scope: Scope,
        own: Iterable[tuple[bytes, bytes]],
        page_headers: Mapping[str, str] | None,
    ) -> list[tuple[bytes, bytes]]:
        """Return the headers of an answer: its own headers, and the headers of every answer."""
        headers = [*own]
        if page_headers is not None:
            names = {name.lower() for name, _ in headers}
            added = [(name.encode(), value.encode()) for name, value in page_headers.items()]
            headers += [each for each in added if each[0] not in names]
        headers.append(WIRE_HEADER)
        if self._draining():
            headers.append((b"connection", b"close"))
        request_id = dict(scope["headers"]).get(REQUEST_ID, b"")
        is_visible = all(33 <= byte <= 126 for byte in request_id)
        if is_visible and 1 <= len(request_id) <= LONGEST_REQUEST_ID:
            headers.append((REQUEST_ID, request_id))
        return headers

    def _refusal(self, scope: Scope, is_page: bool) -> Refusal | None:
        """Return the refusal of a request, or None and set its tenant; remove a token from the path."""
        if scope["path"] in self._open:
            return None
        if not self._has_tokens and self._is_public(scope):
            return Forbidden(
                "without tokens, the service answers under an IP address or localhost: set "
                "PROCTOR_TOKENS, or PROCTOR_ADVERTISE_URL to the URL with this name"
            )
        if is_page:
            return None
        is_change = scope["method"] not in SAFE_METHODS
        if not self._has_tokens and is_change and not same_origin(Headers(scope=scope)):
            return Forbidden(
                "a web page of another site sent this request (Origin, Sec-Fetch-Site): set "
                "PROCTOR_TOKENS, and have programs send a token instead"
            )
        tenant: str | None = ONLY_TENANT
        token = None
        raw: bytes = scope.get("raw_path") or b""
        if raw.startswith(WITH_TOKEN):
            in_path, _, rest = raw.removeprefix(WITH_TOKEN).partition(b"/")
            scope["raw_path"] = COMPAT + rest
            scope["path"] = unquote(scope["raw_path"].decode("ascii"))
            token = unquote_to_bytes(in_path)
        if self._has_tokens:
            if token is None:
                values = Headers(scope=scope).getlist("authorization")
                scheme, _, text = values[0].partition(" ") if values else ("", "", "")
                if len(values) == 1 and scheme.lower() == "bearer":
                    token = text.strip(" \t").encode("latin-1")  # the received bytes, in UTF-8
            tenant = None if token is None else self._tokens.tenant(token)
        if tenant is None:
            return Unauthorized("a valid token is needed: Authorization: Bearer TOKEN")
        scope.setdefault("state", {})["tenant"] = tenant
        return None

    def _is_public(self, scope: Scope) -> bool:
        """Return True if the Host header has a public name, which an attacker could own."""
        try:
            host = urlsplit(f"//{Headers(scope=scope).get('host', '')}").hostname or ""
            if "." not in host or host == self._own_host or host.endswith(".localhost"):
                return False
            ipaddress.ip_address(host)
        except ValueError:
            return True
        return False


def same_origin(headers: Headers) -> bool:
    """Return False for a request of a browser on behalf of another page.

    Browsers send Sec-Fetch-Site, and Origin with all methods but GET and HEAD; another program
    omits both. Only the browser sets these headers.
    """
    if headers.get("sec-fetch-site", "same-origin") not in ("same-origin", "none"):
        return False
    origin = headers.get("origin")
    if origin is None:
        return True
    try:
        return bool(origin) and urlsplit(origin).netloc.lower() == headers.get("host", "").lower()
    except ValueError:  # "http://["
        return False
