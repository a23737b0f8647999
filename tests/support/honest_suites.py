"""Honest suites of odd kinds, judged with other expected values: the negative control flags none."""

from __future__ import annotations

import asyncio
import tomllib
from dataclasses import replace
from pathlib import Path
from typing import Any

from state_judging import LIMITS, Places

from proctor_client.wire import AssertsGrader, CommandGrader, ExecGrader, Grader, PytestGrader
from proctor_service.composition import all_graders
from proctor_service.judge.control.graders import changed_grader
from proctor_service.judge.submission import Judgement, Submission
from proctor_service.settings.languages import LANGUAGES

FOLDER = Path(__file__).parents[1] / "core" / "integrity" / "honest_suites"
_FILES = {
    "cargo_test": "tests/it.rs",
    "go_test": "f_test.go",
    "jest": "solution.test.js",
    "junit": "SolTest.java",
}
_LIMITS = replace(LIMITS, cpu_seconds=20, memory_mb=1024, disk_mb=64, processes=64)


def submissions(table: str) -> list[tuple[dict[str, Any], Submission]]:
    """Return each suite of a table with its submission, whose control is off."""
    content = tomllib.loads((FOLDER / table).read_text())
    found = []
    for suite in content["suite"]:
        kind = suite.get("kind", "asserts")
        language = "typescript" if kind == "typescript" else content.get("language", "python")
        source = suite.get("solution", content["solution"])
        grader = grader_of(kind, suite["tests"])
        limits = LIMITS if language == "python" else _LIMITS
        submission = Submission(source, grader, limits, language=language, negative_control="off")
        found.append((suite, submission))
    return found


def grader_of(kind: str, tests: str) -> Grader:
    """Return a grader in whose process the submission runs."""
    if kind == "pytest":
        return PytestGrader(kind="pytest", files={"test_a.py": tests})
    if kind in _FILES:
        files = {_FILES[kind]: tests}
        return CommandGrader.model_validate({"kind": "command", "runner": kind, "files": files})
    if kind in ("exec", "typescript"):
        return ExecGrader(kind="exec", tests=tests)
    return AssertsGrader(kind="asserts", tests=[tests], entry_point="f", integrity="in_process")


def changed(submission: Submission, number: int) -> Grader | None:
    """Return the grader of a submission with other expected values, or None."""
    find = all_graders(LANGUAGES)[submission.grader.kind].control
    control = None if find is None else find(submission.grader)
    return None if control is None else changed_grader(control, submission, number)


def judged(places: Places, submissions: list[Submission]) -> list[Judgement]:
    """Judge submissions, two at a time."""

    async def all_of_them() -> list[Judgement]:
        turns = asyncio.Semaphore(2)

        async def one(submission: Submission) -> Judgement:
            async with turns:
                return await places.whole(submission, places.backend)

        return await asyncio.gather(*map(one, submissions))

    return places.runner.run(all_of_them())


def check_table(places: Places, table: str, draws: int) -> None:
    """Each suite passes as it is; with other expected values, where there are some, it fails."""
    suites = submissions(table)
    firsts = judged(places, [submission for _, submission in suites])
    refused = [
        (suite["name"], first.verdict, first.message)
        for (suite, _), first in zip(suites, firsts, strict=True)
        if first.verdict != "passed"
    ]
    assert not refused, refused
    drawn = [
        (suite, submission, changed(submission, number))
        for suite, submission in suites
        for number in range(draws)
    ]
    wrong = {suite["name"] for suite, _, grader in drawn if (grader is not None) != suite["clear"]}
    assert not wrong, wrong
    named = [(suite["name"], grader) for suite, _, grader in drawn if grader is not None]
    second_runs = [replace(submission, grader=grader) for _, submission, grader in drawn if grader]
    seconds = judged(places, second_runs)
    flagged = [
        name for (name, _), second in zip(named, seconds, strict=True) if second.verdict == "passed"
    ]
    assert not flagged, flagged
    broken = [
        (name, second.message)
        for (name, _), second in zip(named, seconds, strict=True)
        if second.verdict == "syntax_error"
    ]
    assert len(broken) <= len(named) // 10, broken  # the others have a finding
