"""Parsed test code: the setup, the tests, and the steps to run after a test's statements.

Tests come from the trainer. Length and nesting are bounded, so a text that breaks the parser cannot
break the service.
"""

from __future__ import annotations

import ast
import re
import warnings
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from proctor_client.wire import AssertsGrader
from proctor_service.errors import InvalidTask

_MAX_TEST_BYTES = 1 << 20
_MAX_DEPTH = 200
_ENTRY_POINT = re.compile(r"[^\W\d]\w*(\(\))?(\.[^\W\d]\w*)*\Z")
_RUNNERS = frozenset(
    ["TextTestRunner", "defaultTestLoader", "TestLoader", "TestSuite", "makeSuite"]
)
_CASES = frozenset(["TestCase", "IsolatedAsyncioTestCase"])
# Functions that pytest calls around the tests of a module.
_AROUND_TESTS = frozenset(
    f"{when}_{part}" for when in ("setup", "teardown") for part in ("module", "function")
)
_MARKS = frozenset(["parametrize", "usefixtures", "xfail"])
"""Marks of pytest that change how a function runs, or what its result means."""
# The fixtures of pytest itself, and those of pytest-mock and pytest-benchmark.
_FIXTURES = frozenset(
    (
        *("cache", "capfd", "capfdbinary", "caplog", "capsys", "capsysbinary", "doctest_namespace"),
        *("monkeypatch", "pytestconfig", "recwarn", "request", "tmp_path", "tmp_path_factory"),
        *("tmpdir", "tmpdir_factory", "mocker", "benchmark"),
    )
)
# Tests that mention one of these may find their definitions by themselves.
_SEARCHING = frozenset(["globals", "locals", "vars", "dir", "inspect", "eval", "exec", "getattr"])

RunStep = tuple[Any, ...]
"""Step to run after a test's statements: `("check", function, entry_point or "")`, where "" means
the last function of the submission, `("function", name)` or `("cases", [names])`."""


@dataclass(frozen=True, slots=True)
class Test:
    """One test: its text, its syntax tree, and the steps to run after its statements."""

    text: str
    tree: ast.Module
    run: tuple[RunStep, ...] = ()


@dataclass(frozen=True, slots=True)
class Suite:
    """The setup and the tests of a grader. `entry_point` is an expression like `Solution().f`."""

    setup_text: str
    setup: ast.Module
    tests: tuple[Test, ...]
    entry_point: str | None
    nodes: tuple[tuple[ast.AST, ...], ...]
    """The nodes of each tree, the setup's first."""

    @property
    def texts(self) -> tuple[str, ...]:
        """All source texts, the setup's first."""
        return (self.setup_text, *(test.text for test in self.tests))

    @property
    def trees(self) -> tuple[ast.Module, ...]:
        """All syntax trees, the setup's first."""
        return (self.setup, *(test.tree for test in self.tests))


def parse_suite(grader: AssertsGrader) -> Suite:
    """Parse the tests of a grader. Raises InvalidTask with the name of the part at fault."""
    entry_point = grader.entry_point
    if entry_point is not None and not _ENTRY_POINT.match(entry_point):
        raise InvalidTask(f"entry_point: {entry_point[:100]!r} names no function")
    setup = parse(grader.setup, "setup")
    trees = [parse(text, f"tests.{index}") for index, text in enumerate(grader.tests)]
    nodes = tuple(tuple(ast.walk(tree)) for tree in (setup, *trees))
    called = _mentioned(nodes)
    known = set(_definitions(setup))
    defined = _definitions(setup, *trees)
    classes = {name: node for name, node in defined.items() if isinstance(node, ast.ClassDef)}
    found = _needs_pytest(trees, called, defined, classes)
    if found is not None:
        index, name = found
        raise InvalidTask(
            f"tests.{index} defines {name}, which only pytest runs: use the grader `pytest`"
        )
    tests = []
    for text, tree in zip(grader.tests, trees, strict=True):
        steps = _run_steps(tree, called, known, classes, entry_point)
        tests.append(Test(text, tree, tuple(steps)))
    return Suite(grader.setup, setup, tuple(tests), entry_point, nodes)


def parse(text: str, name: str) -> ast.Module:
    """Parse Python source. Raises InvalidTask with the name of the part if parsing fails."""
    if len(text) > _MAX_TEST_BYTES:
        raise InvalidTask(f"{name} is longer than {_MAX_TEST_BYTES} bytes")
    if _nesting(text) > _MAX_DEPTH:
        raise InvalidTask(f"{name} is nested too deep")
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", SyntaxWarning)
            warnings.simplefilter("ignore", DeprecationWarning)
            return ast.parse(text)
    except (SyntaxError, ValueError, RecursionError, MemoryError) as error:
        raise InvalidTask(f"{name} is not Python: {error}") from None


