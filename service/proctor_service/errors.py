"""All errors of the service as a tree.

    ProctorServiceError
    ├── Refusal                 the request is refused; the client gets a 4xx or 5xx
    │   ├── InvalidRequest      422  the request is invalid here
    │   │   └── FileRefused         a sandbox's file is too large, a directory, or has no room
    │   ├── MalformedRequest    400  the bytes are not a valid HTTP request, or are ambiguous
    │   ├── TooSlow             408  the request's head or body came too slowly
    │   ├── TooLarge            413
    │   ├── HeadTooLarge        431
    │   ├── BatchTooLarge       413  more items than the capacity of the empty queue
    │   ├── Unauthorized        401
    │   ├── Forbidden           403
    │   ├── NotFound            404
    │   ├── SandboxNotFound     404  unknown sandbox, or another tenant's sandbox
    │   ├── FileMissing         404  the file is missing in the sandbox
    │   ├── JournalOff          404  the service keeps no journal
    │   ├── NotReplayable       409  too little of the evaluation was recorded
    │   ├── SandboxEnded        410  stopped, or ended by its own act
    │   ├── Busy                429  the queue is full
    │   ├── QuotaExceeded       429
    │   ├── JournalDown         503  the journal's database does not answer
    │   └── Draining            503  the service is stopping
    ├── Failure                 an accepted item has no verdict: `error`, no reward
    │   ├── SandboxUnavailable  no sandbox was available, so the program did not run
    │   │   ├── NoSandboxInTime     all sandboxes are in use, or the machine is slow
    │   │   │   └── BudgetExceeded  the sandboxes or the money of the budget are used up
    │   │   └── EnvironmentUnavailable  those of an environment do not start
    │   ├── SandboxLost         the sandbox was lost under a running submission
    │   ├── JudgeFailed         a bug or a limit of the service, or an MCP server of a rollout failed
    │   ├── DeadlinePassed
    │   ├── Overloaded
    │   ├── Cancelled           the client or the operator ended the item
    │   ├── PolicyUnavailable   a rollout's policy endpoint failed after its retries
    │   │   └── PolicyRefused       the endpoint refuses the request, now and later
    │   ├── UnknownEnvironment  the task names an image that does not exist, or is too large
    │   └── InvalidTask         the tests themselves are broken
    ├── HandedBack              a submission goes back to the queue; no request sees it
    ├── StartError              the configuration prevents the start of the service
    └── StopError               a part of the service failed to close

Verdicts are data, separate from these errors: a submission's effects on itself give a verdict. An
error never becomes a reward of 0.0.
"""

from __future__ import annotations

from typing import ClassVar


class ProctorServiceError(Exception):
    """Base of all errors raised by the service on purpose."""


class StartError(ProctorServiceError):
    """The configuration prevents the start of the service; the message says how to fix it."""


class StopError(ProctorServiceError):
    """The service has ended, but a part failed to close; the log says why."""


class HandedBack(ProctorServiceError):
    """The submission did not begin at its judge, and goes back to the queue."""


class Refusal(ProctorServiceError):
    """Refused request. `status`: HTTP status. `reason`: stable name on the wire."""

    status: ClassVar[int] = 500
    reason: ClassVar[str] = "internal"
    retryable: ClassVar[bool] = False

    def __init__(self, message: str, retry_after_seconds: float | None = None) -> None:
        super().__init__(message)
        self.message = message
        self.retry_after_seconds = retry_after_seconds


class InvalidRequest(Refusal):
    """The request is invalid here; the message names the field."""

    status, reason = 422, "invalid_request"


class MalformedRequest(Refusal):
    """The bytes are invalid as an HTTP request, or have two possible meanings."""

    status, reason = 400, "invalid_request"


class TooSlow(Refusal):
    """The request's head or body was incomplete at its time limit and was discarded."""

    status, reason, retryable = 408, "invalid_request", True


class TooLarge(Refusal):
    """The body exceeds the limit."""

    status, reason = 413, "invalid_request"


class HeadTooLarge(Refusal):
    """The request's head has too many bytes or fields."""

    status, reason = 431, "invalid_request"


