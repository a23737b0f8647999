"""Where the service is: a URL that was given, or PROCTOR_URL, with PROCTOR_TOKEN."""

from __future__ import annotations

import os
from typing import TypedDict

from pydantic import SecretStr

from proctor_client import AsyncClient, Client, ProctorError

DEFAULT_URL = "http://127.0.0.1:8080"
MOST_ATTEMPTS = 10_000


class _Patience(TypedDict):
    retry_budget_seconds: float
    max_attempts: int


class Unreachable(RuntimeError):
    """The service does not answer, or does not let us in; the message says what to do."""


def client_for(
    url: str | None,
    token: str | SecretStr | None = None,
    retry_seconds: float = 60.0,
    *,
    connect_timeout_seconds: float = 10.0,
) -> Client:
    """A client that waits `retry_seconds` at most for a service that is away. Raises ValueError."""
    return Client(
        _url(url),
        token=_token(token),
        connect_timeout_seconds=connect_timeout_seconds,
        **_patience(retry_seconds),
    )


def async_client_for(
    url: str | None, token: str | SecretStr | None = None, retry_seconds: float = 60.0
) -> AsyncClient:
    """As client_for."""
    return AsyncClient(_url(url), token=_token(token), **_patience(retry_seconds))


def check_service(url: str | None) -> None:
    """Raises Unreachable, before anything dear is begun."""
    try:
        with Client(_url(url), token=_token(None), max_attempts=1, timeout_seconds=10) as client:
            client.capacity()
    except ValueError as error:
        raise Unreachable(str(error)) from None
    except ProctorError as error:
        raise Unreachable(
            f"no service at {_url(url)}: {error}\nstart one with: proctor serve"
        ) from None


def _patience(retry_seconds: float) -> _Patience:
    """Bounded by time alone: the waits grow, so that there are few of them."""
    return {"retry_budget_seconds": retry_seconds, "max_attempts": MOST_ATTEMPTS}


def _url(url: str | None) -> str:
    return url or os.environ.get("PROCTOR_URL") or DEFAULT_URL


def _token(token: str | SecretStr | None) -> str | SecretStr | None:
    return token if token is not None else os.environ.get("PROCTOR_TOKEN")
