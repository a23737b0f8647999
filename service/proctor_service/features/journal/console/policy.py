"""Paths of the pages, and the headers that every answer under them has."""

from __future__ import annotations

from collections.abc import Iterable

PATH = "/console"
HEADERS = {
    "content-security-policy": "default-src 'none'; style-src 'self'; script-src 'self'; "
    "img-src 'self'; connect-src 'self'; form-action 'self'; base-uri 'none'; "
    "frame-ancestors 'none'",
    "x-content-type-options": "nosniff",
    # With no-referrer, browsers would send the forms of the pages with `Origin: null`.
    "referrer-policy": "same-origin",
    "cross-origin-opener-policy": "same-origin",
    "cross-origin-resource-policy": "same-origin",
    "cache-control": "no-store",
}


def is_page(path: str) -> bool:
    """Return whether a path is a page for browsers, which log in by themselves."""
    return path == PATH or path.startswith(PATH + "/")


def with_policy(headers: Iterable[tuple[bytes, bytes]]) -> list[tuple[bytes, bytes]]:
    """Return the headers of an answer, completed by `HEADERS`."""
    found = list(headers)
    names = {name.lower() for name, _ in found}
    more = [(name.encode(), value.encode()) for name, value in HEADERS.items()]
    return [*found, *(each for each in more if each[0] not in names)]
