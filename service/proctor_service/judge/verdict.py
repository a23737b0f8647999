"""Mapping from the ending of a program to the verdict of its submission."""

from __future__ import annotations

import signal

from proctor_client.wire import Verdict
from proctor_service.errors import SandboxLost
from proctor_service.sandbox.interface import Ended

_LIMITS: dict[str, Verdict] = {
    "cpu_limit": "timeout",
    "wall_limit": "timeout",
    "memory_limit": "memory_limit",
    "output_limit": "output_limit",
}
_MESSAGES: dict[str, str] = {
    "cpu_limit": "time limit: it used more CPU time than it may",
    "wall_limit": "time limit: it waited for longer than it may",
    "memory_limit": "memory limit: it used more memory than it may",
    "output_limit": "output limit: it wrote more than it may",
}


def of_limit(ended: Ended) -> tuple[Verdict, str] | None:
    """Return the verdict and message when a limit ended the program, else None."""
    verdict = _LIMITS.get(ended.ending)
    return None if verdict is None else (verdict, _MESSAGES[ended.ending])


def of_silence(ended: Ended) -> tuple[Verdict, str]:
    """Return the verdict of a program that ended before it answered.

    Raises SandboxLost if the service ended the program: the submission then has no verdict.
    """
    limited = of_limit(ended)
    if limited is not None:
        return limited
    if ended.ending == "killed":
        raise SandboxLost("the sandbox was ended before the submission had answered")
    if ended.signal is not None:
        return "runtime_error", f"the program died of {_signal_name(ended.signal)}"
    return "early_exit", f"the program left with code {ended.exit_code} before it had answered"


def of_exception(names: object) -> Verdict:
    """Return the verdict of an exception, from the names of its class and base classes."""
    known = names if isinstance(names, list) else []
    if "MemoryError" in known:
        return "memory_limit"
    if "AssertionError" in known:
        return "failed"
    return "runtime_error"


def text_of(output: bytes) -> str:
    """Decode output as UTF-8; invalid bytes become backslash escapes."""
    return output.decode("utf-8", "backslashreplace")


def _signal_name(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"
