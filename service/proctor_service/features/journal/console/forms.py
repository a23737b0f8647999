"""Fields of the forms on the pages."""

from __future__ import annotations

import asyncio
from urllib.parse import parse_qsl

from starlette.requests import Request

from proctor_service.errors import InvalidRequest
from proctor_service.http.body import read_body

FORM_MB = 2


async def form_of(request: Request) -> dict[str, str]:
    """Return the fields of a form. Raises InvalidRequest, TooLarge and TooSlow."""
    kind = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    if kind != "application/x-www-form-urlencoded":
        raise InvalidRequest("a form is application/x-www-form-urlencoded")
    body = await read_body(request, FORM_MB)
    try:
        return await asyncio.to_thread(_fields, bytes(body))
    except ValueError as error:
        raise InvalidRequest(f"form: {error}") from None


def _fields(body: bytes) -> dict[str, str]:
    return dict(parse_qsl(body.decode("ascii"), keep_blank_values=True, max_num_fields=50))
