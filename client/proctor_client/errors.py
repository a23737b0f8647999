"""Exceptions of this package, each with its `reason`.

    ProctorError                    base class; also raised for a reason unknown to this client
    ├── InvalidRequestError         invalid_request     also raised by this client before sending
    │   └── BatchTooLargeError      batch_too_large     more items than the service ever accepts
    ├── UnauthorizedError           unauthorized
    ├── ForbiddenError              forbidden
    ├── NotFoundError               not_found
    │   └── JournalOffError         journal_off
    ├── NotReplayableError          not_replayable
    ├── JournalDownError            journal_down
    ├── SandboxError                base class of errors about one sandbox
    │   ├── SandboxNotFoundError    sandbox_not_found
    │   ├── SandboxStoppedError     sandbox_stopped
    │   ├── SandboxFileError        file_not_found      also invalid_request: a rejected file
    │   ├── SandboxTimeoutError     sandbox_timeout     raised here, for a command at its time limit
    │   ├── SandboxLostError        sandbox_lost
    │   └── SandboxUnavailableError sandbox_unavailable
    ├── BusyError                   busy
    ├── QuotaExceededError          quota_exceeded
    ├── BudgetExceededError         budget_exceeded
    ├── DrainingError               draining
    ├── InternalError               internal
    ├── ProctorConnectionError      connection          refused, reset, dropped: incomplete answer
    ├── ProctorTimeoutError         timeout             no answer within the time allowed
    ├── ProtocolError               protocol            an answer outside the contract
    └── ClientClosedError           closed              the client was closed here

These exceptions concern calls, and never a submission. If the service cannot judge an item, the item's
result has `error` set. An exception means a call without a result.

A body from another program, such as a proxy's HTML page, becomes a `ProtocolError` at any status,
so callers cannot mistake a page for an answer of the service. The status still decides about
retries.
"""

from __future__ import annotations

import math
import time
from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import TypeGuard

import httpx
from pydantic import BaseModel, ValidationError

from proctor_client import wire
from proctor_client._http import has_proxy, is_name_or_tls, retry_after
from proctor_client.wire.near_fields import unknown_field

RETRIED_STATUSES = frozenset({408, 429, 502, 503, 504})
_QUOTED_CHARACTERS = 120
_LISTED_FIELDS = 5


class ProctorError(Exception):
    """Base of every error of this package.

    `reason` is stable and for programs; `message` is for people. `retryable` is true if the same
    call may succeed later; the clients have already retried by then. `retry_after_seconds` is the
    wait requested by the service, or None. `status_code` is the HTTP status, or None if no answer
    arrived or if the error came within a stream.
    """

    reason: str = "unknown"

    def __init__(
        self,
        message: str,
        *,
        reason: str | None = None,
        retryable: bool = False,
        retry_after_seconds: float | None = None,
        status_code: int | None = None,
    ) -> None:
        super().__init__(message)
        self.message = message
        self.reason = reason or type(self).reason
        self.retryable = retryable
        self.retry_after_seconds = retry_after_seconds
        self.status_code = status_code

    def __str__(self) -> str:
        status = f" (HTTP {self.status_code})" if self.status_code is not None else ""
        return f"{self.reason}{status}: {self.message}"


class InvalidRequestError(ProctorError):
    """Raised when the request breaks the contract. The message names the field. Never retried."""

    reason = "invalid_request"


class BatchTooLargeError(InvalidRequestError):
    """Raised for a batch over the service's maximum size: send the batch in parts."""

    reason = "batch_too_large"


class UnauthorizedError(ProctorError):
    """Raised when the token is missing, or unknown to the service."""

    reason = "unauthorized"


class ForbiddenError(ProctorError):
    """Raised when the token is known but lacks the permission."""

    reason = "forbidden"


class NotFoundError(ProctorError):
    """Raised when the service lacks the requested route or object."""

    reason = "not_found"


class JournalOffError(NotFoundError):
    """Raised when the service runs without a journal."""

    reason = "journal_off"


class NotReplayableError(ProctorError):
    """Raised for an evaluation with too little recorded for a replay."""

    reason = "not_replayable"


class JournalDownError(ProctorError):
    """Raised when the service cannot read its journal at the moment."""

    reason = "journal_down"


class SandboxError(ProctorError):
    """Base of the errors about a sandbox."""


class SandboxNotFoundError(SandboxError):
    """Raised for an unknown sandbox, or a sandbox of another tenant."""

    reason = "sandbox_not_found"


