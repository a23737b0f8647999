"""Exit detection: tells if a SystemExit is the regular end of a program, or skips later tests.

Tests may be appended to a solution. An exit in a tested function would skip these tests. So the exit must
be the last action of the program itself, in either of two ways:

- the last top-level statement exits: `sys.exit(…)`, `exit(…)`, `quit(…)`, `raise SystemExit`, or a
  call of the standard library that exits (`unittest.main()`);
- the last top-level statement is a call, `main()` or `sys.exit(main())`, also below
  `if __name__ == "__main__":`, and the called function exits by a statement from the first list.

An exit inside an assertion, an argument or a deeper call is rejected. Instructions are located in the
syntax tree by their exact positions; before Python 3.11, which lacks these, by their
line, which then must hold a single call.
"""

from __future__ import annotations

import ast
import os
import traceback
import types
from typing import TYPE_CHECKING, Any

_LIBRARY = os.path.dirname(traceback.__file__) + os.sep
_EXITS = ("sys.exit", "exit", "quit", "SystemExit")
_HAS_POSITIONS = hasattr(types.CodeType, "co_positions")

if TYPE_CHECKING:
    Place = tuple[Any, ...]


def ends_program(error: SystemExit, source: str, code: types.CodeType) -> bool:
    """Tell whether this exit, with code 0, is the end of the program with the top level `code`."""
    places = _places(error, code)
    if not 1 <= len(places) <= 2:
        return False
    try:
        tree = compile(source, "", "exec", ast.PyCF_ONLY_AST, dont_inherit=True)
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return False
    assert isinstance(tree, ast.Module)
    first, last = (_at(place, tree) for place in (places[0], places[-1]))
    if len(places) == 2:
        return first <= _last_calls(tree.body) and last <= _exits(tree)
    return first <= _last_calls(tree.body) or first <= _exits(tree.body[-1])


def _at(place: Place, tree: ast.Module) -> set[Place]:
    """Return the positions of all nodes possibly executed at this place."""
    if _HAS_POSITIONS:
        return {place}
    nodes = [node for node in ast.walk(tree) if isinstance(node, (ast.Call, ast.Raise))]
    return {_place(node) for node in nodes if (node.lineno,) == place} or {place}


def _places(error: SystemExit, code: types.CodeType) -> list[Place]:
    """Return the positions of the program's own frames, from the top level to the raising frame.

    The list is empty if code outside the program and the standard library took part.
    """
    entry = error.__traceback__
    while entry is not None and entry.tb_frame.f_code is not code:
        entry = entry.tb_next
    places = []
    while entry is not None:
        at = entry.tb_frame.f_code
        if at.co_filename == code.co_filename:
            places.append(_executed(at, entry.tb_lasti, entry.tb_lineno))
        elif not at.co_filename.startswith((_LIBRARY, "<frozen ")):
            return []
        entry = entry.tb_next
    return places


def _executed(code: types.CodeType, offset: int, line: int) -> Place:
    """Return the position of the instruction at this offset, or its line."""
    return tuple(list(code.co_positions())[offset // 2]) if _HAS_POSITIONS else (line,)


def _exits(tree: ast.AST) -> set[Place]:
    """Return the positions of statements below `tree` consisting of an exit."""
    found = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Raise) and _name(node.exc) == "SystemExit":
            found.add(_place(node))
            if isinstance(node.exc, ast.Call):
                found.add(_place(node.exc))
        elif isinstance(node, ast.Expr) and _is_exit(node.value):
            found.add(_place(node.value))
    return found


def _last_calls(body: list[ast.stmt]) -> set[Place]:
    """Return the positions of calls in the last statement: `main()`, also in `sys.exit(main())`."""
    last = body[-1]
    if isinstance(last, ast.If):
        return _last_calls(last.body) | (_last_calls(last.orelse) if last.orelse else set())
    if isinstance(last, ast.Try) and not last.orelse and not last.finalbody:
        return _last_calls(last.body)
    value = last.exc if isinstance(last, ast.Raise) else getattr(last, "value", None)
    if not isinstance(value, ast.Call):
        return set()
    inner = value.args if _is_exit(value) else []
    return {_place(value), *(_place(part) for part in inner if isinstance(part, ast.Call))}


def _is_exit(node: ast.AST | None) -> bool:
    return isinstance(node, ast.Call) and _name(node) in _EXITS


def _name(node: ast.AST | None) -> str:
    target = node.func if isinstance(node, ast.Call) else node
    if isinstance(target, ast.Attribute) and isinstance(target.value, ast.Name):
        return f"{target.value.id}.{target.attr}"
    return target.id if isinstance(target, ast.Name) else ""


def _place(node: ast.stmt | ast.expr) -> Place:
    return node.lineno, node.end_lineno, node.col_offset, node.end_col_offset
