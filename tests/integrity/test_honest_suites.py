"""The negative control flags no right program: honest suites of odd kinds, with other expected values."""

from __future__ import annotations

import asyncio
import tomllib
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from state_judging import LIMITS, Places

from proctor_client.wire import AssertsGrader, ExecGrader, Grader, PytestGrader
from proctor_service.judge.control.graders import changed_grader
from proctor_service.judge.submission import Judgement, Submission

FOLDER = Path(__file__).parent / "honest_suites"
DRAWS = 4


def submissions(table: str) -> list[tuple[dict[str, Any], Submission]]:
    """Return each suite of a table with its submission, whose control is off."""
    content = tomllib.loads((FOLDER / table).read_text())
    found = []
    for suite in content["suite"]:
        grader = grader_of(suite.get("kind", "asserts"), suite["tests"])
        source = suite.get("solution", content["solution"])
        submission = Submission(source, grader, LIMITS, negative_control="off")
        found.append((suite, submission))
    return found


def grader_of(kind: str, tests: str) -> Grader:
    """Return a grader in whose process the submission runs."""
    if kind == "pytest":
        return PytestGrader(kind="pytest", files={"test_a.py": tests})
    if kind == "exec":
        return ExecGrader(kind="exec", tests=tests)
    return AssertsGrader(kind="asserts", tests=[tests], entry_point="f", integrity="in_process")


def judged(places: Places, submissions: list[Submission]) -> list[Judgement]:
    """Judge submissions, two at a time."""

    async def all_of_them() -> list[Judgement]:
        turns = asyncio.Semaphore(2)

        async def one(submission: Submission) -> Judgement:
            async with turns:
                return await places.whole(submission, places.backend)

        return await asyncio.gather(*map(one, submissions))

    return places.runner.run(all_of_them())


@pytest.mark.parametrize("table", ["python.toml"])
def test_a_right_program_fails_other_expected_values(places: Places, table: str) -> None:
    suites = submissions(table)
    firsts = judged(places, [submission for _, submission in suites])
    refused = [
        (suite["name"], first.verdict, first.message)
        for (suite, _), first in zip(suites, firsts, strict=True)
        if first.verdict != "passed"
    ]
    assert refused == []
    drawn = [
        (suite, submission, changed_grader(submission, number))
        for suite, submission in suites
        for number in range(DRAWS)
    ]
    wrong = {suite["name"] for suite, _, grader in drawn if (grader is not None) != suite["clear"]}
    assert wrong == set()
    named = [(suite["name"], grader) for suite, _, grader in drawn if grader is not None]
    changed = [replace(submission, grader=grader) for _, submission, grader in drawn if grader]
    flagged = [
        name
        for name, judgement in zip(named, judged(places, changed), strict=True)
        if judgement.verdict == "passed"
    ]
    assert flagged == []
