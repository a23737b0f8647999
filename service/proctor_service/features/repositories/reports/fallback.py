"""Reports of pytest for images in which the observer does not work: JUnit's XML, and text.

Both are written by the process of the tests, and at its end: a hostile change forges them more easily. So the
task decides about their use, never a submission.
"""

from __future__ import annotations

import posixpath
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from xml.parsers import expat

from proctor_service.features.repositories.reports.interface import (
    Outcome,
    Report,
    Reported,
    TestRun,
    add_outcome,
)
from proctor_service.features.repositories.reports.junit import MOST_FILE_BYTES, JunitFile

PYTEST_JUNIT, PYTEST_TEXT = "pytest_junit", "pytest_text"
_OPTIONS = "PYTEST_ADDOPTS"
_WORDS: Mapping[str, Outcome] = {
    "PASSED": "passed",
    "FAILED": "failed",
    "ERROR": "error",
    "SKIPPED": "skipped",
    "XFAIL": "expected_failure",
    "XPASS": "unexpected_pass",
}
_SUMMARY = re.compile(r"=+ short test summary info =+$")
"""`=== short test summary info ===`."""
_OF_SUMMARY = re.compile(r"(PASSED|FAILED|ERROR|XFAIL|XPASS) (\S+::.+)")
"""`PASSED t.py::test_a[x y]`, `FAILED t.py::test_b - AssertionError`; not `SKIPPED [1] t.py:3: later`."""
_OF_LINE = re.compile(
    r"(\S+::.+?) (PASSED|FAILED|ERROR|SKIPPED|XFAIL|XPASS)(?: \(.*\))?(?: +\[ *\d+%\])?$"
)
"""`t.py::test_a PASSED   [ 50%]`, `t.py::test_b SKIPPED (later) [100%]`; not `t.py .. [100%]`."""
_COLOUR = re.compile(r"\x1b\[[0-9;]*[A-Za-z]")
"""`\\x1b[32m`."""


def with_options(present: Mapping[str, str], options: str) -> Mapping[str, str]:
    """Return pytest's options of the environment: the present options, and these."""
    return {_OPTIONS: " ".join(filter(None, [present.get(_OPTIONS, ""), options]))}


@dataclass(frozen=True, slots=True)
class PytestJunit(Report):
    """The XML of `--junitxml`. `folder`: of the run's own; `listed`: names of the task's tests."""

    folder: str
    listed: Sequence[str]

    @property
    def _path(self) -> str:
        return posixpath.join(self.folder, "report.xml")

    def variables(self, present: Mapping[str, str]) -> Mapping[str, str]:
        """Return the option for writing the file."""
        return with_options(present, f"--junitxml={self._path} -o junit_family=xunit1")

    def collects(self) -> Sequence[str]:
        """The file."""
        return (self._path,)

    def read(self, run: TestRun) -> Reported:
        """Read the tests of the files listed by the task or named by the XML."""
        outcomes: dict[str, Outcome] = {}
        found = JunitFile()
        content = run.files.get(self._path, b"")
        is_complete = 0 < len(content) <= MOST_FILE_BYTES
        try:
            if is_complete:
                found.parse(content)
        except (expat.ExpatError, ValueError):
            is_complete = False
        files = sorted({name.partition("::")[0] for name in self.listed}, key=len, reverse=True)
        for case in found.cases:
            name = node_id(case.attributes, files)
            if name is not None:
                add_outcome(outcomes, name, case.outcome)
        return Reported(outcomes, PYTEST_JUNIT, is_complete=is_complete)


def node_id(attributes: Mapping[str, str], files: Sequence[str]) -> str | None:
    """Return pytest's name of a test: `tests.test_a.Ring`, `test_b` → `tests/test_a.py::Ring::test_b`.

    `files`: possible files of the test, the longest path first.
    """
    owner = attributes.get("classname", "")
    for file in (*files, attributes.get("file", "")):
        module = file.removesuffix(".py").replace("/", ".")
        if file and (owner == module or owner.startswith(f"{module}.")):
            classes = owner[len(module) + 1 :].split(".") if owner != module else []
            return "::".join([file, *classes, attributes.get("name", "")])
    return None


@dataclass(frozen=True, slots=True)
class PytestText(Report):
    """The summary printed by pytest with `-rA`, and its lines with `-v`."""

    listed: Sequence[str]

    def variables(self, present: Mapping[str, str]) -> Mapping[str, str]:
        """Return the options for printing each test."""
        return with_options(present, "-rA -v")

    def read(self, run: TestRun) -> Reported:
        """Read the last summary; for a summary without passed tests, the lines of the tests.

        The report is complete if a passed test is named: without these options, pytest prints failures alone.
        """
        outcomes: dict[str, Outcome] = {}
        text = _COLOUR.sub("", run.stdout.decode("utf-8", "replace"))
        lines = [line.rstrip("\r ") for line in text.split("\n")]
        begins = [at for at, line in enumerate(lines) if _SUMMARY.match(line)]
        summary = list(_of_summary(lines[begins[-1] + 1 :], self.listed)) if begins else []
        passed = {name for name, outcome in summary if outcome == "passed"}
        for name, outcome in (*summary, *_of_lines(lines)):
            if outcome != "passed" or not passed or name in passed:
                add_outcome(outcomes, name, outcome)
        names_passed = "passed" in outcomes.values()
        return Reported(outcomes, PYTEST_TEXT, is_complete=names_passed)


def _of_summary(lines: Sequence[str], listed: Sequence[str]) -> Iterator[tuple[str, Outcome]]:
    names = frozenset(listed)
    for line in lines:
        if (found := _OF_SUMMARY.match(line)) is not None:
            word, name = found.groups()
            if (
                word != "PASSED" and name not in names
            ):  # a reason follows; names may have a ` - `, too
                parts = name.split(" - ")
                prefixes = [" - ".join(parts[:end]) for end in range(1, min(len(parts), 16))]
                name = next((each for each in prefixes if each in names), parts[0])
            yield name, _WORDS[word]


def _of_lines(lines: Sequence[str]) -> Iterator[tuple[str, Outcome]]:
    for line in lines:
        if (found := _OF_LINE.match(line)) is not None:
            yield found[1], _WORDS[found[2]]
