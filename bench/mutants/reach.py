"""The tests in reach of a mutant's line, and a selection of them within a bounded time.

Read from the data of one run of the whole suite: coverage with a context for each test (`pytest
--cov-context=test`) and the durations in its JUnit report. Coverage sees the test process with its
threads. Judge processes and services of a test are out of sight: lines which only they run count as
not reached.

Python runs some lines at import, before any test: values of modules and classes, defaults, and
functions for such values. Their tests reach a line with the same name, or the body below. A fixture
of a module runs in the setup of one test, though all tests of the file may assert on its effects:
all of them count for the fixture's lines.
"""

from __future__ import annotations

import ast
import re
import shutil
import statistics
import tempfile
import xml.etree.ElementTree as ET
from collections import defaultdict
from collections.abc import Collection, Iterator
from dataclasses import dataclass, field
from pathlib import Path, PurePosixPath

import coverage

from mutants.mutant import Mutant
from mutants.operators import Function

START_SECONDS = 0.2
"""Estimated time to import one test file."""
TEST_SECONDS = 0.005
"""Estimated time that pytest adds to each test."""
_PARAMETERS = re.compile(r"\[.*", re.DOTALL)
"""The parameters in a test's name: "[1-x]" in "tests/core/test_text.py::test_tokens[1-x]"."""


@dataclass(frozen=True, slots=True)
class SuiteTest:
    """One test of the whole run, with its seconds in it and its place in the order of its file."""

    name: str
    seconds: float
    order: int

    @property
    def file(self) -> str:
        return self.name.partition("::")[0]

    @property
    def function(self) -> str:
        return _PARAMETERS.sub("", self.name)


def read_durations(path: Path, root: Path) -> dict[str, SuiteTest]:
    """The passed tests in a JUnit report, by name."""
    tests = {}
    for order, case in enumerate(ET.parse(path).getroot().iter("testcase")):
        if any(case.find(tag) is not None for tag in ("failure", "error", "skipped")):
            continue
        parts = case.get("classname", "").split(".")  # a run that was interrupted has none
        for length in range(len(parts), 0, -1):
            file = "/".join(parts[:length]) + ".py"
            if (root / file).is_file():
                name = "::".join([file, *parts[length:], case.get("name", "")])
                tests[name] = SuiteTest(name, float(case.get("time", 0)), order)
                break
    return tests


@dataclass(frozen=True, slots=True)
class Costs:
    """Seconds of each test alone, and of a file's shared parts: its import and its
    fixtures."""

    own: dict[str, float]
    shared: dict[str, float]

    @classmethod
    def of(cls, tests: Collection[SuiteTest]) -> Costs:
        own = {test.name: test.seconds + TEST_SECONDS for test in tests}
        shared = {}
        by_file: dict[str, list[SuiteTest]] = defaultdict(list)
        for test in tests:
            by_file[test.file].append(test)
        for file, members in by_file.items():
            first = min(members, key=lambda test: test.order)
            usual = statistics.median(test.seconds for test in members)
            fixtures = max(0.0, first.seconds - usual)
            own[first.name] -= fixtures
            shared[file] = START_SECONDS + fixtures
        return cls(own, shared)


def select(tests: Collection[SuiteTest], costs: Costs, budget_seconds: float) -> list[SuiteTest]:
    """Tests with costs within the budget, the files with the shortest first.

    Each file gets an equal share of the time, to select many short tests of a unit and a few in
    real sandboxes. Within a file each test function comes before a second case of any.
    """
    waiting = {file: _in_turn(members, costs) for file, members in _by_file(tests).items()}
    spent = dict.fromkeys(waiting, 0.0)
    selected: dict[str, list[SuiteTest]] = defaultdict(list)

    def spent_with_next(file: str) -> float:
        shared = 0.0 if selected[file] else costs.shared[file]
        return spent[file] + shared + costs.own[waiting[file][0].name]

    while waiting:
        file = min(waiting, key=lambda each: (spent_with_next(each), each))
        after = spent_with_next(file)
        test = waiting[file].pop(0)
        if sum(spent.values()) - spent[file] + after <= budget_seconds or not any(spent.values()):
            selected[file].append(test)
            spent[file] = after
        if not waiting[file]:
            del waiting[file]
    files = sorted((file for file in selected if selected[file]), key=lambda each: spent[each])
    return [t for file in files for t in sorted(selected[file], key=lambda test: test.order)]


def _by_file(tests: Collection[SuiteTest]) -> dict[str, list[SuiteTest]]:
    by_file: dict[str, list[SuiteTest]] = defaultdict(list)
    for test in tests:
        by_file[test.file].append(test)
    return by_file


def _in_turn(tests: list[SuiteTest], costs: Costs) -> list[SuiteTest]:
    """The shortest case of each function, then the second of each, and so on."""
    cases: dict[str, int] = defaultdict(int)
    turns = []
    for test in sorted(tests, key=lambda each: (costs.own[each.name], each.order)):
        turns.append((cases[test.function], costs.own[test.name], test.order, test))
        cases[test.function] += 1
    return [turn[-1] for turn in sorted(turns, key=lambda turn: turn[:3])]


