"""Parsed test code: the setup, the tests, and the steps to run after a test's statements.

Tests come from the trainer. Length and nesting are bounded, so a text that breaks the parser cannot
break the service.
"""

from __future__ import annotations

import ast
import re
import warnings
from collections.abc import Iterator, Sequence
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
    known = {node.name for node in setup.body if isinstance(node, _DEFINITIONS)}
    tests = tuple(
        Test(text, tree, tuple(_run_steps(tree, called, known, entry_point)))
        for text, tree in zip(grader.tests, trees, strict=True)
    )
    return Suite(grader.setup, setup, tests, entry_point, nodes)


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
    tree: ast.Module, mentioned: set[str], known: set[str], entry_point: str | None
) -> Iterator[RunStep]:
    """Yield steps for the functions and TestCases that a test defines but never runs."""
    cases = []
    for node in tree.body:
        if isinstance(node, _FUNCTIONS):
            if node.name == "check" and "check" not in mentioned and "check" not in known:
                if _takes(node, 1):
                    yield ("check", "check", entry_point or "")
            elif node.name.startswith("test") and node.name not in mentioned and _takes(node, 0):
                yield ("function", node.name)
        elif isinstance(node, ast.ClassDef) and node.name not in mentioned and _is_case(node):
            cases.append(node.name)
    if cases and "unittest.main" not in mentioned and _RUNNERS.isdisjoint(mentioned):
        yield ("cases", cases)


def _is_case(node: ast.ClassDef) -> bool:
    return any(
        (isinstance(base, ast.Name) and base.id in _CASES)
        or (isinstance(base, ast.Attribute) and base.attr in _CASES)
        for base in node.bases
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