class BatchTooLarge(Refusal):
    """More items than the capacity of the empty queue: send a smaller batch instead of waiting."""

    status, reason = 413, "batch_too_large"


class Unauthorized(Refusal):
    """Missing or wrong token."""

    status, reason = 401, "unauthorized"


class Forbidden(Refusal):
    """Valid token without permission for the request."""

    status, reason = 403, "forbidden"


class NotFound(Refusal):
    """Unknown route or object."""

    status, reason = 404, "not_found"


class SandboxNotFound(Refusal):
    """Unknown sandbox, or a sandbox of another tenant."""

    status, reason = 404, "sandbox_not_found"


class JournalOff(Refusal):
    """The service keeps no journal."""

    status, reason = 404, "journal_off"


class NotReplayable(Refusal):
    """The evaluation's record is too short for a replay; the message names the missing part."""

    status, reason = 409, "not_replayable"


class SandboxEnded(Refusal):
    """The sandbox was stopped, timed out, or ended by its own act; the message says which."""

    status, reason = 410, "sandbox_stopped"


class FileMissing(Refusal):
    """The file is missing in the sandbox."""

    status, reason = 404, "file_not_found"


class FileRefused(InvalidRequest):
    """The file cannot be read or written: a directory, too large, or no space left."""


class Busy(Refusal):
    """The queue is full; try again after `retry_after_seconds`."""

    status, reason, retryable = 429, "busy", True


class QuotaExceeded(Refusal):
    """The tenant has reached its quota."""

    status, reason, retryable = 429, "quota_exceeded", True


class JournalDown(Refusal):
    """The journal's database does not answer; rewards go on."""

    status, reason, retryable = 503, "journal_down", True


class Draining(Refusal):
    """The service is stopping and refuses new work."""

    status, reason, retryable = 503, "draining", True


class Failure(ProctorServiceError):
    """Accepted item without a verdict. `reason`: stable name on the wire."""

    reason: ClassVar[str] = "judge_failed"
    retryable: ClassVar[bool] = True

    def __init__(self, message: str) -> None:
        super().__init__(message)
        self.message = message


class SandboxUnavailable(Failure):
    """No sandbox was available, so the submission did not run."""

    reason = "sandbox_unavailable"


class NotLayered(SandboxUnavailable):
    """The environment is no image of this machine's store: no layer can be added to it."""


class NoSandboxInTime(SandboxUnavailable):
    """All sandboxes are in use, or the machine is slow; the backend itself works."""


class BudgetExceeded(NoSandboxInTime):
    """The budget of sandboxes, or of money per hour, is used up; the backend itself works.

    The reason of an item is its base's: older clients know only this reason. A whole request is a
    429 with a reason of its own.
    """


class EnvironmentUnavailable(SandboxUnavailable):
    """The sandboxes of an environment do not start, and another attempt at once would not help."""


class SandboxLost(Failure):
    """The sandbox was lost under a running submission, through no act of the submission."""

    reason = "sandbox_lost"


class JudgeFailed(Failure):
    """The service failed by a bug, or an MCP server that it lists failed; nothing is judged."""

    reason = "judge_failed"


class DeadlinePassed(Failure):
    """The request's deadline passed before the verdict on this item."""

    reason, retryable = "deadline", True


class Overloaded(Failure):
    """The item cannot be served in time."""

    reason = "overloaded"


class Cancelled(Failure):
    """The client disconnected, or the service is stopping."""

    reason = "cancelled"


class PolicyUnavailable(Failure):
    """A rollout's policy endpoint failed after its retries; the policy itself is not judged."""

    reason = "policy_unavailable"


class PolicyRefused(PolicyUnavailable):
    """The policy endpoint refuses the request as sent; the message names the necessary change."""

    retryable = False


class UnknownEnvironment(Failure):
    """The task names an image which its registry does not have, or which does not fit here."""

    reason, retryable = "unknown_environment", False


class InvalidTask(Failure):
    """The tests are broken by themselves: their syntax is wrong, or their setup alone fails."""

    reason, retryable = "invalid_task", False