@dataclass(slots=True)
class Reach:
    """The tests of each line of the files under mutation."""

    root: Path
    data: coverage.CoverageData
    tests: dict[str, SuiteTest]
    _measured: dict[str, str] = field(default_factory=dict)
    _contexts: dict[str, dict[int, list[str]]] = field(default_factory=dict)
    _trees: dict[str, ast.Module] = field(default_factory=dict)

    @classmethod
    def read(cls, root: Path, data_file: Path, durations: Path) -> Reach:
        """Reads a copy of the data file: SQLite might write into the file itself."""
        with tempfile.TemporaryDirectory() as folder:
            copied = Path(shutil.copy(data_file, folder))
            data = coverage.CoverageData(str(copied))
            data.read()
            reach = cls(root, data, read_durations(durations, root))
            for measured in data.measured_files():
                for parent in PurePosixPath(measured).parents:
                    path = PurePosixPath(measured).relative_to(parent)
                    if (root / path).is_file():
                        reach._measured[str(path)] = measured
            for path_text, measured in reach._measured.items():
                reach._contexts[path_text] = data.contexts_by_lineno(measured)
                reach._trees[path_text] = ast.parse((root / path_text).read_text())
        return reach

    def tests_of(self, mutant: Mutant, line: int) -> list[SuiteTest]:
        """The tests in reach of the mutant, which is at `line` now."""
        tree = self._trees.get(mutant.path)
        if tree is None:
            return []
        function = _function_at(tree, line)
        if function is not None:
            places = _places(function, line)
            found = self._tests_at(mutant.path, places)
            if found or not any(self._contexts[mutant.path].get(place) for place in places):
                return self._ordered(found)
        names = self._names_at(tree, line) if function is None else {function.name}
        return self._ordered(
            self._tests_with_names(self._with_dependent(names))
            or self._tests_at(mutant.path, set(self._contexts[mutant.path]))
        )

    def _ordered(self, names: set[str]) -> list[SuiteTest]:
        return sorted(
            (self.tests[name] for name in names & self.tests.keys()), key=lambda test: test.order
        )

    def _tests_at(self, path: str, lines: Collection[int]) -> set[str]:
        names, setups = set(), defaultdict(set)
        for line in lines:
            for context in self._contexts[path].get(line, ()):
                name, bar, phase = context.rpartition("|")
                if bar:
                    names.add(name)
                if phase == "setup":
                    setups[name.partition("::")[0]].add(name)
        for file, first in setups.items():
            members = {test.name for test in self.tests.values() if test.file == file}
            if len(first) * 2 < len(members):  # a fixture of the module, not of each test
                names |= members
        return names

    def _names_at(self, tree: ast.Module, line: int) -> set[str]:
        """The names bound by the statement at import."""
        return {
            name
            for statement in _statements(tree)
            if statement.lineno <= line <= (statement.end_lineno or line)
            for name in _bound(statement)
        }

    def _with_dependent(self, names: set[str]) -> set[str]:
        """The names, and names of modules made from them."""
        modules = [s for each in self._trees.values() for s in each.body]
        while True:
            more = {
                name
                for statement in modules
                if isinstance(statement, ast.Assign | ast.AnnAssign)
                and names & _mentioned(statement)
                for name in _bound(statement)
            } - names
            if not more:
                return names
            names |= more

    def _tests_with_names(self, names: set[str]) -> set[str]:
        found: set[str] = set()
        for path, tree in self._trees.items():
            lines = {
                node.lineno
                for node in ast.walk(tree)
                if (isinstance(node, ast.Name) and node.id in names)
                or (isinstance(node, ast.Attribute) and node.attr in names)
            }
            if lines:
                found |= self._tests_at(path, lines)
        return found


def _function_at(tree: ast.Module, line: int) -> Function | None:
    function = None
    for node in ast.walk(tree):
        if isinstance(node, Function):
            end = node.end_lineno or node.lineno
            if node.lineno <= line <= end and (function is None or node.lineno > function.lineno):
                function = node
    return function


def _places(function: Function, line: int) -> range:
    """The lines with tests in reach of `line`: of its statement, or of a default's body."""
    if line < function.body[0].lineno:  # a default
        return range(function.body[0].lineno, (function.end_lineno or line) + 1)
    inner = [node for node in ast.walk(function) if isinstance(node, ast.stmt)]
    around = [node for node in inner if node.lineno <= line <= (node.end_lineno or line)]
    statement = max(around, key=lambda node: (node.lineno, -(node.end_lineno or line)))
    body = getattr(statement, "body", None)
    end = body[0].lineno if body else (statement.end_lineno or line) + 1
    return range(statement.lineno, max(end, statement.lineno + 1))


def _statements(tree: ast.Module) -> Iterator[ast.stmt]:
    """The statements run at import, in modules and in classes."""
    todo: list[ast.stmt] = [*tree.body]
    while todo:
        statement = todo.pop()
        yield statement
        if isinstance(statement, ast.ClassDef | ast.If):
            todo += statement.body


def _bound(statement: ast.stmt) -> set[str]:
    match statement:
        case ast.Assign(targets=targets):
            return {n.id for t in targets for n in ast.walk(t) if isinstance(n, ast.Name)}
        case ast.AnnAssign(target=ast.Name(id=name)):
            return {name}
    return set()


def _mentioned(statement: ast.Assign | ast.AnnAssign) -> set[str]:
    return {n.id for n in ast.walk(statement.value or statement) if isinstance(n, ast.Name)}
