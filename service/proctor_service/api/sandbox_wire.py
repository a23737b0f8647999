"""Stateful sandboxes between wire and domain, both ways. Pure, no I/O.

As in `translate.py`: defaults are filled in, ceilings are kept, and a refusal names the field.
"""

from __future__ import annotations

from typing import Any

from proctor_client.wire import ExecRequest, GradeRequest, PytestGrader, SandboxRequest
from proctor_service.api.translate import Machine, check_files, test_count
from proctor_service.errors import InvalidRequest
from proctor_service.evaluate import NoCode
from proctor_service.judge.submission import Submission
from proctor_service.registry import Execution, Kept, Order
from proctor_service.sandbox.interface import Command, Limits

LONGEST_TAG_CHARACTERS = 256
SOLUTION = "solution.py"
KINDS_WITHOUT_SOLUTION = ("pytest", "command")
"""Graders that judge whatever stands in the working directory, with a solution.py or without."""


def order(machine: Machine, asked: SandboxRequest, tenant: str) -> Order:
    """What is to be made. Raises InvalidRequest."""
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
    """What is to be run. Raises InvalidRequest."""
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


def grading_limits(machine: Machine, asked: GradeRequest, kept: Kept) -> Limits:
    """The sandbox's own, where no others are asked for: its files must have room."""
    if isinstance(asked.grader, PytestGrader):
        check_files(asked.grader.files, "grader.files")
    return machine.limits(asked.limits, "limits", kept.limits)


def needs_solution(asked: GradeRequest) -> bool:
    """Whether without a solution.py there is nothing to judge."""
    return asked.grader.kind not in KINDS_WITHOUT_SOLUTION


def nothing_to_judge(asked: GradeRequest, why: str) -> NoCode:
    """For what the agent itself did to its files: a verdict, and no error that it could hide in."""
    return NoCode(test_count(asked.grader), f"There is nothing to judge: {why}")


def submission(
    asked: GradeRequest, limits: Limits, solution: bytes | None, state: bytes
) -> Submission:
    """A sandbox's files as they were left, to be judged; `solution`: its solution.py, if any."""
    return Submission(
        source=_source(solution or b"", not needs_solution(asked)),
        grader=asked.grader,
        limits=limits,
        scoring=asked.scoring,
        state=state,
    )


def _source(solution: bytes, without: bool) -> str:
    """The text of a solution.py. One that is no UTF-8 is nothing that Python takes.

    `without`: the file itself is judged where it stands, and an empty source leaves it there.
    """
    try:
        return solution.decode()
    except UnicodeDecodeError:
        return "" if without else solution.decode("utf-8", "surrogateescape")


def sandbox_body(kept: Kept, backend: str) -> dict[str, Any]:
    """A sandbox as the client sees it."""
    return {
        "id": kept.id,
        "status": kept.status,
        "tags": kept.tags,
        "backend": backend,
        "created_at": kept.created_at.isoformat(),
        "expires_at": kept.expires_at.isoformat(),
        "exec_stats": {
            "total": kept.execs.total(),
            "successes": kept.execs["success"],
            "failures": kept.execs["failure"],
            "errors": kept.execs["error"],
        },
        "message": kept.message,
    }


def exec_body(execution: Execution) -> dict[str, Any]:
    """How a command ended, as the client sees it."""
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