class SandboxStoppedError(SandboxError):
    """Raised when the sandbox was stopped, by a request or at the end of its lifetime."""

    reason = "sandbox_stopped"


class SandboxFileError(SandboxError):
    """Raised for a missing or rejected file: a directory, a bad path, too large, or a full disk."""

    reason = "file_not_found"


class SandboxTimeoutError(SandboxError):
    """Raised when a time limit ended the command. `result` holds the output up to then."""

    reason = "sandbox_timeout"

    def __init__(self, message: str, result: wire.ExecResult) -> None:
        super().__init__(message)
        self.args = (message, result)  # the constructor's arguments when unpickled
        self.result = result


class SandboxLostError(SandboxError):
    """Raised when a fault of the service destroyed the sandbox. Create a new sandbox."""

    reason = "sandbox_lost"


class SandboxUnavailableError(SandboxError):
    """Raised when the service cannot create a sandbox at the moment."""

    reason = "sandbox_unavailable"


class BusyError(ProctorError):
    """Raised when the queue is full."""

    reason = "busy"


class QuotaExceededError(ProctorError):
    """Raised when the tenant or the job has used up its quota."""

    reason = "quota_exceeded"


class BudgetExceededError(ProctorError):
    """Raised when the sandboxes or the money of the service's budget are used up. Try later."""

    reason = "budget_exceeded"


class DrainingError(ProctorError):
    """Raised when the service is shutting down and refuses new work."""

    reason = "draining"


class InternalError(ProctorError):
    """Raised when the service fails without giving a reason."""

    reason = "internal"


class ProctorConnectionError(ProctorError):
    """Raised when the service is unreachable, or the connection broke within the answer."""

    reason = "connection"


class ProctorTimeoutError(ProctorError):
    """Raised when the service did not connect, or did not answer, within the time allowed."""

    reason = "timeout"


class ProtocolError(ProctorError):
    """Raised for an answer outside the contract: a proxy's page, a missing result."""

    reason = "protocol"


class ClientClosedError(ProctorError, RuntimeError):
    """Raised when the client is closed. The request was not sent."""

    reason = "closed"


def _by_reason(*classes: type[ProctorError]) -> Mapping[str, type[ProctorError]]:
    return MappingProxyType({each.reason: each for each in classes})


CLASS_BY_REASON = _by_reason(
    InvalidRequestError,
    BatchTooLargeError,
    UnauthorizedError,
    ForbiddenError,
    NotFoundError,
    JournalOffError,
    NotReplayableError,
    JournalDownError,
    SandboxNotFoundError,
    SandboxStoppedError,
    SandboxFileError,
    SandboxLostError,
    SandboxUnavailableError,
    BusyError,
    QuotaExceededError,
    BudgetExceededError,
    DrainingError,
    InternalError,
)


def from_answer(
    status: int,
    body: bytes,
    headers: Mapping[str, str],
    *,
    now: float | None = None,
    secrets: Sequence[str] = (),
    url: str = "",
) -> ProctorError:
    """Return the exception for an error response; the caller raises it.

    `headers` are looked up in lower case. `now` is the time in seconds since the epoch, for a
    `Retry-After` with a date; the answer's own `Date` header takes precedence, because clocks
    differ. `secrets` are removed from the message, because a proxy may echo the request. `url` is the
    service's, for the message. A proxy that finds the request too large (413) cannot pass parts
    either: BatchTooLargeError.
    """
    wait_seconds = retry_after(headers, time.time() if now is None else now)
    try:
        problem = wire.ProblemBody.model_validate_json(body).error
    except ValidationError:
        kind = BatchTooLargeError if status == 413 else ProtocolError
        return kind(
            describe_foreign(body, headers, secrets, url),
            retryable=status in RETRIED_STATUSES,
            retry_after_seconds=wait_seconds if _is_wait(wait_seconds) else None,
            status_code=status,
        )
    return from_problem(problem, status=status, retry_after_seconds=wait_seconds, secrets=secrets)


def from_problem(
    problem: wire.Problem,
    *,
    status: int | None,
    retry_after_seconds: float | None = None,
    secrets: Sequence[str] = (),
) -> ProctorError:
    """Return the exception for a problem reported by the service; `status` is None within a stream.

    A 4xx other than 408 and 429 is never retryable, even if the body says otherwise, because the
    same request would get the same answer. A lost sandbox excludes retries, too. If the header and
    the body both ask for a wait, the longer wait holds.
    """
    kind = CLASS_BY_REASON.get(problem.reason, ProctorError)
    is_retryable = problem.retryable and (status is None or status >= 500)
    waits = [w for w in (retry_after_seconds, problem.retry_after_seconds) if _is_wait(w)]
    return kind(
        _blot(problem.message, secrets),
        reason=problem.reason,
        retryable=kind is not SandboxLostError and (is_retryable or status in RETRIED_STATUSES),
        retry_after_seconds=max(waits, default=None),
        status_code=status,
    )


