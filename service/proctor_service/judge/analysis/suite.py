"""Parsed test code: the setup, the tests, and the steps to run after a test's statements.

Tests come from the trainer. Length and nesting are bounded, so a text breaking the parser cannot break
the service.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import accumulate, chain
from typing import TYPE_CHECKING, Any

from proctor_service.errors import InvalidTask
from proctor_service.judge.entry_points import either, normal
from proctor_service.judge.python_source import syntax_tree

if TYPE_CHECKING:
    from proctor_client.wire import AssertsGrader

_MAX_TEST_BYTES = 1 << 20
_MAX_DEPTH = 200
_SHOWN = 300
_LONGEST_CHARACTER_BYTES = 4
_LINE_END = re.compile(rb"\r\n|\r|\n")
"""Ends of lines: after `a` in `a\\r\\nb`; not the form feed in `a\\fb`."""
_NO_BRACKETS = re.compile(r"[^][(){}]+")
"""Text between brackets: `f` and `1, 2` in `f([1, 2])`."""
_PREFIXES = re.compile(r"[-+~]{2,}")
"""Operators in a row: `-+~` in `-+~1`, none in `a - b`."""
_IDLE = (
    *(ast.Module, ast.Pass, ast.Expr, ast.Constant, ast.List, ast.Tuple, ast.Set, ast.Dict),
    *(ast.Import, ast.ImportFrom, ast.alias),
)
_RUNNERS = frozenset(
    ["TextTestRunner", "defaultTestLoader", "TestLoader", "TestSuite", "makeSuite"]
)
_CASES = frozenset(["TestCase", "IsolatedAsyncioTestCase"])
# Functions that pytest calls around the tests of a module.
_AROUND_TESTS = frozenset(
    f"{when}_{part}" for when in ("setup", "teardown") for part in ("module", "function")
)
_MARKS = frozenset(["parametrize", "usefixtures", "xfail"])
"""Marks of pytest with an effect on the run of a function, or on the meaning of its result."""
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
the last function of the submission and `[name]` the target of `either`, `("function", name)` or
`("cases", [names])`."""


@dataclass(frozen=True, slots=True)
class Test:
    """A test: its text, its syntax tree, and the steps to run after its statements."""

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
    nodes: tuple[tuple[Any, ...], ...]
    """The nodes of each tree but for contexts and operators, the setup's first."""
    statements: tuple[tuple[tuple[Any, ...], ...], ...]
    """The same nodes by statement of each tree."""
    parents: dict[int, ast.AST]
    """The node around each node, by id, but for constants and the statements of a module."""

    @property
    def texts(self) -> tuple[str, ...]:
        """All source texts, the setup's first."""
        return (self.setup_text, *(test.text for test in self.tests))

    @property
    def trees(self) -> tuple[ast.Module, ...]:
        """All syntax trees, the setup's first."""
        return (self.setup, *(test.tree for test in self.tests))


@dataclass(frozen=True, slots=True)
class Source:
    """The lines of a source, as Python's parser counts them. Columns count bytes."""

    lines: tuple[bytes, ...]

    @staticmethod
    def of(text: str) -> Source:
        """Split a text into lines."""
        return Source(tuple(_LINE_END.split(text.encode("utf-8"))))

    def text_of(self, node: ast.expr) -> str:
        """Return the text of an expression for a message, at most 300 characters in one line."""
        first, last = node.lineno - 1, (node.end_lineno or node.lineno) - 1
        parts = [
            self.lines[first][node.col_offset : node.end_col_offset if first == last else None]
        ]
        size = 0
        for index in range(first + 1, last + 1):
            end = node.end_col_offset if index == last else None
            parts.append(self.lines[index][:end].strip())
            size += len(parts[-1])
            if size > _SHOWN * _LONGEST_CHARACTER_BYTES:
                break
        text = b" ".join(parts).decode("utf-8", "replace")
        return text if len(text) <= _SHOWN else text[: _SHOWN - 1] + "…"

    def lines_of(self, wanted: Sequence[ast.stmt], body: Sequence[ast.stmt]) -> str:
        """Return the lines of the wanted statements of a body.

        All lines, if another statement shares a line.
        """
        ends = [0, *(each.end_lineno or each.lineno for each in body)]
        begins = [*map(_first_line, body), len(self.lines) + 1]
        ids = set(map(id, wanted))
        found: list[bytes] = []
        for index, statement in enumerate(body):
            if id(statement) in ids:
                if begins[index] <= ends[index] or ends[index + 1] >= begins[index + 1]:
                    return b"\n".join(self.lines).decode("utf-8")
                found += self.lines[begins[index] - 1 : ends[index + 1]]
        return b"\n".join(found).decode("utf-8")


