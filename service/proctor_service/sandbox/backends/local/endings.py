"""How a sandbox ended, decided in one pure function.

The ambiguity: a SIGKILL may be ours (a limit, or nobody needs it), the kernel's for memory, the
kernel's for CPU time (the rlimit behind our own measure), or the program's own act. What we did comes
first, then what the kernel counted, then the status by itself. The order is the same under load and on
an idle machine, so a verdict does not depend on who noticed first.
"""

from __future__ import annotations

import os
import signal
from dataclasses import dataclass

from proctor_service.sandbox.interface import Ending, Limits


@dataclass(frozen=True, slots=True)
class Evidence:
    """What is known once all processes of a sandbox are gone.

    `status` is wait(2)'s; `stopped_for` says why we ended it, if we did; `out_of_memory_kills` and
    `cpu_seconds` are the sandbox's own, over all its processes.
    """

    status: int
    stopped_for: Ending | None
    out_of_memory_kills: int
    cpu_seconds: float


def classify(evidence: Evidence, limits: Limits) -> tuple[Ending, int | None, int | None]:
    """(ending, exit code or None, signal or None)."""
    code = os.WEXITSTATUS(evidence.status) if os.WIFEXITED(evidence.status) else None
    number = os.WTERMSIG(evidence.status) if os.WIFSIGNALED(evidence.status) else None
    if evidence.stopped_for in ("output_limit", "memory_limit"):
        return evidence.stopped_for, code, number
    if evidence.out_of_memory_kills:
        return "memory_limit", code, number
    if evidence.cpu_seconds > limits.cpu_seconds or number == signal.SIGXCPU:
        return "cpu_limit", code, number
    if evidence.stopped_for is not None:
        return evidence.stopped_for, code, number
    return ("exited" if number is None else "signalled"), code, number
