"""Who asks: bearer tokens, by tenant. Every route needs one, also those that do not exist."""

from __future__ import annotations

import hashlib
import hmac
from collections.abc import Mapping

from starlette.datastructures import Headers
from starlette.types import ASGIApp, Receive, Scope, Send

from proctor_service.api.problems import of_refusal
from proctor_service.errors import Unauthorized

OPEN_PATHS = frozenset({"/healthz", "/readyz"})
METRICS_PATH = "/metrics"
ONLY_TENANT = "local"
"""The tenant of everybody while no token is configured."""


class Authenticated:
    """Lets through who shows a token, and notes the tenant in `request.state.tenant`."""

    def __init__(self, app: ASGIApp, tokens: Mapping[str, str], metrics_public: bool) -> None:
        self._app = app
        # Digests have one length, so that comparing them tells nothing about a token's.
        self._digests = {tenant: _digest(token) for tenant, token in tokens.items()}
        self._open = OPEN_PATHS | ({METRICS_PATH} if metrics_public else frozenset())

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serves one request."""
        if scope["type"] == "http" and scope["path"] not in self._open:
            tenant = self._tenant(Headers(scope=scope).getlist("authorization"))
            if tenant is None:
                refusal = Unauthorized("a valid token is needed: Authorization: Bearer TOKEN")
                await of_refusal(refusal)(scope, receive, send)
                return
            scope.setdefault("state", {})["tenant"] = tenant
        await self._app(scope, receive, send)

    def _tenant(self, authorizations: list[str]) -> str | None:
        if not self._digests:
            return ONLY_TENANT
        if len(authorizations) != 1:
            return None
        scheme, _, token = authorizations[0].partition(" ")
        if scheme.lower() != "bearer":
            return None
        shown = _digest(token.strip(), "latin-1")
        found = None
        for tenant, digest in self._digests.items():  # all of them, whichever it is
            if hmac.compare_digest(shown, digest):
                found = tenant
        return found


def _digest(token: str, encoding: str = "utf-8") -> bytes:
    """`latin-1` gives back the bytes that came, which are a token's UTF-8."""
    return hashlib.sha256(token.encode(encoding)).digest()
