"""Reports printed by a runner: Go, Cargo and SymPy. Lines printed by tests look the same."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from proctor_service.features.repositories.reports.interface import (
    Outcome,
    Report,
    Reported,
    TestRun,
    add_outcome,
)

Lines = Iterator[tuple[str, Outcome]]

_GO_TEST = re.compile(r"--- (PASS|FAIL|SKIP): (\S+) \(\d+\.\d+s\)$")
"""`    --- PASS: TestRing/push (0.00s)`, also behind what the test printed; not `=== RUN   TestRing`."""
_GO_PACKAGE = re.compile(r"(?:ok|FAIL|\?)\s+\t?(\S+)(?:\s+(?:\(cached\)|\d[\d.]*s|\[[^\]]*\]))")
"""`ok  \texample.org/ring\t0.006s`, `FAIL\texample.org/ring [build failed]`; not a bare `FAIL`."""
_GO_OUTCOMES: Mapping[str, Outcome] = {"pass": "passed", "fail": "failed", "skip": "skipped"}
_CARGO_TEST = re.compile(r"^test (.+?)( - should panic)? \.\.\. (ok|FAILED|ignored)\b")
"""`test ring::tests::push ... ok`, `test tests::full - should panic ... ok`; not `test result: ok.`"""
_CARGO_OUTCOMES: Mapping[str, Outcome] = {"ok": "passed", "FAILED": "failed", "ignored": "skipped"}
_SYMPY_FILE = re.compile(r"^(\S+\.py)\[\d+\]")
"""`sympy/core/tests/test_basic.py[20] `."""
_SYMPY_TEST = re.compile(r"^(test_\w+) (ok|F|E|f|X|s|w|T)\b")
"""`test_structure ok`, `test_equality F`; not `test_structure`."""
_SYMPY_OUTCOMES: Mapping[str, Outcome] = {
    "ok": "passed",
    "F": "failed",
    "E": "error",
    "f": "expected_failure",
    "X": "unexpected_pass",
    "s": "skipped",
    "w": "skipped",
    "T": "failed",
}
_COLOUR = re.compile(r"\x1b\[[0-9;]*[A-Za-z]")
"""`\\x1b[32m`."""


def of_go(lines: Sequence[str]) -> Lines:
    """Outcomes by `package.Test/sub` of `go test -v`, or of the lines of `go test -json`."""
    waiting: list[tuple[str, Outcome]] = []
    for line in lines:
        if line.startswith('{"'):
            yield from _of_go_json(line)
        elif found := _GO_TEST.search(line):
            waiting.append((found[2], _GO_OUTCOMES[found[1].lower()]))
        elif found := _GO_PACKAGE.match(line):
            yield from ((f"{found[1]}.{name}", outcome) for name, outcome in waiting)
            waiting.clear()
    yield from waiting


def _of_go_json(line: str) -> Lines:
    """Read `{"Action":"pass","Package":"example.org/ring","Test":"TestRing"}`; other actions are skipped."""
    try:
        event = json.loads(line)
    except (ValueError, RecursionError):
        return
    if isinstance(event, dict) and event.get("Test") and event.get("Action") in _GO_OUTCOMES:
        yield f"{event.get('Package', '')}.{event['Test']}", _GO_OUTCOMES[event["Action"]]


def of_cargo(lines: Sequence[str]) -> Lines:
    """Outcomes by the test's path in its crate."""
    for line in lines:
        if found := _CARGO_TEST.match(line):
            yield found[1], _CARGO_OUTCOMES[found[3]]


def of_sympy(lines: Sequence[str]) -> Lines:
    """Outcomes by the function's name, and by `file::function`."""
    file = ""
    for line in lines:
        if found := _SYMPY_FILE.match(line):
            file = found[1]
        elif found := _SYMPY_TEST.match(line):
            outcome = _SYMPY_OUTCOMES[found[2]]
            yield found[1], outcome
            yield f"{file}::{found[1]}", outcome


@dataclass(frozen=True, slots=True)
class TextReport(Report):
    """A report read from the output of the command."""

    kind: str
    parser: Callable[[Sequence[str]], Lines]
    option: tuple[str, str] | None = None
    """A variable and the word that is added to it."""

    def variables(self, present: Mapping[str, str]) -> Mapping[str, str]:
        """Return the runner's options: the present options, and the report's own."""
        if self.option is None:
            return {}
        name, word = self.option
        return {name: " ".join(filter(None, [present.get(name, ""), word]))}

    def read(self, run: TestRun) -> Reported:
        """Read both outputs; of several outcomes of a name the worst counts."""
        outcomes: dict[str, Outcome] = {}
        for output in (run.stdout, run.stderr):
            text = _COLOUR.sub("", output.decode("utf-8", "replace"))
            for name, outcome in self.parser([line.rstrip("\r") for line in text.split("\n")]):
                add_outcome(outcomes, name, outcome)
        return Reported(outcomes, self.kind, is_complete=run.exit_status is not None)


def go_report() -> TextReport:
    """Return Go's report. `-v` prints each test; `-json` would also change the output of `go list`."""
    return TextReport("go", of_go, ("GOFLAGS", "-v"))


def cargo_report() -> TextReport:
    """Return the report of libtest's text, since libtest's JSON is unstable."""
    return TextReport("cargo", of_cargo)


def sympy_report() -> TextReport:
    """The text of `bin/test --verbose`."""
    return TextReport("sympy", of_sympy)