def _first_line(statement: ast.stmt) -> int:
    decorators: list[ast.expr] = getattr(statement, "decorator_list", [])
    return decorators[0].lineno if decorators else statement.lineno


def parse_suite(grader: AssertsGrader) -> Suite:
    """Parse the tests of a grader. Raises InvalidTask with the name of the part at fault."""
    entry_point = None if grader.entry_point is None else normal(grader.entry_point)
    candidate: str | list[str] = entry_point or ""
    if entry_point and grader.method == "either":
        candidate = either(entry_point)
        entry_point = candidate[0]
    setup = parse(grader.setup, "setup")
    trees = [parse(text, f"tests.{index}") for index, text in enumerate(grader.tests)]
    parents: dict[int, ast.AST] = {}
    statements = tuple(
        tuple(nodes_of(each, parents) for each in tree.body) for tree in (setup, *trees)
    )
    nodes = tuple(tuple(chain.from_iterable(each)) for each in statements)
    if all(_is_idle(node) for each in nodes[1:] for node in each):
        raise InvalidTask(
            "tests: none of them asserts or calls anything, so that any program passes"
        )
    called = _mentioned(nodes)
    setup_names = set(_definitions(setup))
    defined = _definitions(setup, *trees)
    classes = _Classes([node for tree in (setup, *trees) for node in tree.body], defined)
    found = _needs_pytest(trees, called, defined, classes)
    if found is not None:
        index, name = found
        raise InvalidTask(
            f"tests.{index} defines {name}, which only pytest runs: use the grader `pytest`"
        )
    tests = []
    for text, tree in zip(grader.tests, trees, strict=True):
        steps = _run_steps(tree, called, setup_names, classes, candidate)
        tests.append(Test(text, tree, tuple(steps)))
    return Suite(grader.setup, setup, tuple(tests), entry_point, nodes, statements, parents)


def _is_idle(node: ast.AST) -> bool:
    """Return True for a node sure to succeed without the submission: `pass`, `["f() ==
    1"]`."""
    names = [each.name for each in node.names] if isinstance(node, ast.Import) else []
    if isinstance(node, ast.ImportFrom):
        names = [node.module or ""]
    return isinstance(node, _IDLE) and "solution" not in names


def parse(text: str, name: str) -> ast.Module:
    """Parse Python source. Raises InvalidTask with the name of the part if parsing fails."""
    if len(text) > _MAX_TEST_BYTES:
        raise InvalidTask(f"{name} is longer than {_MAX_TEST_BYTES} bytes")
    if _nesting(text) > _MAX_DEPTH:
        raise InvalidTask(f"{name} is nested too deep")
    try:
        return syntax_tree(text)
    except (SyntaxError, ValueError, RecursionError, MemoryError) as error:
        raise InvalidTask(f"{name} is not Python: {error}") from None


def _nesting(text: str) -> int:
    """Return an upper bound of the nesting of brackets and prefix operators."""
    depths = accumulate(1 if each in "([{" else -1 for each in _NO_BRACKETS.sub("", text))
    return max(*map(len, _PREFIXES.findall(text)), *depths, 0, 0)


def nodes_of(tree: ast.AST, parents: dict[int, ast.AST] | None = None) -> tuple[Any, ...]:
    """Return the nodes of a tree in the order of `ast.walk`, but for contexts and operators.

    `parents` gets the node around each node but constants, by id.
    """
    found: list[Any] = [tree]
    parents = {} if parents is None else parents
    for node in found:  # which grows meanwhile
        for name in _CHILDREN[type(node)]:
            child = getattr(node, name)
            if type(child) is list:
                for each in child:
                    if each is not None:
                        found.append(each)
                        if type(each) is not ast.Constant:
                            parents[id(each)] = node
            elif isinstance(child, ast.AST):
                found.append(child)
                parents[id(child)] = node
    return tuple(found)


def children_of(node: ast.AST) -> list[Any]:
    """Return the nodes in a node, but for contexts and operators."""
    found: list[Any] = []
    for name in _CHILDREN[type(node)]:
        child = getattr(node, name)
        if type(child) is list:
            found += filter(None, child)
        elif isinstance(child, ast.AST):
            found.append(child)
    return found


