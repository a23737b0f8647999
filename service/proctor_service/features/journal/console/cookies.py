"""Log-in of a browser: a cookie for all replicas with the same tokens, and a form token.

The cookie holds the tenant, its end and a random part, with an HMAC-SHA256 (RFC 2104) under a key
derived from the tenant's token. Log-ins are in cookies alone, and end with the removal of the
token. Browsers send a SameSite=Strict cookie only on requests of the service's own pages; a form
carries a token as well, since other ports of a host count as the same site.
"""

from __future__ import annotations

import hmac
import secrets
import time
from base64 import urlsafe_b64decode, urlsafe_b64encode
from dataclasses import dataclass
from http.cookies import CookieError, SimpleCookie

from starlette.datastructures import Headers

from proctor_service.features.journal.console.policy import PATH
from proctor_service.http.middleware import ONLY_TENANT, Tokens

COOKIE = "proctor_console"
LOGGED_IN_SECONDS = 12 * 3600
_NONCE_BYTES = 18
_LONGEST = 4096


@dataclass(frozen=True, slots=True)
class Visit:
    """Log-in of a browser: tenant, token of its forms, and the cookie's value."""

    tenant: str
    csrf: str
    cookie: str


class Cookies:
    """Maker and checker of cookies. Without tokens every browser is the only tenant."""

    def __init__(self, tokens: Tokens) -> None:
        self._tokens = tokens

    @property
    def needed(self) -> bool:
        """True if a browser must log in."""
        return bool(self._tokens)

    def log_in(self, token: str) -> Visit | None:
        """Return a new visit of the token's tenant, or None for an unknown token."""
        tenant = self._tokens.tenant(token.encode("utf-8", "replace"))
        return None if tenant is None else self._new(tenant)

    def anonymous(self) -> Visit:
        """Return a new visit of the only tenant. There must be no tokens."""
        return self._new(ONLY_TENANT)

    def visit(self, headers: Headers) -> Visit | None:
        """Return the visit of a request's cookie; None without a valid one."""
        value = _cookie(headers)
        if value is None:
            return None
        named, _, mac = value.rpartition(".")
        parts = named.split(".")
        if len(parts) != 3 or not (parts[1].isascii() and parts[1].isdigit()):
            return None
        try:
            tenant = urlsafe_b64decode(parts[0]).decode()
        except ValueError:
            return None
        key = self._key(tenant)
        if key is None or not same(_mac(key, named), mac):
            return None
        if self.needed and int(parts[1][:12]) < time.time():
            return None
        return Visit(tenant, _mac(key, "form." + named), value)

    def header(self, visit: Visit | None, *, secure: bool) -> str:
        """Return the value of Set-Cookie for a visit; None ends the visit."""
        value, seconds = ("", 0) if visit is None else (visit.cookie, LOGGED_IN_SECONDS)
        flags = "; HttpOnly; SameSite=Strict" + ("; Secure" if secure else "")
        return f"{COOKIE}={value}; Path={PATH}; Max-Age={seconds}{flags}"

    def _new(self, tenant: str) -> Visit:
        key = self._key(tenant)
        assert key is not None
        name = urlsafe_b64encode(tenant.encode()).decode()
        until = int(time.time()) + LOGGED_IN_SECONDS
        named = f"{name}.{until}.{secrets.token_urlsafe(_NONCE_BYTES)}"
        return Visit(tenant, _mac(key, "form." + named), f"{named}.{_mac(key, named)}")

    def _key(self, tenant: str) -> bytes | None:
        if self.needed:
            return self._tokens.key(tenant, "console")
        # No secret: a visit without tokens proves nothing but that the form came from a page of ours.
        return b"anonymous" if tenant == ONLY_TENANT else None


def same(one: str, other: str) -> bool:
    """Return True for equal texts, in a time dependent on their lengths only."""
    return hmac.compare_digest(one.encode(), other.encode("utf-8", "replace"))


def _cookie(headers: Headers) -> str | None:
    header = "; ".join(headers.getlist("cookie"))
    if len(header) > _LONGEST:
        return None
    try:
        found = SimpleCookie(header).get(COOKIE)
    except CookieError:
        return None
    return None if found is None else found.value


def _mac(key: bytes, text: str) -> str:
    return hmac.new(key, text.encode(), "sha256").hexdigest()
