"""Names of tests as a data set's lists write them, and outcomes by these names."""

from __future__ import annotations

import re
from bisect import bisect_left
from collections.abc import Iterable, Mapping, Sequence

from proctor_client.wire.repositories import NameForm
from proctor_service.features.repositories.reports.interface import (
    Outcome,
    Reported,
    add_outcome,
)

_UNITTEST = re.compile(r"(\w+) \(([\w.]+)\)")
"""`test_push (tests.Ring)` and, as newer versions print, `test_push (tests.Ring.test_push)`."""
_GO = re.compile(r".*?\.((?:Test|Example|Benchmark|Fuzz).*)", re.DOTALL)
"""`example.org/ring.TestPush/full` → `TestPush/full`."""
_TIMING = re.compile(
    r"(?:\[\d[\d.,]* ?m?s\]|\(\d[\d.,]* ?m?s\)|in \d[\d.,]* ?m?(?:s|sec|seconds))$"
)
"""` [1.2 ms]`, ` (0.1s)`, ` in 3 msec`; not ` [2]`."""

_LONGEST_TIMING = 64
_PATH_BEGIN = re.compile(r"\[/(?!/)")
"""`[/a` in `t.py::test_get[/a/b/c]`, whose parameter is a path; not `[//host]`."""
_BUTTONS: Mapping[str, str] = {"MouseButton.LEFT": "1", "MouseButton.RIGHT": "3"}


def folded(name: str, forms: Iterable[NameForm]) -> str:
    """Return a name in the forms of a data set; listed and reported names are folded alike, so they meet."""
    for form in forms:
        match form:
            case "cut_at_blank":
                name = name.split(maxsplit=1)[0] if name.strip() else name
            case "dotted":
                name = name.partition(" - ")[0]
                name = ".".join(name.split("::")[1:]) if "::" in name else name
            case "without_package":
                found = _GO.fullmatch(name)
                name = found[1] if found else name
            case "without_timing":
                timing = _TIMING.search(name, max(0, len(name) - _LONGEST_TIMING))
                name = name[: timing.start()].rstrip() if timing else name
            case "short_paths":
                name = _with_short_path(name)
            case "button_numbers":
                for word, number in _BUTTONS.items():
                    name = name.replace(word, number)
            case "prefix":
                pass
    return name


def _with_short_path(name: str) -> str:
    """Return `t.py::test_get[/c]` for `t.py::test_get[/a/b/c]`; keeps `[/a/*]`. Takes linear time."""
    at = 0
    while found := _PATH_BEGIN.search(name, at):
        begin = found.end() - 1
        star = name.find("*", begin)
        end = name.rfind("]", begin, len(name) if star < 0 else star)
        if end >= 0:
            return f"{name[:begin]}/{name[begin:end].rpartition('/')[2]}{name[end:]}"
        if star < 0:
            break
        at = star
    return name


def canonical(name: str, kind: str) -> str:
    """Return a listed name as the report `kind` has it: `test (module.Class)` is `module.Class.test`."""
    if kind not in ("unittest", "django"):
        return name
    found = _UNITTEST.fullmatch(name)
    if found is None:
        return name
    test, owner = found.groups()
    return owner if owner.endswith(f".{test}") else f"{owner}.{test}"


class NamedOutcomes:
    """Outcomes of a run by the names of the task's lists. Of several reported names the worst counts."""

    def __init__(self, reported: Reported, forms: Sequence[NameForm]) -> None:
        outcomes = reported.outcomes
        self._forms = forms
        self._kind = reported.kind
        self._reported = outcomes
        tests = {folded(name, forms) for name in outcomes if name not in reported.aliases}
        aliases = ((folded(name, forms), found) for name, found in reported.aliases.items())
        self._aliases = {
            name: {folded(each, forms) for each in found}
            for name, found in aliases
            if name not in tests
        }
        self._folded: dict[str, Outcome] = {}
        for name, outcome in outcomes.items():
            add_outcome(self._folded, folded(name, forms), outcome)
        self._sorted = sorted(self._folded) if "prefix" in forms else []

    def of(self, name: str) -> Outcome | None:
        """Return the outcome of a listed name; None for an unreported name."""
        found = self._reported.get(name)
        if found is not None and not self._forms:
            return found
        key = folded(canonical(name, self._kind), self._forms)
        if key in self._folded:
            return self._folded[key]
        return self._by_prefix(key) if self._sorted and is_cut(key) else found

    def _by_prefix(self, key: str) -> Outcome | None:
        found: dict[str, Outcome] = {}
        for name in self._sorted[bisect_left(self._sorted, key) :]:
            if not name.startswith(key):
                break
            add_outcome(found, key, self._folded[name])
        return found.get(key)

    def others(self, names: Iterable[str]) -> Mapping[str, Outcome]:
        """Return the outcomes of reported tests outside `names`."""
        listed = {folded(canonical(name, self._kind), self._forms) for name in names}
        meant = listed.union(*(self._aliases.get(name, ()) for name in listed))
        left_out = meant.union(self._aliases)
        return {name: each for name, each in self._folded.items() if name not in left_out}


def is_cut(name: str) -> bool:
    """Return True for a name cut by a data set: `test_a.py::test_b[x y`, with more `[` than `]`."""
    return name.count("[") > name.count("]")
