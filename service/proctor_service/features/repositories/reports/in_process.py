"""Reports of Python's frameworks (pytest, unittest, django), observed within their process.

The package `observer` goes into each site-packages of the image under a name of this run, with a `.pth` file
for its import. The observer sends two outcomes for each test; the two must agree.
"""

from __future__ import annotations

import json
import posixpath
import secrets
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import cast

from proctor_service.features.repositories.reports.interface import (
    SEVERITY,
    ImageFacts,
    Outcome,
    Reported,
    TestRun,
    add_outcome,
)

OBSERVER = Path(__file__).parent / "observer"
MOST_LINE_BYTES = 1024 * 1024


def observer_name() -> str:
    """Return a name for the package, unpredictable for the programs of the image."""
    return f"_{secrets.token_hex(8)}"


@dataclass(frozen=True, slots=True)
class InProcess:
    """The report of `pytest`, `unittest` and `django`.

    `socket` is the path of the listener's socket, `directory` the repository's folder (a real path).
    `changed` has the absolute paths of the files written by the change; `doctests` the task's text, by
    absolute path, of changed files with listed doctests.
    """

    kind: str
    socket: str
    directory: str
    changed: Sequence[str] = ()
    doctests: Mapping[str, str] = field(default_factory=dict)
    name: str = field(default_factory=observer_name)

    def files(self, image: ImageFacts) -> Mapping[str, bytes]:
        """The observer's modules and a `.pth` file for each site-packages."""
        modules = {path.name: path.read_bytes() for path in sorted(OBSERVER.glob("*.py"))}
        modules["settings.py"] = self._settings()
        found: dict[str, bytes] = {}
        for folder in image.site_packages:
            for name, content in modules.items():
                found[posixpath.join(folder, self.name, name)] = content
            found[posixpath.join(folder, f"{self.name}.pth")] = f"import {self.name}\n".encode()
        return found

    def _settings(self) -> bytes:
        lines = [
            f"SOCKET = {self.socket!r}",
            f"DIRECTORY = {self.directory!r}",
            f"CHANGED = {tuple(self.changed)!r}",
            f"DOCTESTS = {dict(self.doctests)!r}",
        ]
        return "\n".join([*lines, ""]).encode("ascii", "backslashreplace")

    def variables(self, present: Mapping[str, str]) -> Mapping[str, str]:
        """Return an empty mapping: commands, tox and `env` drop variables."""
        return {}

    def collects(self) -> Sequence[str]:
        """Return an empty sequence: the events have all outcomes."""
        return ()

    def read(self, run: TestRun) -> Reported:
        """Compare the observed with the reported outcomes of each process."""
        return Events.of(run.events).reported(self.kind)


@dataclass(slots=True)
class Events:
    """Outcomes sent by the processes of a run, by test."""

    raw: dict[str, Outcome] = field(default_factory=dict)
    """Of tests whose function was called."""
    reported_by_test: dict[str, Outcome] = field(default_factory=dict)
    doubted: set[str] = field(default_factory=set)
    alias_of: dict[str, set[str]] = field(default_factory=dict)
    signals: set[str] = field(default_factory=set)
    mains: int = 0
    ends: int = 0
    has_hello: bool = False

    @classmethod
    def of(cls, lines: Iterable[bytes]) -> Events:
        """Read the listener's record; malformed lines are left out."""
        events = cls()
        for role, kind, fields in _messages(lines):
            if kind == "restart":
                events = cls()
            events._add(role, kind, fields)
        return events

    def _add(self, role: str, kind: str, fields: Sequence[str]) -> None:
        match kind, *fields:
            case "hello", *_:
                self.has_hello = True
            case "claim", *_:
                self.mains += role == "main"
            case "end", *_:
                self.ends += role == "main"
            case "test", name, raw, reported, alias:
                _add(self.raw, name, raw)
                _add(self.reported_by_test, name, reported)
                if alias:
                    self.alias_of.setdefault(alias, set()).add(name)
            case "raw", name, raw:
                _add(self.raw, name, raw)
            case "failed", name:
                add_outcome(self.raw, name, "failed")
            case "repeat", name:
                self.raw.pop(name, None)
            case "reported", name, reported:
                _add(self.reported_by_test, name, reported)
            case "collect", name, _:
                _add(self.reported_by_test, name, "error")
            case "doubt", name, *_:
                self.doubted.add(name)
            case "contested" | "refused", *_:
                self.signals.add("second_runner")
            case _:
                pass

    def reported(self, kind: str) -> Reported:
        """Return the outcome of each test: passed where both observations agree on an unchanged framework."""
        outcomes: dict[str, Outcome] = {}
        signals = set(self.signals)
        for name, outcome in self.reported_by_test.items():
            if outcome in ("passed", "unexpected_pass"):
                if name in self.doubted or "" in self.doubted:
                    outcome = "failed"
                    signals.add("framework_changed")
                elif self.raw.get(name) != "passed":
                    outcome = "failed"
                    signals.add("outcomes_disagree")
            outcomes[name] = outcome
        for alias, names in self.alias_of.items():
            for name in names:
                if alias not in self.reported_by_test and name in outcomes:
                    add_outcome(outcomes, alias, outcomes[name])
        is_complete = 0 < self.mains <= self.ends
        aliases = {
            alias: frozenset(names)
            for alias, names in self.alias_of.items()
            if alias not in self.reported_by_test
        }
        return Reported(outcomes, kind, tuple(sorted(signals)), is_complete, aliases)


def _messages(lines: Iterable[bytes]) -> Iterator[tuple[str, str, list[str]]]:
    for line in lines:
        if len(line) > MOST_LINE_BYTES:
            continue
        try:
            _, role, kind, *fields = json.loads(line)
        except (ValueError, TypeError):
            continue
        if all(isinstance(each, str) for each in (role, kind, *fields)):
            yield role, kind, fields


def _add(outcomes: dict[str, Outcome], name: str, word: str) -> None:
    """Add an outcome by its word; `none` is skipped, and an unknown word counts as an error."""
    if word != "none":
        add_outcome(outcomes, name, cast(Outcome, word) if word in SEVERITY else "error")
