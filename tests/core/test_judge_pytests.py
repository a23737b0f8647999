"""The pytest grader's reading of a report, for what no sandbox here can show."""

from __future__ import annotations

import json

import pytest

from proctor_service.errors import SandboxLost
from proctor_service.judge.graders import in_process
from proctor_service.judge.run import Run
from proctor_service.sandbox.interface import Ended, Ending, Usage


def run_of(*frames: list[object], ending: Ending = "exited", code: int | None = 0) -> Run:
    lines = tuple(json.dumps(frame).encode() for frame in frames)
    return Run(lines, Ended(ending, code, None, b"", b"", False, Usage()), "sb_1")


def test_a_run_that_we_ended_is_our_failure() -> None:
    finished = run_of(["word", "collected", 1], ending="killed", code=None)
    report = in_process.read(finished, "word", "end", reveal=False)
    with pytest.raises(SandboxLost):
        in_process.pytest_verdict(finished, report, 0, 0)


@pytest.mark.parametrize(
    "frame",
    [
        ["other", "no pytest", ""],
        ["no pytest", ""],
        [],
        ["word"],
        ["word", "collected", 10**20],
        ["word", "collected", -1],
        ["word", "test", 1],
        ["word", "x"],
    ],
)
def test_what_is_not_the_runners_own_is_forged(frame: list[object]) -> None:
    finished = run_of(["word", "collected", 0], frame, ["word", "finished", "end", 0])
    report = in_process.read(finished, "word", "end", reveal=False)
    assert report.forged
    assert in_process.pytest_verdict(finished, report, 0, 0)[0] == "failed"


def test_nothing_counts_after_the_end() -> None:
    late: list[object] = ["word", "test", "t", "passed", "", ""]
    report = in_process.read(
        run_of(["word", "finished", "end", 0], late), "word", "end", reveal=False
    )
    assert report.forged
    assert report.tests == []
