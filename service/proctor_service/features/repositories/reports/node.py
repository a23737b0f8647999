"""Reports of JavaScript's runners: `node`, `jest`, `vitest` and `mocha`, by the runner's own process."""

from __future__ import annotations

import json
import posixpath
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from proctor_service.features.repositories.reports.interface import (
    SEVERITY,
    ImageFacts,
    Outcome,
    Reported,
    TestRun,
    add_aliases,
    add_outcome,
)

OBSERVER = Path(__file__).parent / "node_observer.cjs"
SEPARATOR = " > "
OUTCOMES_OF_VITEST: Mapping[str, Outcome] = {
    "passed": "passed",
    "pending": "skipped",
    "skipped": "skipped",
    "todo": "skipped",
    "disabled": "skipped",
}
"""Statuses of the JSON of jest and vitest; any other is a failure."""


@dataclass(frozen=True, slots=True)
class NodeReport:
    """The report of `node`, `jest`, `vitest` and `mocha`. `folder` is one of the run's own."""

    kind: str
    folder: str
    directory: str

    def files(self, image: ImageFacts) -> Mapping[str, bytes]:
        """The module that Node loads before its program."""
        source = OBSERVER.read_text()
        words = {"@RESULTS@": self._results, "@VITEST@": self._vitest, "@KIND@": self.kind}
        for word, value in words.items():
            source = source.replace(word, value)
        return {self._observer: source.encode()}

    @property
    def _observer(self) -> str:
        return posixpath.join(self.folder, "observer.cjs")

    @property
    def _results(self) -> str:
        return posixpath.join(self.folder, "results")

    @property
    def _vitest(self) -> str:
        return posixpath.join(self.folder, "vitest.json")

    def variables(self, present: Mapping[str, str]) -> Mapping[str, str]:
        """Node's options: those that are there, and the module."""
        options = [present.get("NODE_OPTIONS", ""), f"--require {self._observer}"]
        return {"NODE_OPTIONS": " ".join(filter(None, options))}

    def collects(self) -> Sequence[str]:
        """The lines of the module, and the JSON of vitest."""
        return (self._results, self._vitest)

    def read(self, run: TestRun) -> Reported:
        """Read tests by path (`Ring > push > drops`); also with spaces, with the file, and by file."""
        outcomes: dict[str, Outcome] = {}
        others: dict[str, Outcome] = {}
        written: dict[str, set[str]] = {}
        lines = run.files.get(self._results, b"").splitlines()
        for file, names, outcome in (*_lines(lines), *_of_vitest(run.files.get(self._vitest, b""))):
            file = posixpath.relpath(file, self.directory) if file else ""
            test = SEPARATOR.join(names)
            found: list[tuple[str, Outcome]] = []
            if names:
                add_outcome(outcomes, test, outcome)
                found = [(" ".join(names), outcome), (SEPARATOR.join([file, *names]), outcome)]
            if file:
                found.append((file, "passed" if outcome == "skipped" else outcome))
            for name, word in found:
                add_outcome(others, name, word)
                written.setdefault(name, set()).update([test] if names else [])
        aliases = add_aliases(outcomes, others, written)
        return Reported(outcomes, self.kind, is_complete=bool(outcomes), aliases=aliases)


def _lines(lines: Sequence[bytes]) -> Iterator[tuple[str, list[str], Outcome]]:
    for line in lines:
        try:
            found = json.loads(line)
            names = [str(each) for each in found["path"]]
            outcome, file = found["outcome"], str(found["file"])
        except (ValueError, TypeError, KeyError):
            continue
        if outcome in SEVERITY:
            yield file, names, outcome


def _of_vitest(content: bytes) -> Iterator[tuple[str, list[str], Outcome]]:
    """Read JSON with the keys of jest: testResults, of which each has name, status, assertionResults."""
    try:
        files = json.loads(content)["testResults"]
        for file in files:
            tests: Any = file["assertionResults"]
            if file["status"] == "failed" and not tests:
                yield str(file["name"]), [], "failed"
            for each in tests:
                names = [*map(str, filter(None, each["ancestorTitles"])), str(each["title"])]
                yield str(file["name"]), names, OUTCOMES_OF_VITEST.get(each["status"], "failed")
    except (ValueError, TypeError, KeyError, RecursionError):
        return
