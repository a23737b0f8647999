"""Reports of JavaScript's runners: `node`, `jest`, `vitest` and `mocha`, by the runner's own process."""

from __future__ import annotations

import json
import posixpath
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import cast

from proctor_service.features.repositories.reports.interface import (
    SEVERITY,
    ImageFacts,
    Outcome,
    Report,
    Reported,
    TestRun,
    add_aliases,
    add_outcome,
)
from proctor_service.features.repositories.reports.listener import HOLD, LINES

OBSERVER = Path(__file__).parent / "node_observer.cjs"
SEPARATOR = " > "


@dataclass(frozen=True, slots=True)
class NodeReport(Report):
    """The report of `node`, `jest`, `vitest` and `mocha`. `socket`: path of the listener's socket."""

    kind: str
    socket: str
    directory: str

    def files(self, image: ImageFacts) -> Mapping[str, bytes]:
        """Return the module loaded by Node before its program."""
        source = OBSERVER.read_text()
        words = {
            "@SOCKET@": self.socket + LINES,
            "@HOLD@": self.socket + HOLD,
            "@VITEST@": self._vitest,
            "@KIND@": self.kind,
        }
        for word, value in words.items():
            source = source.replace(word, value)
        return {self._observer: source.encode()}

    @property
    def _observer(self) -> str:
        return posixpath.join(posixpath.dirname(self.socket), "observer.cjs")

    @property
    def _vitest(self) -> str:
        return posixpath.join(posixpath.dirname(self.socket), "vitest.json")

    def variables(self, present: Mapping[str, str]) -> Mapping[str, str]:
        """Return Node's options: the present options, and the module."""
        options = [present.get("NODE_OPTIONS", ""), f"--require {self._observer}"]
        return {"NODE_OPTIONS": " ".join(filter(None, options))}

    def read(self, run: TestRun) -> Reported:
        """Read tests by path (`Ring > push > drops`); also with spaces, with the file, and by file."""
        outcomes: dict[str, Outcome] = {}
        others: dict[str, Outcome] = {}
        written: dict[str, set[str]] = {}
        lines, signals = _recorded(run.events)
        for file, names, outcome in _lines(lines):
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
        return Reported(
            outcomes, self.kind, tuple(signals), is_complete=bool(outcomes), aliases=aliases
        )


def _recorded(events: Iterable[bytes]) -> tuple[list[str], set[str]]:
    """Return the lines taken by the listener, and signals of other programs with a claim to report."""
    lines: list[str] = []
    signals: set[str] = set()
    for event in events:
        try:
            _, role, kind, *fields = json.loads(event)
        except (ValueError, TypeError):
            continue
        if kind == "restart":
            lines, signals = [], set()
        elif kind in ("contested", "refused"):
            signals.add("second_runner")
        elif (role, kind) == ("main", "line") and fields:
            lines.append(fields[0])
    return lines, signals


def _lines(lines: Sequence[str]) -> Iterator[tuple[str, list[str], Outcome]]:
    for line in lines:
        try:
            found = json.loads(line)
            names = [str(each) for each in found["path"]]
            outcome, file = str(found["outcome"]), str(found["file"])
        except (ValueError, TypeError, KeyError, RecursionError):
            continue
        if outcome in SEVERITY:
            yield file, names, cast(Outcome, outcome)
