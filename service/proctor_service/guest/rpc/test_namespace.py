"""Globals of test code: its own names, and the submission's imports and definitions."""

from __future__ import annotations

import ast
import builtins
from typing import Any

from .test_endpoint import TestEndpoint

# Importing these modules has side effects.
_NEVER_IMPORTED = frozenset(
    [
        *("antigravity", "this", "idlelib", "turtledemo", "turtle", "tkinter", "test", "lib2to3"),
        *("__main__", "ensurepip", "venv", "solution"),
    ]
)


class Namespace(dict):  # type: ignore[type-arg]
    """Globals of test code; names of the submission are requested on use.

    Import statements of the submission (``imports``) run on use, too. They replace no built-in
    name, and a failing import binds nothing.
    """

    def __init__(self, side: TestEndpoint, names: frozenset[str], imports: list[str]) -> None:
        super().__init__({"__name__": "__main__", "__builtins__": builtins})
        self._side = side
        self._names = names
        self._imports = _bindings(imports)

    def __missing__(self, name: str) -> Any:
        statement = self._imports.pop(name, None)
        if statement is not None and not hasattr(builtins, name):
            found: dict[str, Any] = {}
            try:
                exec(statement, found)
            except BaseException:
                found.clear()
            if name in found:
                self[name] = found[name]
                return found[name]
        if name not in self._names:
            raise KeyError(name)
        try:
            value = self._side.ask("name", name)
        except LookupError:
            raise KeyError(name) from None
        return self._side.named(value, name)


def _bindings(statements: list[str]) -> dict[str, str]:
    """Map each bound name to its import statement."""
    found: dict[str, str] = {}
    for statement in statements:
        for node in _statements(statement):
            if isinstance(node, ast.ImportFrom):
                modules = [node.module or ""]
            elif isinstance(node, ast.Import):
                modules = [alias.name for alias in node.names]
            else:
                continue
            tops = [module.partition(".")[0] for module in modules]
            if any(top in _NEVER_IMPORTED or top[:1] in ("_", "") for top in tops):
                continue
            for alias in node.names:
                name = alias.asname or alias.name.partition(".")[0]
                found[name] = statement
    return found


def import_statements(source: str) -> list[str]:
    """Return the top-level import statements of a source text."""
    lines = source.splitlines()
    found = []
    for node in _statements(source):
        if isinstance(node, (ast.Import, ast.ImportFrom)):
            text = ast.get_source_segment(source, node)
            found.append(text if text is not None else lines[node.lineno - 1])
    return found


def _statements(source: str) -> list[ast.stmt]:
    try:
        return ast.parse(source).body
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return []
