"""Parts of a setup: statements for before the submission, and statements with a need of its names."""

from __future__ import annotations

import ast
import builtins
from collections.abc import Sequence
from dataclasses import dataclass, field

from proctor_service.judge.analysis.names import star_names
from proctor_service.judge.analysis.suite import children_of

# Some built-ins reach names which the text does not tell.
_BUILTINS = {name for name in dir(builtins) if not name.startswith("__")} - {
    *("compile", "dir", "eval", "exec", "globals", "locals", "vars")
}
_SUBMISSION = ("solution", "__main__")  # modules with the submission's names
_SCOPES = frozenset(
    [
        *(ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef, ast.Lambda),
        *(ast.ListComp, ast.SetComp, ast.DictComp, ast.GeneratorExp),
    ]
)
_NAMED = frozenset(
    kind for kind in vars(ast).values() if {"name", "rest"} & {*getattr(kind, "_fields", ())}
) - {ast.alias}
"""Definitions, handlers of exceptions, and patterns: `case [a, *b]`, `case {**c}`."""


def split_setup(text: str, statements: Sequence[ast.stmt]) -> tuple[str, str]:
    """Return the setup's text in two parts: for before the submission, and for behind.

    The first part ends before the first load of a global name other than built-ins and names of the
    setup. Lines keep their numbers. `statements`: of the text.
    """
    text = text.replace("\r\n", "\n").replace("\r", "\n")
    names = [_Names.of(statement) for statement in statements]
    usable_names = _BUILTINS.union(*(each.bound for each in names))
    for statement, each in zip(statements, names, strict=True):
        if not each.loaded - each.local <= usable_names:
            lines = text.split("\n")
            line, column = _start(statement, lines)
            before = "\n".join([*lines[:line], lines[line][:column]])
            return before, "\n".join([*[""] * line, lines[line][column:], *lines[line + 1 :]])
    return text, ""


def _start(statement: ast.stmt, lines: list[str]) -> tuple[int, int]:
    """Return the line of a statement, from 0, and its first character in the line."""
    decorators = getattr(statement, "decorator_list", None)
    if decorators:
        return decorators[0].lineno - 1, 0
    line = statement.lineno - 1
    return line, len(lines[line].encode()[: statement.col_offset].decode())


@dataclass(slots=True)
class _Names:
    """Names of a statement: bound at module level, bound in an inner scope, and loaded."""

    bound: set[str] = field(default_factory=set)
    local: set[str] = field(default_factory=set)
    loaded: set[str] = field(default_factory=set)

    @classmethod
    def of(cls, statement: ast.stmt) -> _Names:
        found = cls()
        todo: list[tuple[ast.AST, set[str]]] = [(statement, found.bound)]
        while todo:
            node, into = todo.pop()
            found._add(node, into)
            into = found.local if type(node) in _SCOPES else into
            todo += [(each, into) for each in children_of(node) if type(each) is not ast.Constant]
        return found

    def _add(self, node: ast.AST, into: set[str]) -> None:
        if type(node) is ast.Name:
            (self.loaded if isinstance(node.ctx, ast.Load) else into).add(node.id)
        elif isinstance(node, ast.arg):
            self.local.add(node.arg)
        elif isinstance(node, ast.Global):
            self.bound.update(node.names)
        elif isinstance(node, (ast.Import, ast.ImportFrom)):
            modules = [getattr(node, "module", None), *(each.name for each in node.names)]
            if not {*_SUBMISSION}.isdisjoint(modules[: 1 if modules[0] else None]):
                self.loaded.add("import of the submission")  # never known
            if modules[1] == "*":
                into.update(star_names(modules[0] or "") or ())
            into.update((each.asname or each.name).partition(".")[0] for each in node.names)
        elif type(node) in _NAMED:
            names = (getattr(node, "name", None), getattr(node, "rest", None))
            into.update(name for name in names if name is not None)
