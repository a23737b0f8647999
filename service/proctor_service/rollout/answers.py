"""What is judged of a trajectory: a program that was submitted, or what an agent has left behind."""

from __future__ import annotations

import ast
import warnings

from proctor_service.evaluate import NoCode
from proctor_service.judge.extract import MAX_PARSED_CHARACTERS, extract
from proctor_service.judge.submission import Submission
from proctor_service.rollout.trajectory import Plan

SOLUTION = "solution.py"
KINDS_WITHOUT_SOLUTION = ("pytest", "command")
"""Graders that judge whatever stands in the working directory, with a solution.py or without."""


def of_code(plan: Plan, code: str | None) -> Submission | NoCode:
    """A program, with the task's files as they were."""
    task = plan.task
    if code is None:
        return NoCode(task.test_count)
    return Submission(code, task.grader, plan.limits, plan.scoring, files=task.files)


def of_submission(plan: Plan, code: str) -> Submission | NoCode:
    """The code of a submit_solution: as it stands when it parses, else what is found in it.

    Where nothing is found it is judged as it is: then it is a program with an error in its syntax.
    """
    if not code.strip():
        return of_code(plan, None)
    return of_code(plan, code if _parses(code) else extract(code, plan.extract) or code)


def of_state(plan: Plan, solution: bytes | None, archive: bytes) -> Submission | NoCode:
    """An agent's files as it left them, and its solution.py if there is one; as of
    /sandboxes/{id}/grade."""
    grader = plan.task.grader
    without = grader.kind in KINDS_WITHOUT_SOLUTION
    if solution is None and not without:
        return of_code(plan, None)
    # Without the task's files: they are in the archive, with what became of them.
    source = _text(solution or b"", without)
    return Submission(source, grader, plan.limits, plan.scoring, state=archive)


def _text(solution: bytes, without: bool) -> str:
    """What is no UTF-8 is nothing that Python takes; an empty source leaves the file as it is."""
    try:
        return solution.decode()
    except UnicodeDecodeError:
        return "" if without else solution.decode("utf-8", "surrogateescape")


def _parses(code: str) -> bool:
    if len(code) > MAX_PARSED_CHARACTERS:
        return False
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            ast.parse(code)
    except (SyntaxError, ValueError, MemoryError, RecursionError):
        return False
    return True
