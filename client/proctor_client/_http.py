"""Readings of HTTP and of its failures: trace headers, `Retry-After`, the causes of an error."""

from __future__ import annotations

import socket
import ssl
import sys
from collections.abc import Iterator, Mapping
from contextlib import suppress
from datetime import UTC
from email.utils import parsedate_to_datetime
from typing import Any
from urllib.parse import urlsplit
from urllib.request import getproxies, proxy_bypass

import httpx


def trace_headers() -> Mapping[str, str]:
    """Return the headers `traceparent` and, if present, `tracestate` of the caller's active span.

    The function uses OpenTelemetry only if the process has already imported the package.
    """
    if "opentelemetry.trace" not in sys.modules:
        return {}
    from opentelemetry.trace.propagation import tracecontext

    headers: dict[str, str] = {}
    tracecontext.TraceContextTextMapPropagator().inject(headers)
    return headers


def retry_after(headers: Mapping[str, str], now: float) -> float | None:
    """Return the wait in seconds. `Retry-After` is a number of seconds or an HTTP date."""
    value = headers.get("retry-after", "").strip()
    if value.isascii() and value.isdigit():
        return float(value)
    moment = _http_date(value)
    if moment is None:
        return None
    return max(0.0, moment - (_http_date(headers.get("date", "")) or now))


def is_name_or_tls(error: BaseException) -> bool:
    """Return True for a missing name and for failed TLS, where retries are useless.

    False for a resolver without an answer at the moment, and for a peer that only disconnected.
    """
    gone = (ssl.SSLEOFError, ssl.SSLZeroReturnError, ssl.SSLSyscallError)
    return any(
        isinstance(each, socket.gaierror | ssl.SSLError)
        and not isinstance(each, gone)
        and not (isinstance(each, socket.gaierror) and each.errno == socket.EAI_AGAIN)
        for each in _chain(error)
    )


def has_proxy(url: str) -> bool:
    """Return True if the environment names a proxy for this URL."""
    parts, proxies = urlsplit(url), getproxies()
    named = proxies.get(parts.scheme) or proxies.get("all")
    return bool(named) and not proxy_bypass(parts.hostname or "")


def shut_down(response: httpx.Response) -> None:
    """End the connection of an answer that stays partly unread.

    Closing is not enough: a forked child keeps the socket open, and the service would go on.
    """
    stream = response.extensions.get("network_stream")
    end_socket(None if stream is None else stream.get_extra_info("socket"))


def end_socket(connected: Any) -> None:
    """Shut a socket down, so that threads waiting for its data end, too."""
    with suppress(AttributeError, OSError):  # closed, or not a socket
        connected.shutdown(socket.SHUT_RDWR)


def _http_date(value: str) -> float | None:
    try:
        moment = parsedate_to_datetime(value)
        return (moment if moment.tzinfo else moment.replace(tzinfo=UTC)).timestamp()
    except (ValueError, OverflowError):
        return None


def _chain(error: BaseException | None) -> Iterator[BaseException]:
    """Yield the error and its chain of causes."""
    while error is not None:
        yield error
        error = error.__cause__ or error.__context__