_NO_NODES = frozenset(["ctx", "op", "ops", "id", "attr", "kind", "type_comment", "kwd_attrs"])
_CHILDREN: dict[type[ast.AST], tuple[str, ...]] = {
    kind: tuple(name for name in kind._fields if name not in _NO_NODES)
    for kind in vars(ast).values()
    if isinstance(kind, type) and issubclass(kind, ast.AST)
}
"""The fields of each kind of node which may hold nodes."""
_CHILDREN |= dict.fromkeys((ast.Constant, ast.Global, ast.Nonlocal), ())


_FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef)
_DEFINITIONS = (*_FUNCTIONS, ast.ClassDef)
_Definition = ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef


def _mentioned(nodes: Sequence[Sequence[Any]]) -> set[str]:
    """Return the names and attributes read by test code."""
    found: set[str] = set()
    for each in nodes:
        for node in each:
            kind = type(node)
            if kind is ast.Name:
                if type(node.ctx) is ast.Load:
                    found.add(node.id)
            elif kind is ast.Attribute:
                found.add(node.attr)
                if node.attr == "main" and is_name(node.value, "unittest"):
                    found.add("unittest.main")
            elif kind is ast.alias and node.name == "main":
                found.add("unittest.main")
    return found


def _run_steps(
    tree: ast.Module,
    mentioned: set[str],
    setup_names: set[str],
    classes: _Classes,
    candidate: str | list[str],
) -> Iterator[RunStep]:
    """Yield steps for the functions and TestCases defined, but not run, by a test."""
    cases: list[str] = []
    for node in tree.body:
        if not isinstance(node, _DEFINITIONS) or node.name in mentioned:
            continue
        if isinstance(node, ast.ClassDef):
            if classes.is_case(node):
                cases.append(node.name)
        elif node.name == "check":
            if "check" not in setup_names and _takes(node, range(1, 2)):
                yield ("check", "check", candidate)
        elif _is_test(node) and _needs_no_argument(node):
            yield ("function", node.name)
    if cases and "unittest.main" not in mentioned and _RUNNERS.isdisjoint(mentioned):
        yield ("cases", cases)


