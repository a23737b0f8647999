"""Settings that both clients share: the address, the token and the connection pool limits."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Any, TypeAlias, TypedDict

import httpx
from pydantic import SecretStr

from proctor_client._clock import Clock
from proctor_client._flow import Policy
from proctor_client._version import __version__

DEFAULT_URL = "http://127.0.0.1:8080"
USER_AGENT = f"proctor-client/{__version__}"

Token: TypeAlias = str | SecretStr | None


class ClientOptions(TypedDict, total=False):
    """Constructor arguments except the address and the token."""

    timeout_seconds: float
    connect_timeout_seconds: float
    max_attempts: int
    retry_budget_seconds: float
    transport: Any
    clock: Clock | None


class Address:
    """URL of the service and its access token. The repr hides the token.

    Raises ValueError for a URL without an http(s) scheme or a host, for a URL with a user name or
    password, and for a token with characters other than visible ASCII. White space around the
    token, such as the last newline of a file, is removed.
    """

    def __init__(self, url: str, token: Token) -> None:
        self.url = httpx.URL(url)
        if self.url.scheme not in ("http", "https") or not self.url.host:
            raise ValueError("url: it must begin with http:// or https:// and name a host")
        if self.url.userinfo:
            # httpx would send user info as Basic auth, without the token, and show it in errors.
            raise ValueError("url: it must hold no user name or password; use `token`")
        if isinstance(token, SecretStr):
            token = token.get_secret_value()
        self.token = (token or "").strip()
        if not all("!" <= character <= "~" for character in self.token):
            # Checked here, because the errors of the HTTP library would print the whole header.
            raise ValueError("token: it must be visible ASCII characters without spaces")

    @classmethod
    def from_env(cls) -> Address:
        """Read the address from PROCTOR_URL and the token from PROCTOR_TOKEN; both are optional."""
        return cls(os.environ.get("PROCTOR_URL") or DEFAULT_URL, os.environ.get("PROCTOR_TOKEN"))

    def __repr__(self) -> str:
        return f"{str(self.url)!r}, token={'set' if self.token else None}"

    def headers(self) -> Mapping[str, str]:
        """Return the headers of every request."""
        headers = {"User-Agent": USER_AGENT}
        if self.token:
            headers["Authorization"] = f"Bearer {self.token}"
        return headers


def policy_of(address: Address, **fields: Any) -> Policy:
    """Build the retry policy from `fields`. Raises ValueError for a value out of range."""
    policy = Policy(**fields, secret=address.token, url=str(address.url))
    if policy.max_attempts < 1:
        raise ValueError("max_attempts: it must be 1 or more")
    if policy.retry_budget_seconds < 0:
        raise ValueError("retry_budget_seconds: it must be 0 or more")
    if policy.timeout_seconds <= 0 or policy.connect_timeout_seconds <= 0:
        raise ValueError("timeout_seconds, connect_timeout_seconds: they must be above 0")
    return policy


def limits() -> httpx.Limits:
    """Return the connection pool limits. Idle connections close after 4 s, before uvicorn's 5 s."""
    return httpx.Limits(max_connections=256, max_keepalive_connections=64, keepalive_expiry=4.0)
