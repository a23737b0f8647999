"""Tests behind one that a limit ended: how they are judged, joined, and ended by a deadline."""

from __future__ import annotations

import asyncio
import time
from dataclasses import replace
from typing import Any

import pytest

from proctor_client.wire import AssertsGrader, Failure, Scoring, Verdict
from proctor_service.errors import DeadlinePassed
from proctor_service.judge.rest import Wasted, with_rest
from proctor_service.judge.submission import Judgement, Submission
from proctor_service.sandbox.interface import Limits, Sandboxes, Usage

LIMITS = Limits(2, 60, 64, 64, 8, 8)
TESTS = ["a", "endless", "b", "wrong", "c"]
SANDBOXES: Sandboxes = None  # type: ignore[assignment]  # the judges here take none


def submission(scoring: Scoring = "fraction", **limits: Any) -> Submission:
    grader = AssertsGrader(kind="asserts", tests=TESTS)
    return Submission("x", grader, replace(LIMITS, **limits), scoring)


class Judge:
    """Judges by the names of the tests: `endless` ends the sandbox, `wrong` fails; each takes 1 s."""

    def __init__(self) -> None:
        self.asked: list[tuple[list[str], float]] = []

    async def __call__(self, asked: Submission, backend: Sandboxes) -> Judgement:
        assert isinstance(asked.grader, AssertsGrader)
        tests = asked.grader.tests
        self.asked.append((tests, asked.limits.all_cpu_seconds))
        at = tests.index("endless") if "endless" in tests else None
        ran = tests if at is None else tests[:at]
        failed = [n for n, test in enumerate(tests) if test == "wrong" or n >= len(ran)]
        verdict: Verdict = "timeout" if at is not None else "failed" if failed else "passed"
        return Judgement(
            verdict,
            passed=len(tests) - len(failed),
            total=len(tests),
            failures=tuple(Failure(index=n, test=f"test {n}", message=tests[n]) for n in failed),
            usage=Usage(cpu_seconds=float(len(ran)) + (0 if at is None else 2)),
            limited=at,
        )


def rest(asked: Submission) -> tuple[Judge, Judgement]:
    judge = Judge()

    async def judged() -> Judgement:
        first = await judge(asked, SANDBOXES)
        return await with_rest(judge, asked, SANDBOXES, first)

    return judge, asyncio.run(judged())


def test_later_tests_run_in_a_fresh_sandbox_with_what_is_left_of_the_time() -> None:
    judge, found = rest(submission())
    assert judge.asked == [(TESTS, 20.0), (TESTS[2:], 17.0)]
    assert (found.verdict, found.passed, found.total, found.limited) == ("timeout", 3, 5, None)
    assert found.usage.cpu_seconds == 6.0
    # The endless test is at the limit, and the names of the others have their place in the suite.
    assert [(each.index, each.test, each.message) for each in found.failures] == [
        (1, "test 1", "endless"),
        (3, "test 3", "wrong"),
    ]


@pytest.mark.parametrize(
    ("scoring", "limits"),
    [("all", {}), ("fraction", {"total_cpu_seconds": 3}), ("fraction", {"wall_seconds": 2.5})],
)
def test_nothing_more_runs_where_it_cannot_count_or_has_no_time(
    scoring: Scoring, limits: dict[str, float]
) -> None:
    judge, found = rest(submission(scoring, **limits))
    assert len(judge.asked) == 1
    assert (found.verdict, found.passed, found.total) == ("timeout", 1, 5)


@pytest.mark.parametrize(
    ("wasted_seconds", "is_decided", "ending"),
    [(0.0, False, "goes on"), (4.0, False, "deadline"), (6.0, False, None), (0.0, True, None)],
)
async def test_a_deadline_is_no_error_where_the_submission_took_the_time(
    wasted_seconds: float, is_decided: bool, ending: str | None
) -> None:
    now = time.monotonic()
    asked = replace(submission(), asked_at=now - 10, deadline=now)
    wasted = Wasted(asked)
    wasted.add(Usage(cpu_seconds=wasted_seconds / 2, idle_seconds=wasted_seconds / 2))

    async def work() -> str:
        await asyncio.sleep(0)
        return "goes on"

    try:
        found = await wasted.in_time(work(), is_decided=is_decided)
    except DeadlinePassed:
        found = "deadline"
    assert found == ending
