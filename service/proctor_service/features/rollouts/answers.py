"""Submissions from trajectories: submitted programs, or the final files of an agent.

Of a grader of completions, the last reply is the completion, or the text that the policy has submitted.
"""

from __future__ import annotations

from dataclasses import replace

from proctor_service.judge.extract import (
    PYTHON_TEXTS,
    assembled,
    read_program,
    reference_program,
)
from proctor_service.judge.submission import (
    SOLUTION,
    Submission,
    integrity_of,
    needs_solution,
    source_of,
)
from proctor_service.outcomes import NoCode, TrajectoryPlan


async def of_code(
    plan: TrajectoryPlan, code: str | None, completion: str = ""
) -> Submission | NoCode:
    """Return the submission of a program, with the original files of the task."""
    task = plan.task
    if code is None and task.grader.judges != "completion":
        return NoCode(
            task.test_count,
            environment=plan.environment,
            integrity=integrity_of(task.grader),
        )
    submission = Submission(
        code or "",
        task.grader,
        plan.limits,
        plan.scoring,
        files=task.files,
        environment=plan.environment,
        negative_control=plan.negative_control,
    )
    return await _with_completion(plan, submission, completion)


async def of_reply(plan: TrajectoryPlan, text: str) -> Submission | NoCode:
    """Return the submission of a reply: the program of its code."""
    program = await read_program(text, plan.extract, PYTHON_TEXTS, plan.task.around)
    return await of_code(plan, program, text)


async def of_files(plan: TrajectoryPlan, last_reply: str) -> Submission | NoCode:
    """Return the submission of an agent without a sandbox: the task's own files."""
    grader, around = plan.task.grader, plan.task.around
    if grader.judges in ("sandbox", "repository"):
        return await of_code(plan, "")  # its verifier decides about an untouched image, too
    if grader.judges == "completion" and SOLUTION not in plan.task.files:
        return await of_reply(plan, last_reply)
    solution = plan.task.files.get(SOLUTION)
    return await of_code(plan, solution and assembled(solution, PYTHON_TEXTS, around), last_reply)


async def of_submission(plan: TrajectoryPlan, code: str) -> Submission | NoCode:
    """Return the submission for the code of a submit_solution call.

    The text is read by the rule `auto`, since a call lacks a format of its own. Without code the
    text is judged as a program.
    """
    if not code.strip():
        return await of_code(plan, None)
    around = plan.task.around
    program = await read_program(code, "auto", PYTHON_TEXTS, around) or assembled(
        code, PYTHON_TEXTS, around
    )
    return await of_code(plan, program, code)


async def of_state(
    plan: TrajectoryPlan, solution: bytes | None, archive: bytes, last_reply: str
) -> Submission | NoCode:
    """Return the submission of an agent's final files, with the solution.py if present.

    The endpoint /sandboxes/{id}/grade treats files in the same way.
    """
    grader, around = plan.task.grader, plan.task.around
    if solution is None and needs_solution(grader):
        return await of_code(plan, None)
    source = assembled(source_of(solution or b"", grader), PYTHON_TEXTS, around)
    if solution is None and grader.judges == "completion":
        source = await read_program(last_reply, plan.extract, PYTHON_TEXTS, around) or ""
    # The archive already contains the task's files, in their final state.
    submission = Submission(
        source,
        grader,
        plan.limits,
        plan.scoring,
        state=archive,
        environment=plan.environment,
        negative_control=plan.negative_control,
    )
    return await _with_completion(plan, submission, last_reply)


def of_tree(plan: TrajectoryPlan, tree_file: str) -> Submission:
    """Return the submission of an agent's repository, saved to a file."""
    return Submission(
        "",
        plan.task.grader,
        plan.limits,
        plan.scoring,
        files=plan.task.files,
        environment=plan.environment,
        tree_file=tree_file,
    )


async def _with_completion(
    plan: TrajectoryPlan, submission: Submission, completion: str
) -> Submission:
    """Return the submission with what a grader of completions gets beside the code."""
    task = plan.task
    if task.grader.judges != "completion":
        return submission
    reference = await reference_program(task.grader, plan.extract, PYTHON_TEXTS, task.around)
    return replace(
        submission, completion=completion, prompt=list(task.messages), reference=reference
    )
