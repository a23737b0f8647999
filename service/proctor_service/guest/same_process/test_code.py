"""Test code for the submission's globals: compiled before the submission, run test by test."""

from __future__ import annotations

import ast
import builtins
import importlib.util
import os
import types
from collections.abc import Iterator
from typing import Any

from .. import function_calls, script
from ..origins import Origins
from ..unittest_runs import Cases
from . import test_files
from .comparison_policy import Comparing

# Builtins that depend on their caller, or are often replaced by tests.
_DYNAMIC = frozenset((
    *("super", "locals", "globals", "vars", "dir", "eval", "exec", "compile", "open", "input", "print"),
    *("exit", "quit", "__import__", "breakpoint", "__name__", "__doc__", "__debug__"),
))  # fmt: skip
_FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef)
_IMPLIED = ("__init_subclass__", "__class_getitem__", "__new__")  # Python wraps these methods
_CATCHERS = ("raises", "assertRaises", "suppress", "expectedFailure", "assertRaisesRegex")


class Unusable(Exception):
    """Exception for invalid tests; the message gives the reason."""


class Test:
    """Code of a test, and the functions or classes to run afterwards.

    `imports`: full names of the imported modules; `needed`: the modules imported at top level,
    without which the test cannot run. `catches`: the test may catch the exception of an assertion
    itself.
    """

    def __init__(self, code: types.CodeType, run: list[tuple[Any, ...]], tree: ast.Module) -> None:
        self._code = code
        self._run = run
        self.defined = [*_defined(tree)]
        self.bound = set(_bound(tree))
        self.imports = set(test_files.imported(tree))
        self.needed = set(test_files.imported(ast.Module([*map(_import_only, tree.body)], [])))
        self.catches = any(
            isinstance(node, ast.ExceptHandler)
            or getattr(node, "attr", getattr(node, "id", "")) in _CATCHERS
            for node in ast.walk(tree)
        )

    def codes(self) -> Iterator[types.CodeType]:
        """Iterate over all code objects of the test."""
        yield self._code
        yield from (
            part for _, *parts in self._run for part in parts if isinstance(part, types.CodeType)
        )

    def execute(self, namespace: dict[str, Any]) -> None:
        """Run the statements; exceptions propagate."""
        exec(self._code, namespace)

    def run(self, namespace: dict[str, Any], cases: Cases) -> None:
        """Run the functions or classes listed for after the statements; exceptions propagate."""
        for kind, what, *more in self._run:
            if kind == "cases":
                cases.run([namespace[name] for name in what])
            elif kind == "check":
                candidate = (
                    eval(more[0], namespace) if more else function_calls.last_function(namespace)
                )
                _drive(namespace[what](candidate))
            else:
                _drive(namespace[what]())


class Definitions:
    """Functions and classes defined by the tests, to detect replacements.

    Definitions that the tests decorate or bind in another way are not checked.
    """

    def __init__(self, origins: Origins, tests: list[Test]) -> None:
        self._origins = origins
        self._rebound = {name for test in tests for name in test.bound}
        self._expected: list[tuple[str, tuple[str, ...] | None]] = []

    def add(self, test: Test) -> None:
        """Check the definitions of this test from now on."""
        self._expected += [each for each in test.defined if each[0] not in self._rebound]

    def replaced(self, namespace: dict[str, Any]) -> str | None:
        """Return the name of a definition with foreign code, or None."""
        for name, methods in self._expected:
            value = namespace.get(name)
            parts = [value]
            if methods is not None:
                members = (
                    type.__dict__["__dict__"].__get__(value) if isinstance(value, type) else {}
                )
                parts = [members.get(method) for method in methods]
            if not all(self._is_own(part) for part in parts):
                return name
        return None

    def _is_own(self, value: Any) -> bool:
        is_function = type(value) is types.FunctionType
        return is_function and self._origins.own(value.__code__, value.__globals__)


def compile_tests(setup: str, tests: list[dict[str, Any]], protect_skips: Comparing) -> list[Test]:
    """Compile the setup and the tests. Raises Unusable for invalid Python."""
    trees = [_parse("setup", setup)]
    trees += [_parse(f"test {index}", test["source"]) for index, test in enumerate(tests)]
    real = _real_builtins(trees, [entry for test in tests for entry in _entries(test["run"])])
    found = []
    for index, tree in enumerate(trees):
        name = "<setup>" if index == 0 else f"<test {index - 1}>"
        plain = ast.parse(setup if index == 0 else tests[index - 1]["source"])
        if index:
            _assert_alone(tree)
        protect_skips.into(tree, real)
        try:
            code = protect_skips.embed(compile(tree, name, "exec", dont_inherit=True))
            run = [_compiled(each) for each in (tests[index - 1]["run"] if index else ())]
        except (*script.UNCOMPILABLE, TypeError) as error:
            raise Unusable(f"{name}: {type(error).__name__}: {error}") from None
        found.append(Test(code, run, plain))
    return found


