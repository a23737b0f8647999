"""Tokens of the tenants."""

from __future__ import annotations

import hashlib
import hmac
from collections.abc import Mapping

ONLY_TENANT = "local"
"""Tenant of all requests while no token is configured."""


class Tokens:
    """The tenants' tokens; False if there are none."""

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

        It is the same in all replicas with the same tokens, and ends with the token.
        """
        digest = self._digests.get(tenant)
        return None if digest is None else hmac.digest(digest, purpose.encode(), "sha256")


def _digest(token: bytes) -> bytes:
    return hashlib.sha256(token).digest()
