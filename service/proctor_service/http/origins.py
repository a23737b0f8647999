"""Requests of other web pages, which a browser sends in its user's name."""

from __future__ import annotations

from urllib.parse import urlsplit

from starlette.datastructures import Headers

SAFE_METHODS = frozenset({"GET", "HEAD", "OPTIONS"})
"""Methods without effect; browsers hide their answers from other pages."""


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
