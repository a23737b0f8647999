"""What can go wrong, as a caller of the service sees it.

    ProctorError                    the base, and itself for a reason that this client does not know
    ├── InvalidRequestError         invalid_request     also found here, before anything is sent
    │   └── BatchTooLargeError      batch_too_large     more at once than the service ever takes
    ├── UnauthorizedError           unauthorized
    ├── ForbiddenError              forbidden
    ├── NotFoundError               not_found
    ├── SandboxError                the base of what concerns one sandbox
    │   ├── SandboxNotFoundError    sandbox_not_found
    │   ├── SandboxStoppedError     sandbox_stopped
    │   ├── SandboxFileError        file_not_found      also invalid_request: a file that was refused
    │   ├── SandboxTimeoutError     sandbox_timeout     raised here, for a command at its time limit
    │   ├── SandboxLostError        sandbox_lost
    │   └── SandboxUnavailableError sandbox_unavailable
    ├── BusyError                   busy
    ├── QuotaExceededError          quota_exceeded
    ├── DrainingError               draining
    ├── InternalError               internal
    ├── ProctorConnectionError      connection          refused, reset, dropped: no whole answer
    ├── ProctorTimeoutError         timeout             no answer within the time allowed
    ├── ProtocolError               protocol            an answer that the contract does not have
    └── ClientClosedError           closed              the client was closed here

None of these says anything about a submission. An item that the service could not judge is data,
the `error` of its result; these are raised when there is no result at all.

A body that is not ours, a proxy's HTML page say, is a `ProtocolError` whatever its status: it must
not pass for the service's own word. Whether to try again still goes by the status.
"""

from __future__ import annotations

import math
import time
from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import TypeGuard

import httpx
from pydantic import ValidationError

from proctor_client import wire
from proctor_client._causes import is_name_or_tls
from proctor_client._retry_after import retry_after

RETRIED_STATUSES = frozenset({429, 502, 503, 504})
_QUOTED_CHARACTERS = 120
_LISTED_FIELDS = 5


class ProctorError(Exception):
    """Base of every error of this package.

    `reason` is stable and for programs, `message` is for people. `retryable` says whether the same
    call may succeed later; the clients have then tried already. `retry_after_seconds` is what the
    service asked for, None when it did not. `status_code` is None when no answer came.
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
    """The request breaks the contract; the message names the field. Never retried."""

    reason = "invalid_request"


class BatchTooLargeError(InvalidRequestError):
    """The batch has more items than the service ever takes at once: send it in parts."""

    reason = "batch_too_large"


class UnauthorizedError(ProctorError):
    """The token is missing or unknown to the service."""

    reason = "unauthorized"


class ForbiddenError(ProctorError):
    """The token is known, and may not do this."""

    reason = "forbidden"


class NotFoundError(ProctorError):
    """The service has no such route or thing."""

    reason = "not_found"


class SandboxError(ProctorError):
    """Base of the errors that concern one sandbox."""


class SandboxNotFoundError(SandboxError):
    """No such sandbox, or it is another tenant's."""

    reason = "sandbox_not_found"


class SandboxStoppedError(SandboxError):
    """The sandbox was stopped, by request or at the end of its time."""

    reason = "sandbox_stopped"


class SandboxFileError(SandboxError):
    """The sandbox has no such file, or refuses it: a directory, too large, no room, no such path."""

    reason = "file_not_found"


class SandboxTimeoutError(SandboxError):
    """The command was ended by its time limit. `result` holds what it had printed by then."""

    reason = "sandbox_timeout"

    def __init__(self, message: str, result: wire.ExecResult) -> None:
        super().__init__(message)
        self.args = (message, result)  # what unpickling calls this with
        self.result = result


class SandboxLostError(SandboxError):
    """The sandbox went away through a fault of the service. It does not come back: make another."""

    reason = "sandbox_lost"


class SandboxUnavailableError(SandboxError):
    """The service could not make a sandbox just now."""

    reason = "sandbox_unavailable"


class BusyError(ProctorError):
    """The queue is full."""

    reason = "busy"


class QuotaExceededError(ProctorError):
    """The tenant or the job used up its share."""

    reason = "quota_exceeded"


class DrainingError(ProctorError):
    """The service is shutting down and takes no new work."""

    reason = "draining"


class InternalError(ProctorError):
    """The service failed in a way that it does not explain."""

    reason = "internal"


class ProctorConnectionError(ProctorError):
    """The service could not be reached, or the connection broke before the answer was whole."""

    reason = "connection"


class ProctorTimeoutError(ProctorError):
    """The service did not connect, or did not answer, within the time allowed."""

    reason = "timeout"


class ProtocolError(ProctorError):
    """The answer is not one that the contract has: a proxy's page, a missing result."""

    reason = "protocol"


class ClientClosedError(ProctorError, RuntimeError):
    """The client was closed: nothing was sent."""

    reason = "closed"


def _by_reason(*classes: type[ProctorError]) -> Mapping[str, type[ProctorError]]:
    return MappingProxyType({each.reason: each for each in classes})


