"""Meaning of the SDK's exceptions: a table, and a pure function which reads the table.

The ambiguity: an exception of the SDK never reports a program's ending. The supervisor inside the
sandbox detects and reports a program's own timeout, so `SandboxTimeoutError` always concerns the
gateway. The exception also does not show if a program may have run; this depends on the stage of
the call. So every exception is a failure.

The lookup uses the class names of an exception in method resolution order:
`SandboxUnavailableError` is also a `SandboxNotRunningError`, and the order of the table's rows does
not matter.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from proctor_service.errors import Failure, SandboxLost, SandboxUnavailable

Stage = Literal["start", "run"]
"""`start`: no program has been sent to the sandbox yet. `run`: a program may have run."""


@dataclass(frozen=True, slots=True)
class Meaning:
    """Row of the table: a stable name for metrics and messages; `passing`: a retry may help."""

    reason: str
    passing: bool = True


TABLE: dict[str, Meaning] = {
    # refused for the request or the credentials: a retry cannot help
    "CWSandboxAuthenticationError": Meaning("refused_credentials", passing=False),
    "CWSandboxValidationError": Meaning("refused_request", passing=False),
    "SandboxValidationError": Meaning("refused_request", passing=False),
    # the gateway, or the network
    "SandboxResourceExhaustedError": Meaning("capacity"),
    "SandboxUnavailableError": Meaning("unavailable"),
    "SandboxTimeoutError": Meaning("timeout"),
    "SandboxRequestTimeoutError": Meaning("timeout"),
    "SandboxCommandTimeoutError": Meaning("timeout"),
    "SandboxProtocolError": Meaning("protocol"),
    # the sandbox
    "SandboxNotRunningError": Meaning("not_running"),
    "SandboxNotFoundError": Meaning("not_found"),
    "SandboxTerminatedError": Meaning("terminated"),
    "SandboxFailedError": Meaning("failed"),
    "SandboxTerminalStateUnavailableError": Meaning("unknown_end"),
    # a command without exit code or with missing output: its result is unknown
    "SandboxExecutionError": Meaning("no_exit_code"),
    "SandboxStreamBackpressureError": Meaning("output_lost"),
    "SandboxStreamTruncatedError": Meaning("output_lost"),
    "SandboxFileError": Meaning("file"),
    # base classes of all others, including services not used here
    "SandboxError": Meaning("other"),
    "CWSandboxError": Meaning("other"),
}
_UNKNOWN = Meaning("other")


def meaning_of(error: BaseException) -> Meaning:
    """Return the row of an exception; exceptions from below the SDK are `other`."""
    for cls in type(error).__mro__:
        if cls.__name__ in TABLE:
            return TABLE[cls.__name__]
    return _UNKNOWN


def failure_of(error: BaseException, stage: Stage) -> Failure:
    """Return an exception's failure at this stage: SandboxUnavailable or SandboxLost."""
    if isinstance(error, Failure):
        return error
    # Some messages of the SDK begin with the whole command, which is constant.
    text = "" if str(error).startswith("Command ") else f": {str(error)[:300]}"
    message = f"{meaning_of(error).reason}: {type(error).__name__}{text}"
    return SandboxUnavailable(message) if stage == "start" else SandboxLost(message)
