"""Parts of a setup: statements that can run before the submission, and those that need its names."""

from __future__ import annotations

import ast
import builtins
from dataclasses import dataclass, field

from proctor_service.judge.analysis.names import star_names
from proctor_service.judge.syntax import syntax_tree

# Some built-ins reach names which the text does not tell.
_BUILTINS = {name for name in dir(builtins) if not name.startswith("__")} - {
    *("compile", "dir", "eval", "exec", "globals", "locals", "vars")
}
_SUBMISSION = ("solution", "__main__")  # modules with the submission's names
_SCOPES = (
    *(ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef, ast.Lambda),
    *(ast.ListComp, ast.SetComp, ast.DictComp, ast.GeneratorExp),
)


def split_setup(text: str) -> tuple[str, str]:
    """Return the setup's text in two parts: the part before the submission, and the part behind it.

    The first part ends before the first statement that loads a global name which is neither a built-in
    nor bound by the setup. Lines keep their numbers. A text that is not Python is the second part.
    """
    text = text.replace("\r\n", "\n").replace("\r", "\n")
    try:
        statements = syntax_tree(text).body
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return "", text
    names = [_Names.of(statement) for statement in statements]
    known = _BUILTINS.union(*(each.bound for each in names))
    for statement, each in zip(statements, names, strict=True):
        if not each.loaded - each.local <= known:
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
    """Names that a statement binds at module level or in an inner scope, and names that it loads."""

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
            into = found.local if isinstance(node, _SCOPES) else into
            todo += [(child, into) for child in ast.iter_child_nodes(node)]
        return found

    def _add(self, node: ast.AST, into: set[str]) -> None:
        if isinstance(node, ast.Name):
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
        else:  # definitions, handlers of exceptions, and patterns: `case [a, *b]`, `case {**c}`
            into.update(
                name
                for name in (getattr(node, "name", None), getattr(node, "rest", None))
                if name is not None and not isinstance(node, ast.alias)
            )
