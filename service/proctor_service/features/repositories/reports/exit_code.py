"""The report `exit_code`: the test command as a single test."""

from __future__ import annotations

from dataclasses import dataclass

from proctor_service.features.repositories.reports.interface import (
    Outcome,
    Report,
    Reported,
    TestRun,
)

COMMAND = "test command"
"""Name of the one test."""


@dataclass(frozen=True, slots=True)
class ExitCode(Report):
    """Passed if the command ends with status 0."""

    def read(self, run: TestRun) -> Reported:
        """Return the outcome of the command."""
        outcome: Outcome = "passed" if run.exit_status == 0 else "failed"
        return Reported({COMMAND: outcome}, "exit_code", is_complete=run.exit_status is not None)
