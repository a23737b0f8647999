"""How a sandbox ended, decided in one pure function.

The ambiguity: a SIGKILL may be ours (a limit, or nobody needs it), the kernel's for memory, the
program's own act, or somebody else's. What we did comes first, then what the kernel counted, then the
status by itself. The order is the same under load and on an idle machine, so a verdict does not depend
on who noticed first.

The first process of a pid namespace cannot be killed from inside it, neither by itself nor by a limit on
CPU time of its own (`seccomp.py` sees to that). A SIGKILL of it that nothing here explains came from
outside, and says nothing about the submission; nor does a kill for memory below its own limit.
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
    `cpu_seconds` are the sandbox's own, over all its processes. `at_memory_limit`: it was at its own
    limit of memory. `is_first_process`: of a pid namespace of its own.
    """

    status: int
    stopped_for: Ending | None
    out_of_memory_kills: int
    cpu_seconds: float
    at_memory_limit: bool = True
    is_first_process: bool = False


def outside_cause(evidence: Evidence, limits: Limits) -> str | None:
    """What outside of the sandbox ended it, or a process in it; None where it ended by itself, or by us."""
    if evidence.stopped_for in ("output_limit", "memory_limit"):
        return None
    if evidence.out_of_memory_kills and not evidence.at_memory_limit:
        return "its surroundings ran out of memory before it reached its own limit"
    status = evidence.status
    was_killed = os.WIFSIGNALED(status) and os.WTERMSIG(status) == signal.SIGKILL
    explained = (
        evidence.stopped_for is not None
        or evidence.out_of_memory_kills > 0
        or evidence.cpu_seconds > limits.cpu_seconds
    )
    if was_killed and evidence.is_first_process and not explained:
        return "it was killed from outside"
    return None


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
    if evidence.stopped_for is not None and not (
        evidence.stopped_for == "killed" and number != signal.SIGKILL
    ):
        return evidence.stopped_for, code, number
    return ("exited" if number is None else "signalled"), code, number


OVER = {
    "memory_limit": "the sandbox used up its memory and ended",
    "output_limit": "the sandbox ended: too much output",
    "killed": "the sandbox was stopped",
}
"""What became of a sandbox that somebody still wanted something of."""
