"""Errors on the wire: a table from exceptions to a status and a body.

Every 4xx and 5xx of the service has the same body, whether from a route, the router (404, 405) or a bug.
A bug only shows the word `internal`.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from http import HTTPStatus

from fastapi import FastAPI
from fastapi.exceptions import RequestValidationError
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response

from proctor_client.wire import WIRE_VERSION
from proctor_service.errors import (
    BudgetExceeded,
    Cancelled,
    DeadlinePassed,
    Failure,
    InvalidRequest,
    NoSandboxInTime,
    NotFound,
    Refusal,
    SandboxLost,
    SandboxUnavailable,
    UnknownEnvironment,
)
from proctor_service.http.body import describe_errors
from proctor_service.observe.metrics import CLIENT_GONE_STATUS

STATUS_BY_FAILURE: Mapping[type[Failure], tuple[int, bool]] = {
    SandboxUnavailable: (503, True),
    NoSandboxInTime: (503, True),
    BudgetExceeded: (429, True),
    # Unlike 503, 500 does not invite a retry: the sandbox's files are lost for every client.
    SandboxLost: (500, False),
    DeadlinePassed: (503, True),
    Cancelled: (503, True),
    UnknownEnvironment: (422, False),
}
"""Failures as the answer to a whole request: status, and whether the client should retry."""
REASON_BY_FAILURE: Mapping[type[Failure], str] = {BudgetExceeded: "budget_exceeded"}
"""Reasons of whole requests, where the reason of an item differs."""
WIRE_HEADER = (b"proctor-wire", str(WIRE_VERSION).encode())
"""Header of every answer."""
REASON_BY_STATUS = {401: "unauthorized", 403: "forbidden", 404: "not_found", 503: "draining"}


def problem(
    status: int,
    reason: str,
    message: str,
    *,
    retryable: bool = False,
    retry_after_seconds: float | None = None,
    more: dict[str, str] | None = None,
    headers: dict[str, str] | None = None,
) -> Response:
    """Return an error response. `more`: fields beside `error`."""
    headers = dict(headers or {})
    if retry_after_seconds is None and status in (429, 503):
        retry_after_seconds = 1.0
    if retry_after_seconds is not None:
        headers["Retry-After"] = str(max(1, math.ceil(retry_after_seconds)))
    body = {
        **(more or {}),
        "error": {
            "reason": reason,
            "message": message,
            "retryable": retryable,
            "retry_after_seconds": retry_after_seconds,
        },
    }
    return Response(json.dumps(body), status, headers, "application/json")


def of_refusal(refusal: Refusal) -> Response:
    """Return the error response for a rejected request."""
    return problem(
        refusal.status,
        refusal.reason,
        refusal.message,
        retryable=refusal.retryable,
        retry_after_seconds=refusal.retry_after_seconds,
        headers={"WWW-Authenticate": "Bearer"} if refusal.status == 401 else None,
    )


def of_failure(failure: Failure) -> Response:
    """Return the error response for a failure of a whole request."""
    status, retryable = STATUS_BY_FAILURE.get(type(failure), (500, failure.retryable))
    reason = REASON_BY_FAILURE.get(type(failure), failure.reason)
    return problem(status, reason, failure.message, retryable=retryable)


def within_stream(error: Refusal | Failure) -> dict[str, str | bool]:
    """Return an error in the middle of a stream: reason, message, and whether to retry."""
    retryable = error.retryable
    if isinstance(error, Failure):
        _, retryable = STATUS_BY_FAILURE.get(type(error), (500, retryable))
    return {"reason": error.reason, "message": error.message, "retryable": retryable}


def internal() -> Response:
    """Return the response to a bug, without details. Retryable, since no item was judged."""
    return problem(500, "internal", "the service failed; its log says how", retryable=True)


async def _on_error(request: Request, error: Exception) -> Response:
    """Return the response to an exception from a route or from the router."""
    match error:
        case Refusal():
            return of_refusal(error)
        case Failure():
            return of_failure(error)
        case ClientDisconnect():
            return Response(status_code=CLIENT_GONE_STATUS)
        case RequestValidationError():
            return of_refusal(InvalidRequest(describe_errors(error.errors())))
        case HTTPException(status_code=NotFound.status):
            return of_refusal(NotFound(f"no such route: {request.method} {request.url.path}"))
        case HTTPException(status_code=status):
            own_reason = REASON_BY_STATUS.get(status)
            reason = own_reason or ("internal" if status >= 500 else InvalidRequest.reason)
            message = f"{HTTPStatus(status).phrase}: {request.method} {request.url.path}"
            return problem(status, reason, message, headers=dict(error.headers or {}))
    raise error


def install_problems(app: FastAPI) -> None:
    """Give every error of the app the contract's body."""
    for kind in (Refusal, Failure, ClientDisconnect, HTTPException, RequestValidationError):
        app.add_exception_handler(kind, _on_error)
