"""Reports in JUnit's XML: Maven, Gradle, PHPUnit, CTest, GoogleTest.

Before the run, the grader removes results that match `collects()`: all later results are new.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from xml.parsers import expat

from proctor_service.features.repositories.reports.interface import (
    Outcome,
    Report,
    Reported,
    TestRun,
    add_aliases,
    add_outcome,
)

OUTCOME_OF_ELEMENT: Mapping[str, Outcome] = {
    "failure": "failed",
    "error": "error",
    "skipped": "skipped",
}
NOT_RUN = frozenset(["notrun", "disabled", "skipped"])
"""Values of `status` (CTest, GoogleTest) of a test that did not run."""
SIGN = "<testsuite"
"""Of a file with results, near its begin."""
MOST_FILE_BYTES = 64 * 1024 * 1024


class HostileXml(ValueError):
    """XML with entities, unneeded in reports."""


@dataclass(slots=True)
class _Case:
    attributes: Mapping[str, str]
    outcome: Outcome = "passed"


@dataclass(slots=True)
class JunitFile:
    """The test cases of a file."""

    cases: list[_Case] = field(default_factory=list)
    _depth: int = 0

    def parse(self, content: bytes) -> None:
        """Read a file. Raises ExpatError for malformed XML, and HostileXml."""
        parser = expat.ParserCreate()
        parser.StartElementHandler = self._start
        parser.EndElementHandler = self._end
        parser.EntityDeclHandler = self._refuse
        parser.Parse(content, True)

    def _refuse(self, *_: object) -> None:
        raise HostileXml("a report with entities")

    def _start(self, name: str, attributes: dict[str, str]) -> None:
        if name == "testcase":
            self._depth = 1
            case = _Case(attributes)
            if attributes.get("status", "").lower() in NOT_RUN:
                case.outcome = "skipped"
            elif attributes.get("status", "").lower() in ("fail", "failed"):
                case.outcome = "failed"
            self.cases.append(case)
        elif self._depth:
            self._depth += 1
            if self._depth == 2 and name in OUTCOME_OF_ELEMENT:
                self.cases[-1].outcome = OUTCOME_OF_ELEMENT[name]

    def _end(self, name: str) -> None:
        self._depth = max(0, self._depth - 1)


def names_of(attributes: Mapping[str, str]) -> tuple[str, ...]:
    """Return the names of a test case, first the name as reported.

    `class`, `name` → `class.name`, then `class#name`, `class::name`, `class > name`, `name`, `class`.
    """
    name, owner = attributes.get("name", ""), attributes.get("classname", "")
    if not owner or owner == name:
        return (name,)
    written = attributes.get("class", owner)  # PHPUnit's with backslashes
    names = [f"{owner}.{name}", f"{owner}#{name}", f"{written}::{name}", f"{owner} > {name}"]
    return (*names, name, owner)


@dataclass(frozen=True, slots=True)
class JunitReport(Report):
    """The report `{"junit": [pattern, …]}`."""

    patterns: Sequence[str]

    def collects(self) -> Sequence[str]:
        """The patterns of the task."""
        return tuple(self.patterns)

    def read(self, run: TestRun) -> Reported:
        """Read each file; an unreadable file leaves the signal `report_unreadable`."""
        outcomes: dict[str, Outcome] = {}
        others: dict[str, Outcome] = {}
        written: dict[str, set[str]] = {}
        signals: set[str] = set()
        for content in run.files.values():
            found = JunitFile()
            try:
                if len(content) > MOST_FILE_BYTES:
                    raise HostileXml("a report of too many bytes")
                found.parse(content)
            except (expat.ExpatError, ValueError):
                signals.add("report_unreadable")
            for case in found.cases:
                first, *rest = names_of(case.attributes)
                add_outcome(outcomes, first, case.outcome)
                for name in rest:
                    add_outcome(others, name, case.outcome)
                    written.setdefault(name, set()).add(first)
        aliases = add_aliases(outcomes, others, written)
        is_complete = bool(outcomes) and not signals
        return Reported(outcomes, "junit", tuple(sorted(signals)), is_complete, aliases)
