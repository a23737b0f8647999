"""Pages for browsers: their paths, and the headers of every answer under them."""

from __future__ import annotations

from proctor_service.http.middleware import Pages

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
PAGES = Pages(PATH, HEADERS)
