"""Classification of a sandbox's ending, in pure functions.

A SIGKILL is ambiguous: the sender may be the service (a limit, or a result no longer needed), the
kernel (out of memory), the program itself, or another process outside. The service's own reason is
checked first, then the kernel's counters, then the status alone. The order is the same under load
and on an idle machine, so the verdict does not depend on timing.

The first process of a PID namespace cannot be killed from inside: the kernel ignores a SIGKILL from
the same namespace, and `seccomp.py` makes a CPU time rlimit ineffective. An unexplained SIGKILL of
this process came from outside and is no evidence against the submission. The same holds for an
out-of-memory kill below the sandbox's own limit. Where the sandbox has no memory cgroup, any such
kill around it, in the service's cgroup or on the machine, may have been one of the sandbox's: a
program that failed meanwhile is judged again.
"""

from __future__ import annotations

import os
import signal
from dataclasses import dataclass

from proctor_service.sandbox.interface import Ended, Ending, Usage

SHORT_OF_MEMORY = "its surroundings ran out of memory before it reached its own limit"


@dataclass(frozen=True, slots=True)
class Evidence:
    """Facts known once all processes of a sandbox are gone.

    `status`: as from wait(2). `stopped_for`: the service's reason for stopping the sandbox, or
    None. `out_of_memory_kills`: total over all processes of the sandbox. `cpu_exceeded`: their CPU
    time is above a limit.
    `at_memory_limit`: the sandbox reached its own memory limit. `is_first_process`: `status`
    belongs to the first process of the sandbox's own PID namespace. `kills_around`: number of
    processes killed for memory around it meanwhile, where no cgroup of its own counts.
    """

    status: int
    stopped_for: Ending | None
    out_of_memory_kills: int
    cpu_exceeded: bool
    at_memory_limit: bool = True
    is_first_process: bool = False
    kills_around: int = 0


def outside_cause(evidence: Evidence) -> str | None:
    """Return the outside cause of the ending; None if caused by the program or the service."""
    if evidence.stopped_for in ("output_limit", "memory_limit"):
        return None
    if evidence.out_of_memory_kills and not evidence.at_memory_limit:
        return SHORT_OF_MEMORY
    status = evidence.status
    # A program may also wait for ever for a child that was killed.
    may_be_the_reason = evidence.stopped_for in (None, "wall_limit") and status != 0
    if evidence.kills_around and may_be_the_reason:
        return SHORT_OF_MEMORY
    was_killed = os.WIFSIGNALED(status) and os.WTERMSIG(status) == signal.SIGKILL
    explained = (
        evidence.stopped_for is not None
        or evidence.out_of_memory_kills > 0
        or evidence.cpu_exceeded
    )
    if was_killed and evidence.is_first_process and not explained:
        return "it was killed from outside"
    return None


def ended_by(
    evidence: Evidence,
    *,
    stdout: bytes,
    stderr: bytes,
    truncated: bool,
    usage: Usage,
) -> Ended:
    """Return the ending of a program by this evidence, with its output."""
    code = os.WEXITSTATUS(evidence.status) if os.WIFEXITED(evidence.status) else None
    number = os.WTERMSIG(evidence.status) if os.WIFSIGNALED(evidence.status) else None
    ending: Ending = "exited" if number is None else "signalled"
    if evidence.stopped_for in ("output_limit", "memory_limit"):
        ending = evidence.stopped_for
    elif evidence.out_of_memory_kills:
        ending = "memory_limit"
    elif evidence.cpu_exceeded or number == signal.SIGXCPU:
        ending = "cpu_limit"
    elif evidence.stopped_for is not None and not (
        evidence.stopped_for == "killed" and number != signal.SIGKILL
    ):
        ending = evidence.stopped_for
        code = None  # a shell whose child is killed first ends with a code of that
    # A program may survive the loss of a child, and fail by it later; its limits are its own.
    within_limits = ending in ("exited", "signalled", "killed")
    doubt = SHORT_OF_MEMORY if evidence.kills_around and within_limits else ""
    return Ended(ending, code, number, stdout, stderr, truncated, usage, doubt)


OVER = {
    "memory_limit": "the sandbox used up its memory and ended",
    "output_limit": "the sandbox ended: too much output",
    "killed": "the sandbox was stopped",
}
"""Error messages for calls to an ended sandbox, by ending."""
