"""`asserts`: test statements, in the form of MBPP and HumanEval.

Most tests are a call and a literal, and need one sandbox (`separation.py`). Whatever else they are, or
when an object of the submission's own comes back, the test code runs in a second sandbox (`rooms.py`).
"""

from __future__ import annotations

from proctor_client.wire import AssertsGrader
from proctor_service.inside.showing import show
from proctor_service.inside.values import Malformed
from proctor_service.judge import compare, rooms
from proctor_service.judge.frames import Raised, Said, understand
from proctor_service.judge.graders.answers import NOT_REACHED, conclude
from proctor_service.judge.run import python_message, run
from proctor_service.judge.separation import Expectation, Separated, Separator
from proctor_service.judge.submission import Judgement, Submission
from proctor_service.sandbox.interface import Backend

_SHOWN = 300


async def judge(
    submission: Submission, grader: AssertsGrader, backend: Backend, separator: Separator
) -> Judgement:
    """Raises InvalidTask when tests or setup are broken by themselves."""
    parts = separator.separate(grader)
    if isinstance(parts, Separated):
        job = python_message(submission, "calls", calls=parts.calls, imports=parts.imports)
        finished = await run(backend, job, submission.limits, state=submission.state)
        said = understand(finished.lines, len(parts.calls))
        try:
            tests = [
                (_text(wanted, reveal=grader.reveal), _problem(said, index, wanted, grader.reveal))
                for index, wanted in enumerate(parts.expectations)
            ]
            return conclude(finished, said, tests)
        except compare.NeedsRooms:
            pass
    return await rooms.judge(submission, grader, backend)


def _text(wanted: Expectation, *, reveal: bool) -> str:
    if not reveal or wanted.compare is None:
        return wanted.shown
    return f"{wanted.shown} {wanted.symbol} {show(wanted.expected, _SHOWN)}"


def _problem(said: Said, index: int, wanted: Expectation, reveal: bool) -> Raised | None:
    """Why a test does not pass, or None when it does."""
    if index >= len(said.answers):
        return NOT_REACHED
    answer = said.answers[index]
    if isinstance(answer, Raised):
        return answer
    try:
        if compare.holds(answer, wanted):
            return None
    except Malformed:
        return Raised("failed", f"{wanted.shown} returned no proper value")
    text = f"{wanted.shown} returned {compare.shown(answer)}"
    if reveal and wanted.compare is not None:
        text += f", and not {wanted.symbol} {show(wanted.expected, _SHOWN)}"
    return Raised("failed", text)
