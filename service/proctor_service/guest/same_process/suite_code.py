"""Test code for the submission's globals: compiled before the submission, run test by test."""

from __future__ import annotations

import ast
import importlib.util
import os
import types
from collections.abc import Iterable, Iterator
from typing import Any

from .. import function_calls, script
from ..unittest_runs import Cases


class Unusable(Exception):
    """Exception for invalid tests; the message gives the reason."""


class Test:
    """Code of a test, and the functions or classes to run after its statements.

    `needed`: names of the modules imported by the test at top level.
    """

    def __init__(self, name: str, tree: ast.Module, run: Iterable[Any] = ()) -> None:
        self.needed = {each.partition(".")[0] for each in _imported(tree.body)}
        _assert_alone(tree)
        try:
            self._code = compile(tree, name, "exec", dont_inherit=True)
            self._run = [_compiled(*each) for each in run]
        except (*script.UNCOMPILABLE, TypeError) as error:
            raise Unusable(f"{name}: {type(error).__name__}: {error}") from None

    def codes(self) -> Iterator[types.CodeType]:
        """Iterate over all code objects of the test."""
        todo = [self._code, *(e for _, _, e in self._run if isinstance(e, types.CodeType))]
        while todo:
            code = todo.pop()
            yield code
            todo += [each for each in code.co_consts if isinstance(each, types.CodeType)]

    def run(self, namespace: dict[str, Any], cases: Cases) -> None:
        """Run the statements, then the listed functions or classes; exceptions propagate."""
        exec(self._code, namespace)
        for kind, what, entry in self._run:
            if kind == "cases":
                cases.run([namespace[name] for name in what])
            elif kind == "check":
                _drive(namespace[what](_candidate(entry, namespace)))
            else:
                _drive(namespace[what]())


def _candidate(entry: types.CodeType | list[str] | None, namespace: dict[str, Any]) -> Any:
    """Return the entry point, or the submission's last function; built-in functions are left out."""
    if entry is None:
        return function_calls.last_function(namespace)
    if isinstance(entry, list):
        return function_calls.either(entry[0], namespace)
    if entry.co_names[0] not in namespace:
        raise NameError(f"name {entry.co_names[0]!r} is not defined")
    return eval(entry, namespace)


def compile_tests(before: str, setup: str, tests: list[dict[str, Any]]) -> list[Test]:
    """Compile both parts of the setup, and the tests. Raises Unusable for invalid Python."""
    parts = [Test("<setup>", _parse("setup", text)) for text in (before, setup)]
    for index, test in enumerate(tests):
        parts.append(Test(f"<test {index}>", _parse(f"test {index}", test["source"]), test["run"]))
    return parts


def check_imports(tests: list[Test]) -> None:
    """Raise Unusable if Python and the working directory lack a module needed by the tests."""
    for name in sorted({name for test in tests for name in test.needed}):
        brought = name == "solution" or any(map(os.path.lexists, (name, f"{name}.py")))
        if not brought and importlib.util.find_spec(name) is None:
            raise Unusable(f"No module named {name!r}")


def _parse(name: str, text: str) -> ast.Module:
    try:
        return ast.parse(text)
    except script.UNCOMPILABLE as error:
        raise Unusable(f"{name}: {type(error).__name__}: {error}") from None


def _compiled(kind: str, what: Any, entry: Any = "") -> tuple[str, Any, Any]:
    if entry and type(entry) is str:
        entry = compile(entry, "<entry point>", "eval", dont_inherit=True)
    return kind, what, entry or None


def _assert_alone(tree: ast.Module) -> None:
    """Turn a test of a single expression into an assertion."""
    if len(tree.body) == 1 and isinstance(tree.body[0], ast.Expr):
        value = tree.body[0].value
        if isinstance(value, (ast.Compare, ast.BoolOp, ast.UnaryOp)):
            tree.body[0] = ast.copy_location(ast.Assert(value, None), tree.body[0])


def _imported(statements: list[ast.stmt]) -> Iterator[str]:
    """Iterate over the full names of the modules imported by these statements."""
    for node in statements:
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
            yield node.module


def _drive(result: Any) -> None:
    if isinstance(result, types.CoroutineType):
        import asyncio  # imported here: slow to import, and most runs need no event loop

        asyncio.run(result)
