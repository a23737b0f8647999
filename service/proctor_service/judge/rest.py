"""Later tests after the end of a test by a limit, where each test has a share of the reward.

The sandbox of the ended test is gone, so the later tests of `calls` and `asserts` run in a fresh sandbox, as
the cases of `stdio` always do. All sandboxes together have the limits of all tests.
"""

from __future__ import annotations

import asyncio
import math
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, replace
from typing import TypeVar

from proctor_client.wire import MAX_FAILURES, Failure, Grader
from proctor_service.errors import DeadlinePassed, InvalidTask
from proctor_service.judge.submission import Judgement, Submission, test_list
from proctor_service.sandbox.interface import Limits, Sandboxes, Usage

T = TypeVar("T")
_SPARE_SECONDS = 0.5  # between the end of further tests and the item's deadline
_OWN_PART = 0.5  # of the time up to the deadline


@dataclass(slots=True)
class Wasted:
    """CPU and idle seconds of a submission in tests with an end by a limit."""

    submission: Submission
    seconds: float = 0.0

    def add(self, usage: Usage) -> None:
        """Add the time of a run ended by a limit."""
        self.seconds += usage.cpu_seconds + usage.idle_seconds

    @property
    def is_enough(self) -> bool:
        """True if the later tests are left out: `wall_seconds` bounds this time, too."""
        return self.seconds > self.submission.limits.wall_seconds

    async def in_time(self, work: Awaitable[T], *, is_decided: bool = False) -> T | None:
        """Return the result of further tests; None if the deadline comes first and they count for nothing.

        They count for nothing if the reward is decided without them, or if half of the time up to the
        deadline was the submission's own, in tests with an end by a limit. Raises DeadlinePassed if the
        service took the time.
        """
        asked_at, deadline = self.submission.asked_at, self.submission.deadline
        if not (self.seconds or is_decided) or math.isinf(deadline):
            return await work
        try:
            async with asyncio.timeout(deadline - time.monotonic() - _SPARE_SECONDS):
                return await work
        except TimeoutError:
            if not is_decided and self.seconds < _OWN_PART * (deadline - asked_at):
                raise DeadlinePassed("the deadline passed while it was judged") from None
            return None


Judge = Callable[[Submission, Sandboxes], Awaitable[Judgement]]


async def with_rest(
    judge: Judge, submission: Submission, backend: Sandboxes, judged: Judgement
) -> Judgement:
    """Return the judgement of all tests.

    `judged`: the judgement of the tests up to the end by a limit. With the scoring `all`, later tests stay
    unjudged.
    """
    whole = judged
    wasted, first = Wasted(submission), 0
    limits = submission.limits
    limits = replace(
        limits,
        total_cpu_seconds=limits.all_cpu_seconds,
        total_wall_seconds=limits.all_wall_seconds,
    )
    while submission.scoring != "all" and judged.limited is not None:
        wasted.add(judged.usage)
        first += judged.limited + 1
        grader, time_left = _after(submission.grader, first), left(limits, whole.usage)
        if grader is None or time_left.are_used_up or wasted.is_enough:
            break
        try:
            work = judge(replace(submission, grader=grader, limits=time_left), backend)
            found = await wasted.in_time(work)
        except InvalidTask:  # the later tests need the earlier ones
            break
        if found is None:
            break
        judged, whole = found, _joined(whole, found, first)
    return replace(whole, limited=None)


def left(limits: Limits, used: Usage) -> Limits:
    """Return the limits of further tests after this use, of which all tests together have less."""
    cpu_seconds, wall_seconds = limits.total_cpu_seconds, limits.total_wall_seconds
    if cpu_seconds is None and wall_seconds is None:
        return limits
    if cpu_seconds is not None:
        cpu_seconds = max(0.0, cpu_seconds - used.cpu_seconds)
    if wall_seconds is not None:
        wall_seconds = max(0.0, wall_seconds - used.idle_seconds)
    return replace(limits, total_cpu_seconds=cpu_seconds, total_wall_seconds=wall_seconds)


def _after(grader: Grader, first: int) -> Grader | None:
    """Return a grader with the tests from `first` on; None after the last, or for tests judged together."""
    name, tests = test_list(grader)
    return grader.model_copy(update={name: tests[first:]}) if first < len(tests) else None


def _joined(whole: Judgement, rest: Judgement, first: int) -> Judgement:
    """Return the judgement of the first tests with the outcome of the tests from `first` on."""
    failures = [each for each in whole.failures if each.index < first]
    failures += [_moved(each, each.index + first) for each in rest.failures]
    return replace(
        whole,
        passed=whole.passed + rest.passed,
        failures=tuple(failures[:MAX_FAILURES]),
        hack_signals=tuple(dict.fromkeys((*whole.hack_signals, *rest.hack_signals))),
        usage=whole.usage + rest.usage,
    )


def _moved(failure: Failure, index: int) -> Failure:
    """Return the failure of a test with its place in the whole suite, in its name as well."""
    is_number = failure.test == f"test {failure.index}"
    text = f"test {index}" if is_number else failure.test
    return Failure(index=index, test=text, message=failure.message)
