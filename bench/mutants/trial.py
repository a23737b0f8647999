"""The outcome of one mutant: its tests in a copy with the fault, and doubts settled by the copy without.

A test which fails without the fault, too, is left out. A test without an end in time has noticed
the fault only if the test ends in half of the time without the fault.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from mutants.copies import Copy, Report
from mutants.mutant import Mutant

KILLED = "killed"
SURVIVED = "survived"
NOT_REACHED = "not reached"
TIMEOUT = "timeout"
ABSENT = "absent"
OUTCOMES = (KILLED, SURVIVED, NOT_REACHED, TIMEOUT, ABSENT)
"""`timeout`: a run that ended neither way. `absent`: the line is gone from the file, so nothing was tried."""


@dataclass(frozen=True, slots=True)
class Limits:
    """Seconds for the tests of a mutant: selected by their durations, begun at most, and ended at most."""

    budget_seconds: float
    limit_seconds: float

    @property
    def start_seconds(self) -> float:
        """Tests begin in the first three quarters of the limit: a slow machine may hold a test
        up."""
        return self.limit_seconds * 0.75


@dataclass(frozen=True, slots=True)
class Result:
    """The outcome of a mutant, the noticing test, and the executed tests."""

    outcome: str
    killing_test: str | None = None
    seconds: float = 0.0
    tests_selected: int = 0
    tests_started: int = 0
    failing_without: tuple[str, ...] = ()


class Trials:
    """Tries mutants in one copy. Remembers which tests pass without a fault, and in how many seconds."""

    def __init__(self, copy: Copy, limits: Limits) -> None:
        self._copy = copy
        self._limits = limits
        self._sound: dict[str, float | None] = {}

    def outcome(self, mutant: Mutant, tests: Sequence[str]) -> Result:
        seconds = 0.0
        unsound = [test for test in tests if self._sound.get(test, 0.0) is None]
        while True:
            left = [test for test in tests if test not in unsound]
            if not left:
                return Result(NOT_REACHED, None, seconds, len(tests), 0, tuple(unsound))
            report = self._run(mutant, left)
            seconds += report.seconds
            outcome, test = self._judged(report, left)
            if outcome is not None:
                started = report.started_count
                return Result(outcome, test, seconds, len(left), started, tuple(unsound))
            assert test is not None
            unsound.append(test)

    def _run(self, mutant: Mutant, tests: Sequence[str]) -> Report:
        file = self._copy.tree / mutant.path
        source = file.read_text()
        file.write_text(mutant.applied(source))
        try:
            return self._copy.run(tests, self._limits.start_seconds, self._limits.limit_seconds)
        finally:
            file.write_text(source)

    def _judged(self, report: Report, tests: Sequence[str]) -> tuple[str | None, str | None]:
        """The outcome and its test; without an outcome if this test fails without the fault,
        too."""
        if report.failed is None and report.ended:
            return SURVIVED, None
        test = report.failed or report.last_started or tests[0]
        if test not in tests:  # a file that cannot be imported, or the folder's conftest
            test = next((each for each in tests if each.startswith(f"{test}::")), tests[0])
        sound_seconds = self._seconds_without(test)
        if sound_seconds is None:
            return None, test
        if report.failed is None and report.timed_out and sound_seconds * 2 > report.last_seconds:
            return TIMEOUT, test
        return KILLED, test

    def _seconds_without(self, test: str) -> float | None:
        """The seconds of a test without a fault, from the start of pytest; None if it fails."""
        if test not in self._sound:
            limits = self._limits
            report = self._copy.run([test], limits.start_seconds, limits.limit_seconds)
            passed = report.ended and report.failed is None and report.started_count == 1
            self._sound[test] = report.seconds if passed else None
        return self._sound[test]
