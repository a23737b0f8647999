"""The pytest grader's reading of a report, for what no sandbox here can show."""

from __future__ import annotations

import json

import pytest

from proctor_service.errors import JudgeFailed, SandboxLost
from proctor_service.judge.graders import pytests
from proctor_service.judge.run import Run
from proctor_service.sandbox.interface import Ended, Ending, Usage


def run_of(*frames: list[object], ending: Ending = "exited", code: int | None = 0) -> Run:
    lines = tuple(json.dumps(frame).encode() for frame in frames)
    return Run(lines, Ended(ending, code, None, b"", b"", False, Usage()), "sb_1")


def test_a_sandbox_without_pytest_is_our_failure() -> None:
    finished = run_of(["word", "no pytest", "No module named 'pytest'"], code=1)
    with pytest.raises(JudgeFailed, match="no pytest"):
        pytests._read(finished, "word", "end", reveal=False)


def test_a_run_that_we_ended_is_our_failure() -> None:
    finished = run_of(["word", "collected", 1], ending="killed", code=None)
    report = pytests._read(finished, "word", "end", reveal=False)
    with pytest.raises(SandboxLost):
        pytests._verdict(finished, report, 0, 0)


@pytest.mark.parametrize(
    "frame",
    [
        ["other", "no pytest", ""],
        ["no pytest", ""],
        [],
        ["word"],
        ["word", "test", 1],
        ["word", "x"],
    ],
)
def test_what_is_not_the_runners_own_is_forged(frame: list[object]) -> None:
    finished = run_of(["word", "collected", 0], frame, ["word", "finished", "end", 0])
    report = pytests._read(finished, "word", "end", reveal=False)
    assert report.forged
    assert pytests._verdict(finished, report, 0, 0)[0] == "failed"


def test_nothing_counts_after_the_end() -> None:
    late: list[object] = ["word", "test", "t", "passed", "", ""]
    report = pytests._read(
        run_of(["word", "finished", "end", 0], late), "word", "end", reveal=False
    )
    assert report.forged
    assert report.tests == []
