"""Submissions from trajectories: submitted programs, or the final files of an agent."""

from __future__ import annotations

from proctor_service.evaluate import NoCode
from proctor_service.judge.extract import extract
from proctor_service.judge.recognition import parsed
from proctor_service.judge.submission import Submission
from proctor_service.rollout.trajectory import Plan

SOLUTION = "solution.py"
KINDS_WITHOUT_SOLUTION = ("pytest", "command", "harbor")
"""Graders that judge the working directory, with or without a solution.py."""


def of_code(plan: Plan, code: str | None) -> Submission | NoCode:
    """Return the submission of a program, with the original files of the task."""
    task = plan.task
    if code is None:
        return NoCode(task.test_count, environment=plan.environment)
    return Submission(
        code, task.grader, plan.limits, plan.scoring, files=task.files, environment=plan.environment
    )


def of_files(plan: Plan) -> Submission | NoCode:
    """Return the submission of an agent that has left no sandbox: the task's own files."""
    if plan.task.grader.kind == "harbor":
        return of_code(plan, "")  # its verifier decides about an untouched image, too
    return of_code(plan, plan.task.files.get(SOLUTION))


def of_submission(plan: Plan, code: str) -> Submission | NoCode:
    """Return the submission for the code of a submit_solution call.

    Code that parses is used as is; otherwise the extractor searches the text for code. If the
    extractor finds none, the text is judged as a program with a syntax error.
    """
    if not code.strip():
        return of_code(plan, None)
    is_python = parsed(code) is not None
    return of_code(plan, code if is_python else extract(code, plan.extract) or code)


def of_state(plan: Plan, solution: bytes | None, archive: bytes) -> Submission | NoCode:
    """Return the submission of an agent's final files, with the solution.py if present.

    The endpoint /sandboxes/{id}/grade treats files in the same way.
    """
    grader = plan.task.grader
    without = grader.kind in KINDS_WITHOUT_SOLUTION
    if solution is None and not without:
        return of_code(plan, None)
    # The archive already contains the task's files, in their final state.
    source = _text(solution or b"", without)
    return Submission(
        source, grader, plan.limits, plan.scoring, state=archive, environment=plan.environment
    )


def _text(solution: bytes, without: bool) -> str:
    """Decode the solution; invalid UTF-8 is invalid Python too.

    An empty source leaves the file in the archive as is.
    """
    try:
        return solution.decode()
    except UnicodeDecodeError:
        return "" if without else solution.decode("utf-8", "surrogateescape")
