"""Parser of the header `Retry-After`."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC
from email.utils import parsedate_to_datetime


def retry_after(headers: Mapping[str, str], now: float) -> float | None:
    """Return the wait in seconds. `Retry-After` is a number of seconds or an HTTP date."""
    value = headers.get("retry-after", "").strip()
    if value.isascii() and value.isdigit():
        return float(value)
    moment = _http_date(value)
    if moment is None:
        return None
    return max(0.0, moment - (_http_date(headers.get("date", "")) or now))


def _http_date(value: str) -> float | None:
    try:
        moment = parsedate_to_datetime(value)
        return (moment if moment.tzinfo else moment.replace(tzinfo=UTC)).timestamp()
    except (ValueError, OverflowError):
        return None
