"""`asserts`: test statements, in the form of MBPP and HumanEval.

Most tests are a call and a literal, and need one sandbox (`separation.py`). Whatever else they are, or
when an object of the submission's own comes back, the test code runs in a second sandbox (`rooms.py`).
"""

from __future__ import annotations

from proctor_client.wire import MAX_FAILURES, AssertsGrader, Failure, Verdict
from proctor_service.inside.values import Malformed
from proctor_service.judge import compare, rooms
from proctor_service.judge import verdict as verdicts
from proctor_service.judge.frames import FORGED, Raised, Said, understand
from proctor_service.judge.run import Run, python_message, run
from proctor_service.judge.separation import Expectation, Separated, Separator
from proctor_service.judge.submission import Judgement, Submission
from proctor_service.sandbox.interface import Backend


async def judge(
    submission: Submission, grader: AssertsGrader, backend: Backend, separator: Separator
) -> Judgement:
    """Raises InvalidTask when tests or setup are broken by themselves."""
    parts = separator.separate(grader)
    if isinstance(parts, Separated):
        job = python_message(submission, "calls", calls=parts.calls, imports=parts.imports)
        finished = await run(backend, job, submission.limits)
        try:
            return conclude(finished, parts.expectations, reveal=grader.reveal)
        except compare.NeedsRooms:
            pass
    return await rooms.judge(submission, grader, backend)


def conclude(finished: Run, wanted: tuple[Expectation, ...], *, reveal: bool) -> Judgement:
    """Compares each answer with what is expected of it. Raises NeedsRooms."""
    said = understand(finished.lines, len(wanted))
    passed = 0
    failures: list[Failure] = []
    first: Raised | None = None
    for index, expectation in enumerate(wanted):
        problem = _problem(said, index, expectation, reveal=reveal)
        if problem is None:
            passed += 1
            continue
        first = first or problem
        if len(failures) < MAX_FAILURES:
            shown = expectation.shown
            if reveal and expectation.compare is not None:
                shown += f" {expectation.symbol} {expectation.expected!r}"[:300]
            failures.append(Failure(index=index, test=shown, message=problem.summary))
    verdict, message = _verdict(finished, said, first)
    return finished.judgement(
        verdict,
        passed=passed,
        total=len(wanted),
        failures=tuple(failures),
        message=message,
        hack_signals=signals(said, verdict),
    )


def signals(said: Said, verdict: Verdict) -> tuple[str, ...]:
    """What the submission tried, as far as one run shows it."""
    found = []
    if said.forged:
        found.append(FORGED)
    if verdict == "early_exit":
        found.append("early_exit")
    return tuple(found)


def _verdict(finished: Run, said: Said, first: Raised | None) -> tuple[Verdict, str]:
    limited = verdicts.of_limit(finished.ended)
    if limited is not None:
        return limited
    if said.stopped is not None:
        text = said.stopped.traceback or said.stopped.summary
        return said.stopped.verdict, text
    if not said.done:
        if said.forged:
            return "failed", "what the program sent is no answer"
        return verdicts.of_silence(finished.ended)
    if first is not None:
        return first.verdict, first.traceback or first.summary
    return "passed", ""


def _problem(said: Said, index: int, wanted: Expectation, *, reveal: bool) -> Raised | None:
    """Why a test does not pass, or None when it does."""
    if index >= len(said.answers):
        return Raised("failed", "not reached")
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
        text += f", and not {wanted.symbol} {wanted.expected!r}"[:300]
    return Raised("failed", text)
