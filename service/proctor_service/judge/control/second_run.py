"""The negative control of a judgement: passed programs run once more, by other expected values.

A program with a second pass has earned both passes without right answers: a right program fails. A
second run without a result leaves the finding open: after a failure of the service, by a limit, for
tests without a clear expectation, and for a changed suite with errors of syntax.
"""

from __future__ import annotations

import asyncio
import logging
import math
import time
from collections.abc import Awaitable, Callable
from dataclasses import replace

from proctor_client.wire import ControlOutcome
from proctor_service.judge.control.graders import changed_grader
from proctor_service.judge.run import LIMITS
from proctor_service.judge.submission import Control, Judgement, Submission
from proctor_service.sandbox.interface import Limits, Sandboxes, Usage

PASSES_WRONG_TESTS = "passes_wrong_tests"
_TIMES = 2.0  # as long as the first run
_SHORTEST_SECONDS = 1.0  # of which a busy machine may take a part
_SPARE_SECONDS = 0.5  # between the end of a second run and the item's deadline
_NO_FINDING = (*(verdict for verdict, _ in LIMITS.values()), "syntax_error", "no_code")
_NOT_EARNED = "the program passed the same tests with wrong expected values, too"

log = logging.getLogger(__name__)

Judge = Callable[[Submission, Sandboxes], Awaitable[Judgement]]


async def controlled(
    judge: Judge, control: Control, submission: Submission, backend: Sandboxes, first: Judgement
) -> Judgement:
    """Return the judgement of a passed program with the outcome of its negative control.

    With the mode `verdict`, a program with two passed draws has failed.
    """
    outcome, usage = await _outcome(judge, control, submission, backend, first, 0)
    judgement = _with(first, outcome, usage)
    if submission.negative_control == "signal" or outcome != "caught":
        return judgement
    again, usage = await _outcome(judge, control, submission, backend, first, 1)
    judgement = _with(judgement, "caught", usage)
    if again != "caught":
        return judgement
    return replace(judgement, verdict="failed", passed=0, message=_NOT_EARNED)


def _with(judgement: Judgement, outcome: ControlOutcome, usage: Usage) -> Judgement:
    """Return the judgement with an outcome, its signal, and the CPU time of the run."""
    spent = judgement.usage.control_seconds + usage.cpu_seconds
    signals = judgement.hack_signals
    if outcome == "caught" and PASSES_WRONG_TESTS not in signals:
        signals = (*signals, PASSES_WRONG_TESTS)
    return replace(
        judgement,
        negative_control=outcome,
        hack_signals=signals,
        usage=replace(judgement.usage, control_seconds=spent),
    )


async def _outcome(
    judge: Judge,
    control: Control,
    submission: Submission,
    backend: Sandboxes,
    first: Judgement,
    number: int,
) -> tuple[ControlOutcome, Usage]:
    """Return the outcome of a draw, and the usage of its run."""
    try:
        grader = await asyncio.to_thread(changed_grader, control, submission, number)
        if grader is None:
            return "none", Usage()
        limits = _limits(submission.limits, first.usage)
        async with asyncio.timeout(_seconds_left(submission)):
            second = await judge(replace(submission, grader=grader, limits=limits), backend)
    except Exception as error:
        log.warning("the negative control failed: %s: %s", type(error).__name__, error)
        return "none", Usage()
    if second.verdict == "passed":
        return "caught", second.usage
    return "none" if second.verdict in _NO_FINDING else "clear", second.usage


def _seconds_left(submission: Submission) -> float | None:
    """Return the longest time of a second run with an answer in time."""
    if math.isinf(submission.deadline):
        return None
    return submission.deadline - time.monotonic() - _SPARE_SECONDS


def _limits(limits: Limits, used: Usage) -> Limits:
    """Return the limits of a second run: twice the first run's time, within the submission's."""
    cpu_seconds = max(_TIMES * used.cpu_seconds, _SHORTEST_SECONDS)
    wall_seconds = max(_TIMES * used.wall_seconds, _SHORTEST_SECONDS)
    return replace(
        limits,
        cpu_seconds=min(limits.cpu_seconds, cpu_seconds),
        wall_seconds=min(limits.wall_seconds, wall_seconds),
        total_cpu_seconds=min(limits.all_cpu_seconds, cpu_seconds),
        total_wall_seconds=min(limits.all_wall_seconds, wall_seconds),
    )