def _nesting(text: str) -> int:
    """Return an upper bound of the nesting of brackets and prefix operators, in one pass."""
    deepest = depth = run = 0
    for character in text:
        if character in "([{":
            depth += 1
        elif character in ")]}":
            depth -= 1
        run = run + 1 if character in "-+~" else 0
        deepest = max(deepest, depth, run)
    return deepest


_FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef)
_DEFINITIONS = (*_FUNCTIONS, ast.ClassDef)
_Definition = ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef


def _mentioned(nodes: Sequence[Sequence[ast.AST]]) -> set[str]:
    """Return the names and attributes that test code reads."""
    found: set[str] = set()
    for each in nodes:
        for node in each:
            if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Load):
                found.add(node.id)
            elif isinstance(node, ast.Attribute):
                found.add(node.attr)
                if node.attr == "main" and is_name(node.value, "unittest"):
                    found.add("unittest.main")
            elif isinstance(node, ast.alias) and node.name == "main":
                found.add("unittest.main")
    return found


def _run_steps(
    tree: ast.Module,
    mentioned: set[str],
    known: set[str],
    classes: Mapping[str, ast.ClassDef],
    entry_point: str | None,
) -> Iterator[RunStep]:
    """Yield steps for the functions and TestCases that a test defines but never runs."""
    cases: list[str] = []
    for node in tree.body:
        if not isinstance(node, _DEFINITIONS) or node.name in mentioned:
            continue
        if isinstance(node, ast.ClassDef):
            if _is_case(node, classes):
                cases.append(node.name)
        elif node.name == "check":
            if "check" not in known and _takes(node, 1):
                yield ("check", "check", entry_point or "")
        elif _is_test(node) and _needs_no_argument(node):
            yield ("function", node.name)
    if cases and "unittest.main" not in mentioned and _RUNNERS.isdisjoint(mentioned):
        yield ("cases", cases)


def _needs_pytest(
    trees: Sequence[ast.Module],
    mentioned: set[str],
    defined: Mapping[str, _Definition],
    classes: Mapping[str, ast.ClassDef],
) -> tuple[int, str] | None:
    """Return a definition that pytest would run, and that no step can run, or None.

    The result is the number of its test and its name. `defined`: all definitions of the tests, and
    `classes` those of classes. A definition that the tests mention, or may find by another way, is
    theirs to run.
    """
    if not _SEARCHING.isdisjoint(mentioned):
        return None
    fixtures = {name for name, node in defined.items() if _is_fixture(node)} | _FIXTURES
    has_runner = "unittest.main" in mentioned or not _RUNNERS.isdisjoint(mentioned)
    has_tests = any(
        not isinstance(each, ast.ClassDef) and _is_test(each) for each in defined.values()
    )

    def is_for_pytest(node: _Definition) -> bool:
        if node.name in mentioned or _is_decorated_by(node, defined):
            return False
        if isinstance(node, ast.ClassDef):
            return not has_runner and _is_test_class(node, classes)
        if _is_fixture(node):
            return any(map(_is_autouse, node.decorator_list))
        if node.name in _AROUND_TESTS:
            return has_tests and not _is_empty(node)
        return _is_test(node) and not _runs_alone(node, fixtures)

    for index, tree in enumerate(trees):
        for name, node in _definitions(tree).items():
            if is_for_pytest(node):
                return index, name
    return None


def _definitions(*trees: ast.Module) -> dict[str, _Definition]:
    """Return what test code defines at module level; of a name the last definition."""
    return {
        node.name: node for tree in trees for node in tree.body if isinstance(node, _DEFINITIONS)
    }


def _is_decorated_by(node: _Definition, defined: Mapping[str, _Definition]) -> bool:
    """Tell whether a definition has a decorator that the tests define."""
    return any(_dotted(each)[:1] and _dotted(each)[0] in defined for each in node.decorator_list)


def _is_empty(node: ast.FunctionDef | ast.AsyncFunctionDef) -> bool:
    return all(
        isinstance(each, ast.Pass)
        or (isinstance(each, ast.Expr) and isinstance(each.value, ast.Constant))
        for each in node.body
    )


def _runs_alone(
    node: ast.FunctionDef | ast.AsyncFunctionDef, fixtures: set[str] | frozenset[str]
) -> bool:
    """Tell whether no mark and no fixture changes what a test function means.

    Of a parameter that is no fixture pytest knows nothing either: the function is a helper.
    """
    arguments = node.args
    parameters = (*arguments.posonlyargs, *arguments.args, *arguments.kwonlyargs)
    is_plain = fixtures.isdisjoint(each.arg for each in parameters)
    return is_plain and _MARKS.isdisjoint(_decorators(node))