CLASS_BY_REASON = _by_reason(
    InvalidRequestError,
    BatchTooLargeError,
    UnauthorizedError,
    ForbiddenError,
    NotFoundError,
    SandboxNotFoundError,
    SandboxStoppedError,
    SandboxFileError,
    SandboxLostError,
    SandboxUnavailableError,
    BusyError,
    QuotaExceededError,
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
) -> ProctorError:
    """The exception for an answer other than the one hoped for; returned, not raised.

    `headers` are looked up in lower case. `now` is the time in seconds since the epoch, for a
    `Retry-After` that is a date; the answer's own `Date` goes first, since clocks differ. `secrets`
    are blotted out of the message, because a proxy may echo the request.
    """
    asked = retry_after(headers, time.time() if now is None else now)
    try:
        problem = wire.ProblemBody.model_validate_json(body).error
    except ValidationError:
        return ProtocolError(
            _describe_foreign(body, headers, secrets),
            retryable=status in RETRIED_STATUSES,
            retry_after_seconds=asked if _is_wait(asked) else None,
            status_code=status,
        )
    return from_problem(problem, status=status, retry_after_seconds=asked, secrets=secrets)


def from_problem(
    problem: wire.Problem,
    *,
    status: int | None,
    retry_after_seconds: float | None = None,
    secrets: Sequence[str] = (),
) -> ProctorError:
    """The exception for a problem that the service reported; `status` is None within a stream.

    A 4xx other than 429 is never retryable, whatever its body says: the same request would get
    the same answer. No more is a lost sandbox. Of two times to wait, the header's and the body's,
    the longer holds.
    """
    kind = CLASS_BY_REASON.get(problem.reason, ProctorError)
    said = problem.retryable and (status is None or status >= 500)
    waits = [w for w in (retry_after_seconds, problem.retry_after_seconds) if _is_wait(w)]
    return kind(
        _blot(problem.message, secrets),
        reason=problem.reason,
        retryable=kind is not SandboxLostError and (said or status in RETRIED_STATUSES),
        retry_after_seconds=max(waits, default=None),
        status_code=status,
    )


def from_transport(
    cause: httpx.RequestError, *, url: str = "", known: bool = False
) -> ProctorError:
    """The exception for what the transport raised, with `cause` as its cause; one line, with the URL.

    `known`: the service has answered at this address before. Where it has not, a name that cannot
    be resolved and TLS that does not come about are mistakes, which no retry mends.
    """
    error: ProctorError
    said = " ".join(f"{type(cause).__name__}: {cause}".removesuffix(": ").split())
    said = f"{url}: {said}" if url else said
    if isinstance(cause, httpx.TimeoutException):
        error = ProctorTimeoutError(said, retryable=True)
    elif isinstance(cause, httpx.UnsupportedProtocol | httpx.LocalProtocolError):
        # Ours to blame: a URL without http://, a header that cannot be sent. It won't get better.
        error = ProctorConnectionError(said)
    elif isinstance(cause, httpx.TransportError):
        error = ProctorConnectionError(said, retryable=known or not is_name_or_tls(cause))
    else:
        error = ProtocolError(said)
    error.__cause__ = cause
    return error


def from_validation(cause: ValidationError) -> InvalidRequestError:
    """The exception for a request that the wire's models refuse, naming each field at fault.

    The values themselves stay out of the message: they may be whole programs.
    """
    found = [
        f"{'.'.join(str(part) for part in each['loc']) or 'request'}: {each['msg']}"
        for each in cause.errors(include_url=False, include_context=False, include_input=False)
    ]
    more = len(found) - _LISTED_FIELDS
    return InvalidRequestError(
        "; ".join(found[:_LISTED_FIELDS]) + (f"; and {more} more" if more > 0 else "")
    )


def surely_unbegun(error: ProctorError) -> bool:
    """Whether the request was never sent, or was turned away by the service's own word."""
    if error.status_code is not None:
        refused = isinstance(error, BusyError | QuotaExceededError | DrainingError)
        return refused and error.status_code in (429, 503)
    return isinstance(
        error.__cause__, httpx.ConnectError | httpx.ConnectTimeout | httpx.PoolTimeout
    )


def _describe_foreign(body: bytes, headers: Mapping[str, str], secrets: Sequence[str]) -> str:
    kind = _blot(headers.get("content-type", "no content type").split(";")[0], secrets)
    # Blotted before it is cut: half a secret is still one.
    text = _blot(" ".join(body.decode("utf-8", "replace").split()), secrets)
    quoted = f", {text[:_QUOTED_CHARACTERS]!r}" if text else ""
    return f"the answer is not Proctor's, check the URL and what lies between: {kind}{quoted}"


def _blot(text: str, secrets: Sequence[str]) -> str:
    for secret in filter(None, secrets):
        text = text.replace(secret, "[secret]")
    return text


def _is_wait(seconds: float | None) -> TypeGuard[float]:
    """JSON as read here allows Infinity and NaN, and headers may say anything."""
    return seconds is not None and math.isfinite(seconds) and seconds >= 0
