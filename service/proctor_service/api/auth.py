"""Authentication: bearer tokens, by tenant. Every route needs a token, and so do unknown paths.

The compatible routes also accept the token in the path, `/compat/t/TOKEN/…`, since their clients
send no header. This module removes the token from the path, before any code logs the path.
"""

from __future__ import annotations

import hashlib
import hmac
from collections.abc import Mapping
from urllib.parse import unquote, unquote_to_bytes

from starlette.datastructures import Headers
from starlette.types import ASGIApp, Receive, Scope, Send

from proctor_service.api.problems import of_refusal
from proctor_service.errors import Unauthorized

OPEN_PATHS = frozenset({"/healthz", "/readyz"})
METRICS_PATH = "/metrics"
COMPAT, WITH_TOKEN = b"/compat/", b"/compat/t/"
ONLY_TENANT = "local"
"""Tenant of all requests while no token is configured."""


class Authenticated:
    """Middleware that requires a valid token, and sets `request.state.tenant`."""

    def __init__(self, app: ASGIApp, tokens: Mapping[str, str], metrics_public: bool) -> None:
        self._app = app
        # Digests have equal lengths, so the comparison reveals nothing about a token's length.
        self._digests = {tenant: _digest(token.encode()) for tenant, token in tokens.items()}
        self._open = OPEN_PATHS | ({METRICS_PATH} if metrics_public else frozenset())

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one request."""
        if scope["type"] == "http" and scope["path"] not in self._open:
            token = _token_in_path(scope)
            if token is None:
                token = _bearer(Headers(scope=scope).getlist("authorization"))
            tenant = self._tenant(token)
            if tenant is None:
                refusal = Unauthorized("a valid token is needed: Authorization: Bearer TOKEN")
                await of_refusal(refusal)(scope, receive, send)
                return
            scope.setdefault("state", {})["tenant"] = tenant
        await self._app(scope, receive, send)

    def _tenant(self, token: bytes | None) -> str | None:
        if not self._digests:
            return ONLY_TENANT
        if token is None:
            return None
        shown = _digest(token)
        found = None
        for tenant, digest in self._digests.items():  # no early exit: equal time for all tenants
            if hmac.compare_digest(shown, digest):
                found = tenant
        return found


def _bearer(authorizations: list[str]) -> bytes | None:
    """Return the header's token as the received bytes, which are its UTF-8 encoding."""
    if len(authorizations) != 1:
        return None
    scheme, _, token = authorizations[0].partition(" ")
    return token.strip(" \t").encode("latin-1") if scheme.lower() == "bearer" else None


def _token_in_path(scope: Scope) -> bytes | None:
    """Remove the token from a path of the compatible routes, and return the token."""
    raw: bytes = scope.get("raw_path") or b""
    if not raw.startswith(WITH_TOKEN):
        return None
    token, _, rest = raw.removeprefix(WITH_TOKEN).partition(b"/")
    scope["raw_path"] = COMPAT + rest
    scope["path"] = unquote(scope["raw_path"].decode("ascii"))
    return unquote_to_bytes(token)


def _digest(token: bytes) -> bytes:
    return hashlib.sha256(token).digest()
