"""What can go wrong, drawn once.

    ProctorServiceError
    ├── Refusal                 the request is not taken; the client sees a 4xx or 5xx
    │   ├── InvalidRequest      422  what was asked makes no sense here
    │   ├── MalformedRequest    400  these bytes are no HTTP request
    │   ├── AmbiguousKey        400  several Idempotency-Key headers
    │   ├── HeadTooSlow         408  the request's head did not come in time
    │   ├── TooLarge            413
    │   ├── HeadTooLarge        431
    │   ├── BatchTooLarge       413  more items than the queue ever takes at once
    │   ├── Unauthorized        401
    │   ├── Forbidden           403
    │   ├── NotFound            404
    │   ├── SandboxNotFound     404  no such sandbox, or another tenant's
    │   ├── FileMissing         404  the sandbox has no such file
    │   ├── FileRefused         422  too large, a directory, no room
    │   ├── SandboxEnded        410  it was stopped, or ended by its own act
    │   ├── Busy                429  the queue is full
    │   ├── QuotaExceeded       429
    │   └── Draining            503  the service is stopping
    ├── Failure                 an item was taken and could not be judged: `error`, no reward
    │   ├── SandboxUnavailable  no sandbox could be had: nothing ran
    │   │   └── NoSandboxInTime     all are in use, or the machine is slow
    │   ├── SandboxLost         the sandbox went away under a running submission
    │   ├── JudgeFailed         a bug or a limit of ours
    │   ├── DeadlinePassed
    │   ├── Overloaded
    │   ├── Cancelled           the client or the operator ended it
    │   ├── PolicyUnavailable   a rollout's policy endpoint failed after its retries
    │   └── InvalidTask         the tests themselves are broken
    └── StartError              the service cannot start as it is configured

A verdict is none of these: what a submission does to itself is data. Nothing here ever becomes a
reward of 0.0.
"""

from __future__ import annotations

from typing import ClassVar


class ProctorServiceError(Exception):
    """Base of all errors that the service raises on purpose."""


class StartError(ProctorServiceError):
    """The service cannot start as it is configured; the message says how to mend it."""


class Refusal(ProctorServiceError):
    """A request that is not taken. `status` is the HTTP status, `reason` the stable name."""

    status: ClassVar[int] = 500
    reason: ClassVar[str] = "internal"
    retryable: ClassVar[bool] = False

    def __init__(self, message: str, retry_after_seconds: float | None = None) -> None:
        super().__init__(message)
        self.message = message
        self.retry_after_seconds = retry_after_seconds


class InvalidRequest(Refusal):
    """The request makes no sense here; the message names the field."""

    status, reason = 422, "invalid_request"


class MalformedRequest(Refusal):
    """The bytes are no HTTP request, or one that may be understood in two ways."""

    status, reason = 400, "invalid_request"


class AmbiguousKey(Refusal):
    """The request has several keys; whichever was meant, another may be remembered."""

    status, reason = 400, "invalid_request"


class HeadTooSlow(Refusal):
    """The request's head was not whole in time; nothing of it was looked at."""

    status, reason, retryable = 408, "invalid_request", True


class TooLarge(Refusal):
    """The body is over the limit."""

    status, reason = 413, "invalid_request"


class HeadTooLarge(Refusal):
    """The request's head has too many bytes or fields."""

    status, reason = 431, "invalid_request"


class BatchTooLarge(Refusal):
    """More items than the queue holds when it is empty: no waiting helps, a smaller batch does."""

    status, reason = 413, "batch_too_large"


class Unauthorized(Refusal):
    """No token, or a wrong one."""

    status, reason = 401, "unauthorized"


class Forbidden(Refusal):
    """The token is right, the act is not allowed."""

    status, reason = 403, "forbidden"


class NotFound(Refusal):
    """No such route or thing."""

    status, reason = 404, "not_found"


class SandboxNotFound(Refusal):
    """No such sandbox, or another tenant's."""

    status, reason = 404, "sandbox_not_found"


class SandboxEnded(Refusal):
    """The sandbox was stopped, its time was up, or it ended by its own act; the message says which."""

    status, reason = 410, "sandbox_stopped"


class FileMissing(Refusal):
    """The sandbox has no such file."""

    status, reason = 404, "file_not_found"


class FileRefused(Refusal):
    """The file cannot be read or written so: it is a directory, too large, or there is no room."""

    status, reason = 422, "invalid_request"


class Busy(Refusal):
    """The queue is full; try again after `retry_after_seconds`."""

    status, reason, retryable = 429, "busy", True


class QuotaExceeded(Refusal):
    """The tenant holds all that it may."""

    status, reason, retryable = 429, "quota_exceeded", True


class Draining(Refusal):
    """The service is stopping and takes no new work."""

    status, reason, retryable = 503, "draining", True


class Failure(ProctorServiceError):
    """An item that could not be judged. `reason` is the stable name on the wire."""

    reason: ClassVar[str] = "judge_failed"
    retryable: ClassVar[bool] = True

    def __init__(self, message: str) -> None:
        super().__init__(message)
        self.message = message


class SandboxUnavailable(Failure):
    """No sandbox could be had; the submission did not run."""

    reason = "sandbox_unavailable"


class NoSandboxInTime(SandboxUnavailable):
    """Nor is anything broken: the sandboxes are all in use, or the machine is slow."""


class SandboxLost(Failure):
    """The sandbox went away under a running submission, through no act of its own."""

    reason = "sandbox_lost"


class JudgeFailed(Failure):
    """The judge broke: a bug of ours."""

    reason = "judge_failed"


class DeadlinePassed(Failure):
    """The request's deadline passed before this item was judged."""

    reason, retryable = "deadline", True


class Overloaded(Failure):
    """The item cannot be served in time."""

    reason = "overloaded"


class Cancelled(Failure):
    """The client went away, or the service is stopping."""

    reason = "cancelled"


class PolicyUnavailable(Failure):
    """A rollout's policy endpoint failed after its retries; nothing is said of the policy."""

    reason = "policy_unavailable"


class InvalidTask(Failure):
    """The tests are broken by themselves: they do not parse, or their setup fails alone."""

    reason, retryable = "invalid_task", False
