"""Passed tests by what each runner itself prints or writes: no part of the service reads here."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator, Mapping
from typing import Any
from xml.etree import ElementTree

SEPARATOR = "=====REPORT====="
"""A command prints this line, and then the file that its runner wrote."""
_PYTEST = re.compile(r"^(PASSED|XFAIL) (\S.*)$")
_UNITTEST_NAME = re.compile(r"^(\w+) \(([\w.]+)\)(.*)$")
_COLOUR = re.compile(r"\x1b\[[0-9;]*m")
_GO = re.compile(r"^\s*--- PASS: (\S+) \(")
_CARGO = re.compile(r"^test (.+?)(?: - should panic)? \.\.\. ok$")
_TAP = re.compile(r"^( *)(not ok|ok) \d+ - (.*?)(?: # (?:SKIP|TODO).*)?$")


def passed_tests(kind: str, output: str) -> set[str]:
    """Names of the passed tests of a run, as a data set of this kind writes them."""
    return set(READERS[kind](_COLOUR.sub("", output)))


def _pytest(output: str) -> Iterator[str]:
    """The summary of `-rA`: `PASSED tests/test_a.py::test_b[x y]`."""
    for line in output.splitlines():
        found = _PYTEST.match(line)
        if found is not None and "::" in found[2]:
            yield found[2] if found[1] == "PASSED" else found[2].partition(" - ")[0]


def _unittest(output: str) -> Iterator[str]:
    """`-v`: `test_a (module.Class.test_a) ... ok`, with a docstring between on a line of its own."""
    name = ""
    for line in output.splitlines():
        found = _UNITTEST_NAME.match(line)
        if found is not None:
            test, owner = found[1], found[2]
            name = owner if owner.endswith(f".{test}") else f"{owner}.{test}"
        if name and line.endswith(" ... ok"):
            test = name.rpartition(".")[2]
            yield f"{test} ({name.rpartition('.')[0]})"
            name = ""


def _go(output: str) -> Iterator[str]:
    return (found[1] for line in output.splitlines() if (found := _GO.match(line)))


def _cargo(output: str) -> Iterator[str]:
    return (found[1] for line in output.splitlines() if (found := _CARGO.match(line)))


def _junit(output: str) -> Iterator[str]:
    for text in output.split(SEPARATOR)[1:]:
        for case in ElementTree.fromstring(text.strip()).iter("testcase"):
            if not any(child.tag in ("failure", "error", "skipped") for child in case):
                yield f"{case.get('classname')}.{case.get('name')}"


def _json_of(output: str) -> Any:
    text = output.rpartition(SEPARATOR)[2]
    return json.loads(text) if text.strip().startswith("{") else {}


def _jest(output: str) -> Iterator[str]:
    """The JSON of jest and vitest."""
    for file in _json_of(output).get("testResults", []):
        for each in file["assertionResults"]:
            if each["status"] == "passed":
                yield " > ".join([*filter(None, each["ancestorTitles"]), each["title"]])


def _mocha(output: str) -> Iterator[str]:
    """The JSON of mocha: `fullTitle` has the path with blanks."""
    return (each["fullTitle"] for each in _json_of(output).get("passes", []))


def _node(output: str) -> Iterator[str]:
    """TAP of `node --test`: a suite comes after its tests, which are indented."""
    waiting: list[tuple[int, str]] = []
    for line in output.splitlines():
        found = _TAP.match(line)
        if found is None:
            continue
        depth, ok, title = len(found[1]) // 4, found[2] == "ok", found[3]
        inner = [path for level, path in waiting if level > depth]
        waiting = [each for each in waiting if each[0] <= depth]
        if inner:
            waiting += [(depth, f"{title} > {path}") for path in inner]
        elif ok:
            waiting.append((depth, title))
    yield from (path for _, path in waiting)


READERS: Mapping[str, Callable[[str], Iterator[str]]] = {
    "pytest": _pytest,
    "unittest": _unittest,
    "django": _unittest,
    "go": _go,
    "cargo": _cargo,
    "junit": _junit,
    "jest": _jest,
    "vitest": _jest,
    "mocha": _mocha,
    "node": _node,
}
