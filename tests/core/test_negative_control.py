"""The second run of a passed program by other expected values: when it runs, and what its result means."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest
from honest_suites import changed

from proctor_client.wire import (
    AssertsGrader,
    ControlOutcome,
    ExecGrader,
    Grader,
    Integrity,
    PytestGrader,
)
from proctor_service.composition import all_graders
from proctor_service.errors import SandboxLost
from proctor_service.judge.control.second_run import PASSES_WRONG_TESTS
from proctor_service.judge.judge import Judge
from proctor_service.judge.submission import Judgement, Submission
from proctor_service.sandbox.interface import Limits, Sandboxes, Usage

LIMITS = Limits(
    cpu_seconds=10, wall_seconds=30, memory_mb=512, output_kb=64, processes=16, disk_mb=64
)
ASSERTS = AssertsGrader(kind="asserts", tests=["assert f(2) == 4", "assert f(3) == 9"])
SUBMISSION = Submission("def f(n): return n * n", ASSERTS, LIMITS)
PASSED = Judgement("passed", 2, 2, integrity="in_process", usage=Usage(2.0, 3.0))

ByGrader = Callable[[Submission, Any, Sandboxes], Awaitable[Judgement]]


class Judges:
    """A judge that remembers what it was asked."""

    def __init__(self, *answers: Judgement | Exception) -> None:
        self._answers = list(answers)
        self.asked: list[Submission] = []

    async def __call__(
        self, submission: Submission, grader: Grader, backend: Sandboxes
    ) -> Judgement:
        """Give the next answer."""
        self.asked.append(submission)
        answer = self._answers.pop(0)
        if isinstance(answer, Exception):
            raise answer
        return answer


async def judged(judge: ByGrader, submission: Submission, first: Judgement) -> Judgement:
    """Return the judgement by the service's judge, with another one in the place of the grader's."""

    async def integrity(_: Grader) -> Integrity:
        return first.integrity

    rules = all_graders({})[submission.grader.kind]
    graders = {rules.kind: replace(rules, judge=judge, integrity=integrity)}
    backend: Any = SimpleNamespace(traits=SimpleNamespace(missing_languages={}))
    return await Judge(graders)(submission, backend)


async def control(
    submission: Submission, first: Judgement, *answers: Judgement | Exception
) -> tuple[Judgement, list[Submission]]:
    """Return the judgement with its control, and the submissions of the second runs."""
    judges = Judges(first, *answers)
    return await judged(judges, submission, first), judges.asked[1:]


@pytest.mark.parametrize(
    ("answer", "outcome"),
    [
        (Judgement("failed", usage=Usage(0.5)), "clear"),
        (Judgement("runtime_error", usage=Usage(0.5)), "clear"),
        (replace(PASSED, usage=Usage(0.5)), "caught"),
        (Judgement("timeout", usage=Usage(0.5)), "none"),
        (Judgement("syntax_error", usage=Usage(0.5)), "none"),
        (SandboxLost("lost"), "none"),
        (RuntimeError("a fault of the service"), "none"),
    ],
)
async def test_the_outcome_changes_no_verdict(
    answer: Judgement | Exception, outcome: ControlOutcome
) -> None:
    judgement, asked = await control(SUBMISSION, PASSED, answer)
    assert (judgement.verdict, judgement.passed) == ("passed", 2)
    assert judgement.negative_control == outcome
    assert judgement.hack_signals == ((PASSES_WRONG_TESTS,) if outcome == "caught" else ())
    spent = 0.0 if isinstance(answer, Exception) else 0.5
    assert judgement.usage == Usage(2.0, 3.0, control_seconds=spent)
    [second] = asked
    assert second.source == SUBMISSION.source
    assert isinstance(second.grader, AssertsGrader)
    assert second.grader.integrity == "in_process"
    assert second.grader.tests != ASSERTS.tests
    assert (second.limits.cpu_seconds, second.limits.wall_seconds) == (4.0, 6.0)


async def test_a_verdict_needs_two_draws() -> None:
    asking = replace(SUBMISSION, negative_control="verdict")
    caught, asked = await control(asking, PASSED, PASSED, PASSED)
    assert (caught.verdict, caught.passed, caught.negative_control) == ("failed", 0, "caught")
    assert "wrong expected values" in caught.message
    assert caught.usage.control_seconds == 4.0
    first, second = (each.grader for each in asked)
    assert first != second
    once, _ = await control(asking, PASSED, PASSED, Judgement("failed"))
    assert (once.verdict, once.negative_control) == ("passed", "caught")
    lost, _ = await control(asking, PASSED, PASSED, SandboxLost("lost"))
    assert lost.verdict == "passed"


@pytest.mark.parametrize(
    ("submission", "first"),
    [
        (replace(SUBMISSION, negative_control="off"), PASSED),
        (SUBMISSION, replace(PASSED, integrity="separated")),
        (SUBMISSION, replace(PASSED, verdict="failed")),
        (replace(SUBMISSION, grader=ExecGrader(kind="exec")), PASSED),
    ],
)
async def test_no_second_run(submission: Submission, first: Judgement) -> None:
    assert await control(submission, first) == (first, [])


async def test_tests_without_a_clear_expectation_have_no_finding() -> None:
    unclear = replace(SUBMISSION, grader=AssertsGrader(kind="asserts", tests=["assert f(2)"]))
    judgement, asked = await control(unclear, PASSED)
    assert (judgement.negative_control, asked) == ("none", [])


async def test_a_second_run_that_would_be_late_has_no_finding() -> None:
    async def slow(submission: Submission, grader: Grader, backend: Sandboxes) -> Judgement:
        if grader is ASSERTS:
            return PASSED
        await asyncio.Event().wait()
        raise AssertionError

    late = replace(SUBMISSION, deadline=time.monotonic())
    judgement = await judged(slow, late, PASSED)
    assert (judgement.verdict, judgement.negative_control) == ("passed", "none")


GRADERS: list[Grader] = [
    ASSERTS,
    ExecGrader(kind="exec", tests="assert f(2) == 4\nassert f(3) == [\n  9,\n]\n"),
    PytestGrader(
        kind="pytest", files={"test_a.py": "def test_a():\n    assert f(2) == '''4\n'''\n"}
    ),
]


def lines_of(grader: Grader) -> list[int]:
    """Return the number of lines of each text of a grader."""
    match grader:
        case AssertsGrader(tests=texts):
            pass
        case ExecGrader(tests=text):
            texts = [text]
        case PytestGrader(files=files):
            texts = list(files.values())
    return [len(text.splitlines()) for text in texts]


@pytest.mark.parametrize("grader", GRADERS)
def test_a_draw_follows_from_submission_and_number_and_keeps_the_lines(grader: Grader) -> None:
    submission = replace(SUBMISSION, grader=grader)
    draws = [changed(submission, number) for number in range(8)]
    assert draws == [changed(submission, number) for number in range(8)]
    assert len({repr(each) for each in draws}) > 1
    assert changed(replace(submission, source="def f(n): return 5"), 0) != draws[0]
    for each in draws:
        assert each is not None
        assert each != grader
        assert lines_of(each) == lines_of(grader)


def test_long_or_odd_tests_have_no_other_values() -> None:
    odd = (
        "assert f(2) == 4\n" * 20_000,
        "assert f(2) == " + "[" * 80 + "]" * 80,
        "assert f('\ud800') == 4",
    )
    for text in odd:
        grader = ExecGrader(kind="exec", tests=text)
        changed(replace(SUBMISSION, grader=grader), 0)
    long = replace(SUBMISSION, grader=ExecGrader(kind="exec", tests=odd[0]))
    assert changed(long, 0) is None