def _needs_no_argument(node: ast.FunctionDef | ast.AsyncFunctionDef) -> bool:
    """Tell whether a function can be called without arguments but those of `@patch`."""
    patched = sum("patch" in _dotted(each) for each in node.decorator_list)
    return any(_takes(node, count) for count in range(patched + 1))


def _is_test(node: ast.FunctionDef | ast.AsyncFunctionDef) -> bool:
    """Tell whether pytest would run a function of a module or class."""
    skipped = "skip" in _decorators(node)
    return node.name.startswith("test") and not skipped and not _is_fixture(node)


def _is_fixture(node: _Definition) -> bool:
    return not isinstance(node, ast.ClassDef) and "fixture" in _decorators(node)


def _is_test_class(node: ast.ClassDef, classes: Mapping[str, ast.ClassDef]) -> bool:
    """Tell whether pytest would run methods of a class, and unittest would not.

    A base that is no class of the tests is unknown: it may be a TestCase by another name.
    """
    if not node.name.startswith("Test") or not _has_known_bases(node, classes):
        return False
    parts = [part for each in _with_bases(node, classes) for part in each.body]
    functions = [part for part in parts if isinstance(part, _FUNCTIONS)]
    bound = {each.name for each in functions} | {
        target.id
        for part in parts
        if isinstance(part, ast.Assign)
        for target in part.targets
        if isinstance(target, ast.Name)
    }
    left_out = "skip" in _decorators(node) or bound & {"__init__", "__new__", "__test__"}
    return not left_out and any(map(_is_test, functions))


def _has_known_bases(node: ast.ClassDef, classes: Mapping[str, ast.ClassDef]) -> bool:
    return all(
        isinstance(base, ast.Name) and (base.id in classes or base.id == "object")
        for each in _with_bases(node, classes)
        for base in each.bases
    )


def _is_case(node: ast.ClassDef, classes: Mapping[str, ast.ClassDef]) -> bool:
    """Tell whether a class derives from a TestCase, also through other classes of the tests."""
    return any(
        (isinstance(base, ast.Name) and base.id in _CASES and base.id not in classes)
        or (isinstance(base, ast.Attribute) and base.attr in _CASES)
        for each in _with_bases(node, classes)
        for base in each.bases
    )


def _with_bases(node: ast.ClassDef, classes: Mapping[str, ast.ClassDef]) -> Iterator[ast.ClassDef]:
    """Yield a class and those of its base classes that test code defines."""
    seen: set[str] = set()
    todo = [node]
    while todo:
        each = todo.pop()
        yield each
        for base in each.bases:
            if isinstance(base, ast.Name) and base.id in classes and base.id not in seen:
                seen.add(base.id)
                todo.append(classes[base.id])


def _decorators(node: ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef) -> set[str]:
    """Return the last names of a definition's decorators: `skip` for `@pytest.mark.skip()`."""
    return {name for each in node.decorator_list for name in _dotted(each)[-1:]}


def _dotted(decorator: ast.expr) -> list[str]:
    """Return the names in a decorator: `mock`, `patch` and `object` for `@mock.patch.object(..)`."""
    node = decorator.func if isinstance(decorator, ast.Call) else decorator
    names: list[str] = []
    while isinstance(node, ast.Attribute):
        names.insert(0, node.attr)
        node = node.value
    return [node.id, *names] if isinstance(node, ast.Name) else names


def _is_autouse(decorator: ast.expr) -> bool:
    """Tell whether pytest uses a fixture for every test."""
    return isinstance(decorator, ast.Call) and any(
        each.arg == "autouse"
        and not (isinstance(each.value, ast.Constant) and not each.value.value)
        for each in decorator.keywords
    )


def _takes(function: ast.FunctionDef | ast.AsyncFunctionDef, count: int) -> bool:
    """Tell whether a function can be called with `count` positional arguments."""
    arguments = function.args
    most = len(arguments.posonlyargs) + len(arguments.args)
    fits = most - len(arguments.defaults) <= count <= most
    return fits and all(default is not None for default in arguments.kw_defaults)


def is_name(node: ast.AST, name: str) -> bool:
    """Tell whether an expression is this name."""
    return isinstance(node, ast.Name) and node.id == name


def arguments_of(call: ast.Call) -> list[ast.expr]:
    """Return the arguments of a call, those by position first."""
    return [*call.args, *(keyword.value for keyword in call.keywords)]
