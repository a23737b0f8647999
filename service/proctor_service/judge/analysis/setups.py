"""Parts of a setup: statements that can run before the submission, and those that need its names."""

from __future__ import annotations

import ast
import builtins
import symtable
import warnings
from collections.abc import Iterator

from proctor_service.judge.analysis.names import star_names

_BUILTINS = frozenset(name for name in dir(builtins) if not name.startswith("__"))
# Built-ins that reach names which the text does not tell.
_SEARCHING = frozenset(["compile", "dir", "eval", "exec", "globals", "locals", "vars"])
_SUBMISSION = ("solution", "__main__")  # modules with the submission's names


def split_setup(text: str) -> tuple[str, str]:
    """Return the setup's text in two parts: the part before the submission, and the part behind it.

    The first part ends before the first statement that loads a global name which is neither a built-in
    nor bound by the setup. Lines keep their numbers. A text that is not Python is the second part.
    """
    text = text.replace("\r\n", "\n").replace("\r", "\n")
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            statements = ast.parse(text).body
            known = (_bound(text) | _starred(statements) | _BUILTINS) - _SEARCHING
            lines = text.split("\n")
            starts = [_start(statement, lines) for statement in statements]
            for index, statement in enumerate(statements):
                end = starts[index + 1] if index + 1 < len(starts) else (len(lines), 0)
                if (
                    _imports_submission(statement)
                    or _loaded(_between(lines, starts[index], end)) - known
                ):
                    before = _between(lines, (0, 0), starts[index])
                    blank = "\n" * starts[index][0]
                    return before, blank + _between(lines, starts[index], (len(lines), 0))
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return "", text
    return text, ""


def _start(statement: ast.stmt, lines: list[str]) -> tuple[int, int]:
    """Return the line of a statement, from 0, and its first character in the line."""
    decorators = getattr(statement, "decorator_list", None)
    if decorators:
        return decorators[0].lineno - 1, 0
    line = statement.lineno - 1
    return line, len(lines[line].encode()[: statement.col_offset].decode())


def _between(lines: list[str], start: tuple[int, int], end: tuple[int, int]) -> str:
    part = lines[start[0] : end[0] + 1]
    if end[0] < len(lines):
        part[-1] = part[-1][: end[1]]
    part[0] = part[0][start[1] :] if part else ""
    return "\n".join(part)


def _tables(text: str) -> Iterator[symtable.SymbolTable]:
    todo = [symtable.symtable(text, "<setup>", "exec")]
    while todo:
        yield todo[-1]
        todo += todo.pop().get_children()


def _bound(text: str) -> set[str]:
    """Return the global names that a text binds."""
    return {
        symbol.get_name()
        for table in _tables(text)
        for symbol in table.get_symbols()
        if (table.get_type() == "module" or symbol.is_declared_global())
        and (symbol.is_assigned() or symbol.is_imported())
    }


def _loaded(text: str) -> set[str]:
    """Return the global names that a text loads."""
    return {
        symbol.get_name()
        for table in _tables(text)
        for symbol in table.get_symbols()
        if symbol.is_referenced() and (table.get_type() == "module" or symbol.is_global())
    }


def _starred(statements: list[ast.stmt]) -> set[str]:
    """Return the names of `from math import *`, for the modules whose names are known."""
    found: set[str] = set()
    for node in statements:
        if isinstance(node, ast.ImportFrom) and node.names[0].name == "*":
            found |= star_names(node.module or "") or frozenset()
    return found


def _imports_submission(statement: ast.stmt) -> bool:
    return any(
        (isinstance(node, ast.Import) and any(each.name in _SUBMISSION for each in node.names))
        or (isinstance(node, ast.ImportFrom) and node.module in _SUBMISSION)
        for node in ast.walk(statement)
    )
