"""Small faults planted in a source file of Python, as SWE-smith's procedural ones."""

from __future__ import annotations

import ast
import random
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

_COMPARISONS: Mapping[type[ast.cmpop], tuple[str, str]] = {
    ast.Lt: ("<", "<="),
    ast.LtE: ("<=", "<"),
    ast.Gt: (">", ">="),
    ast.GtE: (">=", ">"),
    ast.Eq: ("==", "!="),
    ast.NotEq: ("!=", "=="),
    ast.Is: ("is", "is not"),
    ast.IsNot: ("is not", "is"),
    ast.In: ("in", "not in"),
    ast.NotIn: ("not in", "in"),
}
_OPERATORS: Mapping[type[ast.operator], tuple[str, str]] = {
    ast.Add: ("+", "-"),
    ast.Sub: ("-", "+"),
    ast.Mult: ("*", "+"),
    ast.FloorDiv: ("//", "*"),
    ast.Mod: ("%", "*"),
}


@dataclass(frozen=True, slots=True)
class Fault:
    """A changed file. `what`: in words."""

    line: int
    what: str
    text: str


class _Source:
    """A text with places by line and column, the column in bytes."""

    def __init__(self, text: str) -> None:
        self.data = text.encode()
        starts = [0]
        for line in self.data.splitlines(keepends=True):
            starts.append(starts[-1] + len(line))
        self._starts = starts

    def begin(self, node: ast.expr | ast.stmt) -> int:
        return self._starts[node.lineno - 1] + node.col_offset

    def end(self, node: ast.expr | ast.stmt) -> int:
        assert node.end_lineno is not None
        assert node.end_col_offset is not None
        return self._starts[node.end_lineno - 1] + node.end_col_offset

    def replaced(self, begin: int, end: int, new: bytes) -> str:
        return (self.data[:begin] + new + self.data[end:]).decode()

    def between(self, begin: int, end: int, old: str, new: str) -> str | None:
        """The text with the one `old` between two places replaced."""
        middle = self.data[begin:end]
        if middle.count(old.encode()) != 1:
            return None
        changed = middle.replace(old.encode(), new.encode())
        return self.replaced(begin, end, changed)


def faults_of(text: str, seed: int, within: str = "") -> list[Fault]:
    """All small faults of the functions of a text that compile, shuffled. `within`: a name of a function."""
    tree, source = ast.parse(text), _Source(text)
    found = []
    for function in ast.walk(tree):
        if not isinstance(function, ast.FunctionDef | ast.AsyncFunctionDef):
            continue
        if within and function.name != within:
            continue
        for statement in function.body:
            for node in ast.walk(statement):
                for what, changed in _changes(node, source):
                    if changed is not None and changed != text and _compiles(changed):
                        line = getattr(node, "lineno", function.lineno)
                        found.append(Fault(line, f"{function.name}: {what}", changed))
    unique = list({each.text: each for each in found}.values())
    random.Random(seed).shuffle(unique)
    return unique


def _changes(node: ast.AST, source: _Source) -> Iterator[tuple[str, str | None]]:
    match node:
        case ast.Compare(left=left, ops=[operator], comparators=[right]):
            old, new = _COMPARISONS[type(operator)]
            text = source.between(source.end(left), source.begin(right), old, new)
            yield f"{old} is {new}", text
        case ast.BinOp(left=left, op=operator, right=right) if type(operator) in _OPERATORS:
            old, new = _OPERATORS[type(operator)]
            yield f"{old} is {new}", source.between(source.end(left), source.begin(right), old, new)
        case ast.BoolOp(op=operator, values=[first, second]):
            old, new = ("and", "or") if isinstance(operator, ast.And) else ("or", "and")
            text = source.between(source.end(first), source.begin(second), old, new)
            yield f"{old} is {new}", text
        case ast.Constant(value=bool(value)):
            text = source.replaced(source.begin(node), source.end(node), str(not value).encode())
            yield f"{value} is {not value}", text
        case ast.Constant(value=int(value)):
            text = source.replaced(source.begin(node), source.end(node), str(value + 1).encode())
            yield f"{value} is {value + 1}", text
        case ast.UnaryOp(op=ast.Not(), operand=operand):
            inner = source.data[source.begin(operand) : source.end(operand)]
            text = source.replaced(source.begin(node), source.end(node), b"(" + inner + b")")
            yield "not is dropped", text
        case ast.AugAssign() | ast.Expr(value=ast.Call()) | ast.Raise() | ast.Continue():
            yield (
                "a line is dropped",
                source.replaced(source.begin(node), source.end(node), b"pass"),
            )
        case ast.Return(value=ast.expr()):
            text = source.replaced(source.begin(node), source.end(node), b"return None")
            yield "nothing is returned", text


def _compiles(text: str) -> bool:
    try:
        compile(text, "changed.py", "exec", dont_inherit=True)
    except (SyntaxError, ValueError):
        return False
    return True
