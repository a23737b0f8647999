"""Conversion of stateful sandboxes between wire and domain, in both directions. Pure, no I/O.

As in `items.py`: defaults are filled in, ceilings are enforced, and an error names the field.
"""

from __future__ import annotations

from typing import Any

from proctor_client.wire import ExecRequest, GradeRequest, PytestGrader, SandboxRequest
from proctor_service.api.rewards.items import Machine, check_files, test_count
from proctor_service.errors import InvalidRequest
from proctor_service.evaluate import NoCode
from proctor_service.judge.submission import Submission
from proctor_service.sandbox.interface import Command, Limits
from proctor_service.sessions import Execution, Order, Session

LONGEST_TAG_CHARACTERS = 256
SOLUTION = "solution.py"
KINDS_WITHOUT_SOLUTION = ("pytest", "command")
"""Graders that judge the files in the working directory, with or without a solution.py."""


def order(machine: Machine, asked: SandboxRequest, tenant: str) -> Order:
    """Return the order for a new sandbox. Raises InvalidRequest."""
    check_files(asked.files, "files")
    for index, tag in enumerate(asked.tags):
        if len(tag) > LONGEST_TAG_CHARACTERS:
            raise InvalidRequest(f"tags.{index}: longer than {LONGEST_TAG_CHARACTERS} characters")
    return Order(
        tenant=tenant,
        limits=machine.limits(asked.limits, "limits"),
        tags=tuple(asked.tags),
        ttl_seconds=asked.ttl_seconds,
        files=asked.files,
        job=asked.job,
    )


def command(machine: Machine, asked: ExecRequest) -> Command:
    """Return the command to run. Raises InvalidRequest."""
    ceiling = machine.settings.max_wall_seconds
    seconds = asked.timeout_seconds
    if seconds is not None and not seconds <= ceiling:
        raise InvalidRequest(f"timeout_seconds: {seconds} is above this server's {ceiling}")
    argv = tuple(asked.command or ())
    for index, word in enumerate(argv):
        if "\0" in word or not _is_text(word):
            raise InvalidRequest(f"command.{index}: no argument of a program can hold that")
    stdin = asked.stdin.encode("utf-8", "surrogatepass")
    return Command(argv, asked.code, stdin, seconds)


def grading_limits(machine: Machine, asked: GradeRequest, session: Session) -> Limits:
    """Return the requested limits; the default is the sandbox's own, so its files fit."""
    if isinstance(asked.grader, PytestGrader):
        check_files(asked.grader.files, "grader.files")
    return machine.limits(asked.limits, "limits", session.limits)


def needs_solution(asked: GradeRequest) -> bool:
    """Return True if the grader can only judge a solution.py."""
    return asked.grader.kind not in KINDS_WITHOUT_SOLUTION


def nothing_to_judge(asked: GradeRequest, why: str) -> NoCode:
    """Return the result for files removed or broken by the agent: a verdict rather than an error.

    An error would let the agent avoid a bad reward.
    """
    return NoCode(test_count(asked.grader), f"There is nothing to judge: {why}")


def submission(
    asked: GradeRequest, limits: Limits, solution: bytes | None, state: bytes
) -> Submission:
    """Return a submission from a sandbox's files; `solution`: its solution.py, if any."""
    return Submission(
        source=_source(solution or b"", not needs_solution(asked)),
        grader=asked.grader,
        limits=limits,
        scoring=asked.scoring,
        state=state,
    )


def _source(solution: bytes, without: bool) -> str:
    """Return the text of a solution.py. With invalid UTF-8 the text is a syntax error in Python.

    `without`: the grader judges the file in its place, and an empty source leaves the file
    unchanged.
    """
    try:
        return solution.decode()
    except UnicodeDecodeError:
        return "" if without else solution.decode("utf-8", "surrogateescape")


def sandbox_body(session: Session, backend: str) -> dict[str, Any]:
    """Return a sandbox in its wire form."""
    return {
        "id": session.id,
        "status": session.status,
        "tags": session.tags,
        "backend": backend,
        "created_at": session.created_at.isoformat(),
        "expires_at": session.expires_at.isoformat(),
        "exec_stats": {
            "total": session.execs.total(),
            "successes": session.execs["success"],
            "failures": session.execs["failure"],
            "errors": session.execs["error"],
        },
        "message": session.message,
    }


def exec_body(execution: Execution) -> dict[str, Any]:
    """Return the result of a command in its wire form."""
    ended = execution.ended
    usage = ended.usage
    return {
        "exit_code": ended.exit_code if ended.ending == "exited" else None,
        "stdout": ended.stdout.decode("utf-8", "replace"),
        "stderr": ended.stderr.decode("utf-8", "replace"),
        "ending": ended.ending,
        "truncated": ended.truncated,
        "usage": {
            "cpu_seconds": round(usage.cpu_seconds, 6),
            "wall_seconds": round(usage.wall_seconds, 6),
            "queue_seconds": round(execution.queue_seconds, 6),
            "peak_memory_mb": round(usage.peak_memory_mb, 3),
        },
    }


def _is_text(word: str) -> bool:
    try:
        word.encode()
    except UnicodeEncodeError:
        return False
    return True