def from_transport(
    cause: httpx.RequestError, *, url: str = "", has_answered: bool = False
) -> ProctorError:
    """Return the exception for a transport error, as one line with the URL, chained to `cause`.

    `has_answered` is true if the service has answered at this address before. Otherwise, a name that does
    not exist and a failed TLS handshake are configuration errors, and are not retryable.
    """
    error: ProctorError
    message = " ".join(f"{type(cause).__name__}: {cause}".removesuffix(": ").split())
    message = f"{url}: {message}" if url else message
    if isinstance(cause, httpx.TimeoutException):
        error = ProctorTimeoutError(message, retryable=True)
    elif isinstance(cause, httpx.UnsupportedProtocol | httpx.LocalProtocolError):
        # A mistake of the caller: a URL without http://, an illegal header. Retries cannot help.
        error = ProctorConnectionError(message)
    elif isinstance(cause, httpx.TransportError):
        if isinstance(cause, httpx.ConnectError | httpx.ProxyError) and has_proxy(url):
            message += " (by way of the proxy in HTTP_PROXY, HTTPS_PROXY or ALL_PROXY)"
        error = ProctorConnectionError(message, retryable=has_answered or not is_name_or_tls(cause))
    elif isinstance(cause, httpx.DecodingError):  # compressed, and cut short or damaged
        error = ProctorConnectionError(message, retryable=True)
    else:
        error = ProtocolError(message)
    error.__cause__ = cause
    return error


def from_validation(
    cause: ValidationError, model: type[BaseModel] | None = None
) -> InvalidRequestError:
    """Return the exception for a request that breaks a `model` of the wire, naming each bad field.

    The message omits the values, because they may be whole programs.
    """
    found: list[str] = []
    for each in cause.errors(include_url=False, include_context=False, include_input=False):
        is_unknown = each["type"] == "extra_forbidden" and len(found) < _LISTED_FIELDS
        problem = unknown_field(model, each["loc"]) if is_unknown else each["msg"]
        found.append(f"{'.'.join(str(part) for part in each['loc']) or 'request'}: {problem}")
    more = len(found) - _LISTED_FIELDS
    return InvalidRequestError(
        "; ".join(found[:_LISTED_FIELDS]) + (f"; and {more} more" if more > 0 else "")
    )


def surely_unbegun(error: ProctorError) -> bool:
    """Return True for an unsent request, and for a rejection by the service itself."""
    if error.status_code is not None:
        if error.status_code == 408:  # the request was not whole
            return isinstance(error, InvalidRequestError)
        refused = isinstance(
            error, BusyError | QuotaExceededError | BudgetExceededError | DrainingError
        )
        return refused and error.status_code in (429, 503)
    return isinstance(
        error.__cause__, httpx.ConnectError | httpx.ConnectTimeout | httpx.PoolTimeout
    )


def describe_foreign(
    body: bytes, headers: Mapping[str, str], secrets: Sequence[str], url: str = ""
) -> str:
    """Return the message about an answer of another program: its type, its target and its begin."""
    place = headers.get("location")
    kind = _blot(headers.get("content-type", "no content type").split(";")[0], secrets)
    # Secrets are removed before the text is cut: half a secret is still a leak.
    text = _blot(" ".join(body.decode("utf-8", "replace").split()), secrets)
    quoted = f", {text[:_QUOTED_CHARACTERS]!r}" if text else ""
    moved = f", a redirect to {_blot(place, secrets)[:_QUOTED_CHARACTERS]!r}" if place else ""
    where = f"{url}: " if url else ""
    return (
        f"{where}the answer is not Proctor's, check the URL and what lies between: "
        f"{kind}{moved}{quoted}"
    )


def _blot(text: str, secrets: Sequence[str]) -> str:
    for secret in filter(None, secrets):
        text = text.replace(secret, "[secret]")
    return text


def _is_wait(seconds: float | None) -> TypeGuard[float]:
    """Return True for a finite wait of 0 or more: JSON as read here allows Infinity and NaN."""
    return seconds is not None and math.isfinite(seconds) and seconds >= 0
