"""`asserts` at level `calls`: call the submission's functions, compare their results here."""

from __future__ import annotations

import asyncio

from proctor_client.wire import AssertsGrader
from proctor_service.codec.safe_repr import show
from proctor_service.codec.values import Malformed
from proctor_service.judge import compare
from proctor_service.judge.analysis.formulas import Check, NotDecidable
from proctor_service.judge.analysis.plan import Plan, PlannedTest
from proctor_service.judge.frames import Raised, Said, understand
from proctor_service.judge.graders.answers import NOT_REACHED, conclude
from proctor_service.judge.run import calls_message, run
from proctor_service.judge.submission import Judgement, Submission
from proctor_service.sandbox.interface import Backend

_SHOWN = 300
_MOST_BYTES_IN_THE_LOOP = 32_768


async def judge(
    submission: Submission, grader: AssertsGrader, backend: Backend, plan: Plan
) -> Judgement:
    """Judge with one sandbox. Raises NotDecidable if this process cannot compare a result."""
    job = calls_message(submission, plan.calls_json, plan.imports)
    finished = await run(backend, job, submission.limits, state=submission.state)
    said = understand(finished.lines, plan.count)
    if sum(map(len, finished.lines)) > _MOST_BYTES_IN_THE_LOOP:
        tests = await asyncio.to_thread(_outcomes, plan, said, grader)
    else:
        tests = _outcomes(plan, said, grader)
    return conclude(finished, said, tests)


def _outcomes(plan: Plan, said: Said, grader: AssertsGrader) -> list[tuple[str, Raised | None]]:
    """Return each test's text and its problem; the problem of a passed test is None."""
    answers = [each if isinstance(each, bytes) else b"" for each in said.answers]
    outcomes = []
    for index, test in enumerate(plan.tests):
        problem = _problem(test, said, answers, reveal=grader.reveal)
        text = ""
        if problem is not None:
            text = (
                grader.tests[index][:_SHOWN]
                if grader.reveal
                else test.checks[0].shown
                if test.checks
                else f"test {index}"
            )
        outcomes.append((text, problem))
    return outcomes


def _problem(test: PlannedTest, said: Said, answers: list[bytes], *, reveal: bool) -> Raised | None:
    """Return the problem of a failed test; None for a passed test.

    The problem is the first failed check, or an earlier call without a result.
    """
    stopped: Raised | None = None
    returned: set[int] = set()
    for number in test.calls:
        answer = said.answers[number] if number < len(answers) else NOT_REACHED
        if isinstance(answer, Raised):
            stopped = answer
            break
        returned.add(number)
    for check in test.checks:
        if not returned.issuperset(check.calls):
            break
        failure = _failure(check, answers, reveal)
        if failure is not None:
            return failure
    return stopped


def _failure(check: Check, answers: list[bytes], reveal: bool) -> Raised | None:
    try:
        if compare.holds(check, answers):
            return None
    except Malformed:
        return Raised("failed", f"{check.shown} returned no proper value")
    except NotDecidable:
        raise
    except Exception as error:  # a formula may raise anything on a value of an unexpected type
        return Raised("failed", f"the test raises {type(error).__name__} ({check.shown})")
    if check.formula is not None:
        returned = ", ".join(compare.shown(answers[number]) for number in check.calls[:4])
        text = f"a condition on results does not hold; returned: {returned}"
        return Raised("failed", f"{text}: {check.text}" if reveal else text)
    text = f"{check.shown} returned {compare.shown(answers[check.calls[0]])}"
    if reveal and check.compare is not None:
        text += f", and not {check.symbol} {show(check.expected, _SHOWN)}"
    return Raised("failed", text)
