"""Reports read from a run by a program of the task's author, in a sandbox of its own."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from proctor_service.features.repositories.reports.interface import (
    Outcome,
    Report,
    Reported,
    TestRun,
    add_outcome,
)

WORDS: Mapping[str, Outcome] = {
    "pass": "passed",
    "passed": "passed",
    "ok": "passed",
    "fail": "failed",
    "failed": "failed",
    "error": "error",
    "skip": "skipped",
    "skipped": "skipped",
    "xfail": "expected_failure",
    "expected_failure": "expected_failure",
    "xpass": "unexpected_pass",
    "unexpected_pass": "unexpected_pass",
}
"""Words that a program may print for an outcome, in any case of letters."""
ABSENT = frozenset(["none", "missing"])
MOST_TESTS = 1_000_000


class UnreadableOutput(ValueError):
    """Output of the program without outcomes by test."""


@dataclass(frozen=True, slots=True)
class ScriptReport(Report):
    """The report `{"script": …}`: the grader runs `program` with `stdin(run)` on its stdin."""

    program: str
    patterns: Sequence[str] = ()

    def collects(self) -> Sequence[str]:
        """The patterns of the task."""
        return tuple(self.patterns)

    def read(self, run: TestRun) -> Reported:
        """Return an incomplete report: the program reads the run."""
        return Reported({}, "script", is_complete=False)

    def stdin(self, run: TestRun) -> bytes:
        """The run as a JSON object: `stdout`, `stderr`, `exit_code`, and `files` by path."""
        return json.dumps(
            {
                "stdout": run.stdout.decode("utf-8", "replace"),
                "stderr": run.stderr.decode("utf-8", "replace"),
                "exit_code": run.exit_status,
                "files": {
                    name: data.decode("utf-8", "replace") for name, data in run.files.items()
                },
            }
        ).encode()

    def outcomes_of(self, output: bytes) -> Reported:
        """Read the output of the program. Raises UnreadableOutput."""
        try:
            found = json.loads(output)
        except (ValueError, RecursionError) as error:
            raise UnreadableOutput(f"the report's script printed no JSON: {error}") from error
        if not isinstance(found, dict) or len(found) > MOST_TESTS:
            raise UnreadableOutput("the report's script printed no JSON object of tests")
        outcomes: dict[str, Outcome] = {}
        for name, word in found.items():
            if not isinstance(word, str) or word.lower() not in WORDS.keys() | ABSENT:
                raise UnreadableOutput(f"the report's script printed for {name[:100]!r} no outcome")
            if word.lower() in WORDS:
                add_outcome(outcomes, name, WORDS[word.lower()])
        return Reported(outcomes, "script")
