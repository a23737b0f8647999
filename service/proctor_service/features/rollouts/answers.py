"""Submissions from trajectories: submitted programs, or the final files of an agent."""

from __future__ import annotations

from proctor_service.judge.extract import PYTHON_TEXTS, assembled, read_program
from proctor_service.judge.submission import (
    SOLUTION,
    Submission,
    integrity_of,
    needs_solution,
    source_of,
)
from proctor_service.outcomes import NoCode, TrajectoryPlan


def of_code(plan: TrajectoryPlan, code: str | None) -> Submission | NoCode:
    """Return the submission of a program, with the original files of the task."""
    task = plan.task
    if code is None:
        return NoCode(
            task.test_count,
            environment=plan.environment,
            integrity=integrity_of(task.grader),
        )
    return Submission(
        code,
        task.grader,
        plan.limits,
        plan.scoring,
        files=task.files,
        environment=plan.environment,
        negative_control=plan.negative_control,
    )


async def of_reply(plan: TrajectoryPlan, text: str) -> Submission | NoCode:
    """Return the submission of a reply: the program of its code."""
    return of_code(plan, await read_program(text, plan.extract, PYTHON_TEXTS, plan.task.around))


def of_files(plan: TrajectoryPlan) -> Submission | NoCode:
    """Return the submission of an agent without a sandbox: the task's own files."""
    if plan.task.grader.judges == "sandbox":
        return of_code(plan, "")  # its verifier decides about an untouched image, too
    solution = plan.task.files.get(SOLUTION)
    return of_code(plan, solution and assembled(solution, PYTHON_TEXTS, plan.task.around))


async def of_submission(plan: TrajectoryPlan, code: str) -> Submission | NoCode:
    """Return the submission for the code of a submit_solution call.

    The text is read by the rule `auto`, since a call lacks a format of its own. Without code the
    text is judged as a program.
    """
    if not code.strip():
        return of_code(plan, None)
    around = plan.task.around
    program = await read_program(code, "auto", PYTHON_TEXTS, around) or assembled(
        code, PYTHON_TEXTS, around
    )
    return of_code(plan, program)


def of_state(plan: TrajectoryPlan, solution: bytes | None, archive: bytes) -> Submission | NoCode:
    """Return the submission of an agent's final files, with the solution.py if present.

    The endpoint /sandboxes/{id}/grade treats files in the same way.
    """
    grader = plan.task.grader
    if solution is None and needs_solution(grader):
        return of_code(plan, None)
    # The archive already contains the task's files, in their final state.
    return Submission(
        assembled(source_of(solution or b"", grader), PYTHON_TEXTS, plan.task.around),
        grader,
        plan.limits,
        plan.scoring,
        state=archive,
        environment=plan.environment,
        negative_control=plan.negative_control,
    )
