"""What each of the SDK's exceptions means: one table, and one pure function that reads it.

The ambiguity: an exception of the SDK never says how a program ended. A program's own timeout is found
inside the sandbox and reported there, so `SandboxTimeoutError` is always the gateway's. Whether anything
may have run is not for the exception to say either, but for the stage at which it came. So every one
of them is a failure, and none is an ending.

Rows are found by the names of an exception's classes, the nearest first: `SandboxUnavailableError` is
also a `SandboxNotRunningError`, and the order in which they stand here does not matter.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from proctor_service.errors import Failure, SandboxLost, SandboxUnavailable

Stage = Literal["start", "run"]
"""`start`: no program has been given to the sandbox yet. `run`: one may have run."""


@dataclass(frozen=True, slots=True)
class Meaning:
    """A row: a stable name for metrics and messages, and whether to try again may help."""

    reason: str
    passing: bool = True


TABLE: dict[str, Meaning] = {
    # refused for what was asked, or for who asked: no second try changes that
    "CWSandboxAuthenticationError": Meaning("refused_credentials", passing=False),
    "CWSandboxValidationError": Meaning("refused_request", passing=False),
    "SandboxValidationError": Meaning("refused_request", passing=False),
    # the gateway, or what is between
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
    # a command: without an exit code, or with a part of its output missing, nothing is known of it
    "SandboxExecutionError": Meaning("no_exit_code"),
    "SandboxStreamBackpressureError": Meaning("output_lost"),
    "SandboxStreamTruncatedError": Meaning("output_lost"),
    "SandboxFileError": Meaning("file"),
    # the bases of all others, those of services that are not used here among them
    "SandboxError": Meaning("other"),
    "CWSandboxError": Meaning("other"),
}
_UNKNOWN = Meaning("other")


def meaning_of(error: BaseException) -> Meaning:
    """The row of an exception; what the SDK lets through from below it is `other`."""
    for cls in type(error).__mro__:
        if cls.__name__ in TABLE:
            return TABLE[cls.__name__]
    return _UNKNOWN


def failure_of(error: BaseException, stage: Stage) -> Failure:
    """The failure that an exception is at that stage: SandboxUnavailable or SandboxLost."""
    if isinstance(error, Failure):
        return error
    # Some texts of the SDK begin with the whole command, which is ours and always the same.
    text = "" if str(error).startswith("Command ") else f": {str(error)[:300]}"
    message = f"{meaning_of(error).reason}: {type(error).__name__}{text}"
    return SandboxUnavailable(message) if stage == "start" else SandboxLost(message)
