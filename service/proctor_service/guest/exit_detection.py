"""Telling whether a SystemExit is a program's honest end, or cuts off the tests pasted behind a solution.

A tested function that leaves would skip what checks it. So the exit has to be the last act of the
program itself, in one of two ways:

- the last top-level statement leaves: `sys.exit(…)`, `exit(…)`, `quit(…)`, `raise SystemExit`, or it
  is a call of the standard library that does (`unittest.main()`);
- the last top-level statement is a call, `main()` or `sys.exit(main())`, also below
  `if __name__ == "__main__":`, and the function that it calls leaves by such a statement of its own.

Leaving out of an assertion, an argument, or anything deeper ends nothing. Instructions are found in
the syntax tree by their exact positions.
"""

import ast
import os
import traceback
import types
from typing import Any

_LIBRARY = os.path.dirname(traceback.__file__) + os.sep
_EXITS = ("sys.exit", "exit", "quit", "SystemExit")

Place = tuple[Any, ...]


def ends_program(error: SystemExit, source: str, code: types.CodeType) -> bool:
    """Tell whether this exit, with code 0, is the end of the program whose top level is `code`."""
    places = _places(error, code)
    if not 1 <= len(places) <= 2:
        return False
    try:
        tree = compile(source, "", "exec", ast.PyCF_ONLY_AST, dont_inherit=True)
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return False
    assert isinstance(tree, ast.Module)
    if len(places) == 2:
        return places[0] in _last_calls(tree.body) and places[1] in _exits(tree)
    return places[0] in _last_calls(tree.body) or places[0] in _exits(tree.body[-1])


def _places(error: SystemExit, code: types.CodeType) -> list[Place]:
    """Where the program's own frames stood, from the top level to what raised.

    Empty when others than the program and the standard library had a part in it.
    """
    entry = error.__traceback__
    while entry is not None and entry.tb_frame.f_code is not code:
        entry = entry.tb_next
    places = []
    while entry is not None:
        at = entry.tb_frame.f_code
        if at.co_filename == code.co_filename:
            places.append(tuple(list(at.co_positions())[entry.tb_lasti // 2]))
        elif not at.co_filename.startswith((_LIBRARY, "<frozen ")):
            return []
        entry = entry.tb_next
    return places


def _exits(tree: ast.AST) -> set[Place]:
    """The statements below `tree` that do nothing but leave."""
    found = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Raise) and _name(node.exc) == "SystemExit":
            found.add(_place(node))
        elif isinstance(node, ast.Expr) and _is_exit(node.value):
            found.add(_place(node.value))
    return found


def _last_calls(body: list[ast.stmt]) -> set[Place]:
    """The calls that the last statement of a body consists of: `main()`, and in `sys.exit(main())`."""
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
    return ast.unparse(target) if isinstance(target, ast.Name | ast.Attribute) else ""


def _place(node: ast.stmt | ast.expr) -> Place:
    return node.lineno, node.end_lineno, node.col_offset, node.end_col_offset
