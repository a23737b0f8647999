"""Address of the service: a given URL, or PROCTOR_URL, with PROCTOR_TOKEN."""

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
    """Raised when the service does not answer or denies access; the message gives a remedy."""


def client_for(
    url: str | None,
    token: str | SecretStr | None = None,
    retry_seconds: float = 60.0,
    *,
    connect_timeout_seconds: float = 10.0,
) -> Client:
    """Return a client that waits up to `retry_seconds` for an unavailable service.

    Raises ValueError for an invalid URL or token.
    """
    return Client(
        _url(url),
        token=_token(token),
        connect_timeout_seconds=connect_timeout_seconds,
        **_patience(retry_seconds),
    )


def async_client_for(
    url: str | None, token: str | SecretStr | None = None, retry_seconds: float = 60.0
) -> AsyncClient:
    """Async version of client_for."""
    return AsyncClient(_url(url), token=_token(token), **_patience(retry_seconds))


def check_service(url: str | None) -> None:
    """Raise Unreachable if the service is unavailable, before any expensive work begins."""
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
    """Return retry limits bounded by time alone: the waits grow, so there are few attempts."""
    return {"retry_budget_seconds": retry_seconds, "max_attempts": MOST_ATTEMPTS}


def _url(url: str | None) -> str:
    return url or os.environ.get("PROCTOR_URL") or DEFAULT_URL


def _token(token: str | SecretStr | None) -> str | SecretStr | None:
    return token if token is not None else os.environ.get("PROCTOR_TOKEN")