def check_imports(tests: list[Test]) -> None:
    """Raise Unusable if Python and the working directory lack a module that the tests need."""
    for name in sorted({name.partition(".")[0] for test in tests for name in test.needed}):
        brought = name == "solution" or any(map(os.path.lexists, (name, f"{name}.py")))
        if not brought and importlib.util.find_spec(name) is None:
            raise Unusable(f"No module named {name!r}")


def _parse(name: str, text: str) -> ast.Module:
    try:
        return ast.parse(text)
    except script.UNCOMPILABLE as error:
        raise Unusable(f"{name}: {type(error).__name__}: {error}") from None


def _entries(run: list[Any]) -> list[str]:
    return [str(each[2]) for each in run if each[0] == "check" and each[2]]


def _compiled(run: Any) -> tuple[Any, ...]:
    kind, what, *more = run
    return (
        kind,
        what,
        *(compile(each, "<entry point>", "eval", dont_inherit=True) for each in more if each),
    )


def _assert_alone(tree: ast.Module) -> None:
    """Turn a test of a single expression into an assertion."""
    if len(tree.body) == 1 and isinstance(tree.body[0], ast.Expr):
        value = tree.body[0].value
        if isinstance(value, (ast.Compare, ast.BoolOp, ast.UnaryOp)):
            tree.body[0] = ast.copy_location(ast.Assert(value, None), tree.body[0])


def _import_only(statement: ast.stmt) -> ast.stmt:
    is_import = isinstance(statement, (ast.Import, ast.ImportFrom))
    return statement if is_import else ast.copy_location(ast.Pass(), statement)


def _real_builtins(trees: list[ast.Module], entries: list[str]) -> frozenset[str]:
    """Return the names that mean builtins in test code, even if the submission defines them.

    A task may ask for a function with a builtin's name. Then the tests use no other name of the
    submission. If the tests use other names, the builtin is meant.
    """
    loaded: set[str] = set()
    bound: set[str] = set()
    for tree in trees:
        bound.update(_bound(tree))
        for node in ast.walk(tree):
            if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Load):
                loaded.add(node.id)
            elif isinstance(node, (*_FUNCTIONS, ast.ClassDef)):
                bound.add(node.name)
            elif isinstance(node, ast.arg):
                bound.add(node.arg)
    for entry in entries:
        loaded.update(n.id for n in ast.walk(ast.parse(entry)) if isinstance(n, ast.Name))
    known = set(vars(builtins))
    if not loaded - bound - known:
        return frozenset()
    named = {entry.partition("(")[0].partition(".")[0] for entry in entries}
    return frozenset((loaded & known) - bound - _DYNAMIC - named)


def _defined(tree: ast.Module) -> Iterator[tuple[str, tuple[str, ...] | None]]:
    """Iterate over names of undecorated functions, and of classes with their methods' names."""
    for node in tree.body:
        if isinstance(node, _FUNCTIONS) and not node.decorator_list:
            yield node.name, None
        elif isinstance(node, ast.ClassDef) and not node.decorator_list:
            plain = [each for each in node.body if isinstance(each, _FUNCTIONS)]
            names = [each.name for each in plain]
            yield (
                node.name,
                tuple(
                    each.name
                    for each in plain
                    if not each.decorator_list
                    and names.count(each.name) == 1
                    and each.name not in _IMPLIED
                ),
            )


def _bound(tree: ast.Module) -> Iterator[str]:
    """Iterate over names bound or deleted without a definition, anywhere in the code."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Name) and not isinstance(node.ctx, ast.Load):
            yield node.id
        elif isinstance(node, (ast.Import, ast.ImportFrom)):
            yield from ((each.asname or each.name).partition(".")[0] for each in node.names)
        elif isinstance(node, ast.ExceptHandler) and node.name:
            yield node.name


def _drive(result: Any) -> None:
    if isinstance(result, types.CoroutineType):
        import asyncio  # imported here: slow to import, and most runs need no event loop

        asyncio.run(result)