def _needs_pytest(
    trees: Sequence[ast.Module],
    mentioned: set[str],
    defined: Mapping[str, _Definition],
    classes: _Classes,
) -> tuple[int, str] | None:
    """Return a definition for pytest alone, beyond the steps, or None.

    The result is the number of its test and its name. `defined`: all definitions of the tests. The tests
    themselves run a definition with a mention among them, or with another way to find the definition.
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
            return not has_runner and classes.is_test_class(node)
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
    """Return the definitions of test code at module level; of a name the last definition."""
    return {
        node.name: node for tree in trees for node in tree.body if isinstance(node, _DEFINITIONS)
    }


def _is_decorated_by(node: _Definition, defined: Mapping[str, _Definition]) -> bool:
    """Return True if a definition has a decorator of the tests."""
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
    """Return True for a test function without marks and fixtures of influence.

    A function with a parameter other than a fixture is a helper: pytest has no value for the parameter.
    """
    arguments = node.args
    parameters = (*arguments.posonlyargs, *arguments.args, *arguments.kwonlyargs)
    is_plain = fixtures.isdisjoint(each.arg for each in parameters)
    return is_plain and _MARKS.isdisjoint(_decorators(node))


def _needs_no_argument(node: ast.FunctionDef | ast.AsyncFunctionDef) -> bool:
    """Return True if a function can be called with the arguments of `@patch` alone."""
    patched = sum("patch" in _dotted(each) for each in node.decorator_list)
    return _takes(node, range(patched + 1))


def _is_test(node: ast.FunctionDef | ast.AsyncFunctionDef) -> bool:
    """Tell whether pytest would run a function of a module or class."""
    skipped = "skip" in _decorators(node)
    return node.name.startswith("test") and not skipped and not _is_fixture(node)


def _is_fixture(node: _Definition) -> bool:
    return not isinstance(node, ast.ClassDef) and "fixture" in _decorators(node)


class _Classes:
    """The classes of test code at module level, with their inheritance.

    A base from elsewhere is unknown: the base may be a TestCase by another name.
    """

    def __init__(self, statements: Sequence[ast.stmt], defined: Mapping[str, _Definition]) -> None:
        self._nodes = [node for node in statements if isinstance(node, ast.ClassDef)]
        self._named = {
            name: node for name, node in defined.items() if isinstance(node, ast.ClassDef)
        }
        self._derived: dict[int, list[ast.ClassDef]] = {}
        for node in self._nodes:
            for name in {base.id for base in node.bases if isinstance(base, ast.Name)}:
                if name in self._named:
                    self._derived.setdefault(id(self._named[name]), []).append(node)
        self._cases = self._with_heirs(self._has_case_base)
        self._unknown = self._with_heirs(self._has_unknown_base)
        self._with_tests = self._with_heirs(_has_test)
        self._left_out = self._with_heirs(_is_left_out)

    def is_case(self, node: ast.ClassDef) -> bool:
        """Tell whether a class derives from a TestCase, also through other classes of the tests."""
        return id(node) in self._cases

    def is_test_class(self, node: ast.ClassDef) -> bool:
        """Tell whether pytest would run methods of a class, and unittest would not."""
        left_out = "skip" in _decorators(node) or id(node) in self._left_out
        is_known = node.name.startswith("Test") and id(node) not in self._unknown
        return is_known and not left_out and id(node) in self._with_tests

    def _with_heirs(self, has: Callable[[ast.ClassDef], bool]) -> set[int]:
        """Return the ids of the classes with a property, and of their heirs."""
        todo = [node for node in self._nodes if has(node)]
        found = set(map(id, todo))
        while todo:
            for each in self._derived.get(id(todo.pop()), ()):
                if id(each) not in found:
                    found.add(id(each))
                    todo.append(each)
        return found

    def _has_case_base(self, node: ast.ClassDef) -> bool:
        return any(
            (isinstance(base, ast.Name) and base.id in _CASES and base.id not in self._named)
            or (isinstance(base, ast.Attribute) and base.attr in _CASES)
            for base in node.bases
        )

    def _has_unknown_base(self, node: ast.ClassDef) -> bool:
        return not all(
            isinstance(base, ast.Name) and (base.id in self._named or base.id == "object")
            for base in node.bases
        )


def _has_test(node: ast.ClassDef) -> bool:
    return any(isinstance(part, _FUNCTIONS) and _is_test(part) for part in node.body)


def _is_left_out(node: ast.ClassDef) -> bool:
    """Return True if a class binds a name for which pytest skips all its methods."""
    bound = {part.name for part in node.body if isinstance(part, _FUNCTIONS)} | {
        target.id
        for part in node.body
        if isinstance(part, ast.Assign)
        for target in part.targets
        if isinstance(target, ast.Name)
    }
    return bool(bound & {"__init__", "__new__", "__test__"})


def _decorators(node: ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef) -> set[str]:
    """Return the last names of a definition's decorators: `skip` for `@pytest.mark.skip()`."""
    return {name for each in node.decorator_list for name in _dotted(each)[-1:]}


def _dotted(decorator: ast.expr) -> list[str]:
    """Return the names in a decorator: `mock`, `patch` and `object` for `@mock.patch.object(..)`."""
    node = decorator.func if isinstance(decorator, ast.Call) else decorator
    names: list[str] = []
    while isinstance(node, ast.Attribute):
        names.append(node.attr)
        node = node.value
    if isinstance(node, ast.Name):
        names.append(node.id)
    return names[::-1]


def _is_autouse(decorator: ast.expr) -> bool:
    """Tell whether pytest uses a fixture for every test."""
    return isinstance(decorator, ast.Call) and any(
        each.arg == "autouse"
        and not (isinstance(each.value, ast.Constant) and not each.value.value)
        for each in decorator.keywords
    )


def _takes(function: ast.FunctionDef | ast.AsyncFunctionDef, counts: range) -> bool:
    """Return True if a function can be called with any of these counts of positional arguments."""
    arguments = function.args
    most = len(arguments.posonlyargs) + len(arguments.args)
    fits = max(most - len(arguments.defaults), counts.start) <= min(most, counts.stop - 1)
    return fits and all(default is not None for default in arguments.kw_defaults)


def is_name(node: ast.AST, name: str) -> bool:
    """Tell whether an expression is this name."""
    return isinstance(node, ast.Name) and node.id == name


def arguments_of(call: ast.Call) -> list[ast.expr]:
    """Return the arguments of a call, positional arguments first."""
    return [*call.args, *(keyword.value for keyword in call.keywords)]
