"""Mutation operators: the possible faults of a file, each as a replacement of a piece of its text.

Left out are docstrings, annotations, decorators, imports, `__all__`, log calls, formatted strings
(their positions are wrong before Python 3.12) and code for type checkers alone. An assignment is
deleted only where its name is bound elsewhere too, and an attribute's nowhere in `__init__`: any
test would notice a NameError.
"""

from __future__ import annotations

import ast
import re
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass

from mutants.mutant import Mutant, content_hash, occurrence

COMPARISONS: dict[type[ast.cmpop], tuple[str, tuple[str, ...]]] = {
    ast.Eq: ("==", ("!=",)),
    ast.NotEq: ("!=", ("==",)),
    ast.Lt: ("<", ("<=", ">=")),
    ast.LtE: ("<=", ("<", ">")),
    ast.Gt: (">", (">=", "<=")),
    ast.GtE: (">=", (">", "<")),
    ast.In: ("in", ("not in",)),
    ast.NotIn: (r"not\s+in", ("in",)),
    ast.Is: ("is", ("is not",)),
    ast.IsNot: (r"is\s+not", ("is",)),
}
"""Operator → its pattern and its replacements: "not  in" matches the one of NotIn."""
ARITHMETIC: dict[type[ast.operator], tuple[str, str]] = {
    ast.Add: (r"\+", "-"),
    ast.Sub: ("-", "+"),
    ast.Mult: (r"\*", "//"),
    ast.Div: ("/", "*"),
    ast.FloorDiv: ("//", "*"),
    ast.Mod: ("%", "*"),
    ast.Pow: (r"\*\*", "*"),
    ast.BitOr: (r"\|", "&"),
    ast.BitAnd: ("&", "|"),
    ast.BitXor: (r"\^", "|"),
    ast.LShift: ("<<", ">>"),
    ast.RShift: (">>", "<<"),
}
"""Operator → its pattern and its replacement: "+" matches the one of Add, as does that of "+="."""
LOGGERS = frozenset(["log", "logger", "logging", "texts_log", "warnings"])
TYPING_CALLS = frozenset(["cast", "NewType", "TypeVar", "ParamSpec", "getLogger"])
UNREACHED_CONDITIONS = frozenset(["TYPE_CHECKING", "__name__ == '__main__'"])
Function = ast.FunctionDef | ast.AsyncFunctionDef


@dataclass(frozen=True, slots=True)
class Change:
    """A piece of the text by the positions of a node or between two, and its replacement."""

    operator: str
    start: int
    end: int
    after: str


@dataclass(frozen=True, slots=True)
class Scope:
    """The function around a node; its names with the number of their bindings."""

    name: str
    bindings: Counter[str]
    returns_bool: bool


class Finder:
    """All changes of one text."""

    def __init__(self, source: str) -> None:
        self.source = source
        self.lines = source.split("\n")
        self._starts = [0]
        for line in self.lines:
            self._starts.append(self._starts[-1] + len(line) + 1)

    def changes(self) -> Iterator[Change]:
        yield from self._below(ast.parse(self.source), None)

    def position(self, offset: int) -> tuple[int, int]:
        """The line, from 1, and the column, from 0, of a character."""
        number = next(i for i, start in enumerate(self._starts) if start > offset)
        return number, offset - self._starts[number - 1]

    def _offset(self, line: int, utf8_column: int) -> int:
        text = self.lines[line - 1].encode()[:utf8_column].decode()
        return self._starts[line - 1] + len(text)

    def _start(self, node: ast.expr | ast.stmt) -> int:
        return self._offset(node.lineno, node.col_offset)

    def _end(self, node: ast.expr | ast.stmt) -> int:
        assert node.end_lineno is not None
        assert node.end_col_offset is not None
        return self._offset(node.end_lineno, node.end_col_offset)

    def _whole(self, operator: str, node: ast.expr | ast.stmt, after: str) -> Change:
        return Change(operator, self._start(node), self._end(node), after)

    def _between(
        self, operator: str, start: int, end: int, pattern: str, after: str
    ) -> Iterator[Change]:
        """The operator in the text between two operands, which may hold parentheses too."""
        found = re.search(pattern, self.source[start:end])
        if found and "#" not in self.source[start : start + found.start()]:
            yield Change(operator, start + found.start(), start + found.end(), after)

    def _below(self, node: ast.AST, scope: Scope | None) -> Iterator[Change]:
        if isinstance(node, Function):
            for default in [*node.args.defaults, *node.args.kw_defaults]:
                if isinstance(default, ast.Constant):
                    yield from self._constant("default", default)
                elif default is not None:
                    yield from self._below(default, scope)
            scope = _scope_of(node)
        yield from self._of_expression(node, scope)
        yield from self._of_statement(node, scope)
        for child in _children(node):
            yield from self._below(child, scope)

    def _of_expression(self, node: ast.AST, scope: Scope | None) -> Iterator[Change]:
        match node:
            case ast.Compare():
                sides = [node.left, *node.comparators]
                for left, operator, right in zip(sides, node.ops, sides[1:], strict=False):
                    pattern, replacements = COMPARISONS[type(operator)]
                    for after in replacements:
                        yield from self._between(
                            "comparison", self._end(left), self._start(right), pattern, after
                        )
            case ast.BoolOp():
                pattern, after = ("and", "or") if isinstance(node.op, ast.And) else ("or", "and")
                for left, right in zip(node.values, node.values[1:], strict=False):
                    yield from self._between(
                        "boolean", self._end(left), self._start(right), pattern, after
                    )
            case ast.UnaryOp(op=ast.Not()):
                start = self._start(node)
                yield from self._between("not", start, self._end(node), r"not\s*", "")
            case ast.UnaryOp(op=ast.USub()):
                start = self._start(node)
                yield from self._between("arithmetic", start, self._end(node), "-", "")
            case ast.BinOp() if scope or not isinstance(node.op, ast.BitOr):
                pattern, after = ARITHMETIC[type(node.op)]
                yield from self._between(
                    "arithmetic", self._end(node.left), self._start(node.right), pattern, after
                )
            case ast.Constant():
                yield from self._constant("constant", node)
            case ast.IfExp():
                yield from self._condition(node.test)
            case ast.comprehension():
                for test in node.ifs:
                    yield from self._condition(test)

    def _of_statement(self, node: ast.AST, scope: Scope | None) -> Iterator[Change]:
        match node:
            case ast.If() if not _is_unreached(node.test):
                yield from self._condition(node.test)
            case ast.While() if not isinstance(node.test, ast.Constant):
                yield self._whole("condition", node.test, "False")
            case ast.match_case(guard=ast.expr() as guard):
                yield from self._condition(guard)
            case ast.Break():
                yield self._whole("loop", node, "continue")
            case ast.Continue():
                yield self._whole("loop", node, "break")
            case ast.AugAssign():
                pattern, after = ARITHMETIC[type(node.op)]
                yield from self._between(
                    "arithmetic", self._end(node.target), self._start(node.value), pattern, after
                )
        if scope is not None and isinstance(node, ast.stmt):
            yield from self._deleted(node, scope)

    def _deleted(self, node: ast.stmt, scope: Scope) -> Iterator[Change]:
        match node:
            case ast.Return(value=None) | ast.Raise() | ast.Assert() | ast.AugAssign():
                yield self._whole("deletion", node, "pass")
            case ast.Return(value=ast.expr() as value):
                if not _is_none(value):
                    yield self._whole("return", value, "None")
                if scope.returns_bool:
                    yield self._whole("return", value, f"not ({self._text(value)})")
            case ast.Expr(value=ast.Call() | ast.Await()) if not _is_log_call(node.value):
                yield self._whole("deletion", node, "pass")
            case ast.Assign(targets=[target]) | ast.AnnAssign(target=target, value=ast.expr()):
                if isinstance(target, ast.Attribute | ast.Subscript):
                    if scope.name != "__init__":
                        yield self._whole("deletion", node, "pass")
                elif isinstance(target, ast.Name) and scope.bindings[target.id] > 1:
                    yield self._whole("deletion", node, "pass")
                elif isinstance(target, ast.Name) and node.value and not _is_none(node.value):
                    yield self._whole("assignment", node.value, "None")

    def _condition(self, test: ast.expr) -> Iterator[Change]:
        if not isinstance(test, ast.Constant):
            yield self._whole("condition", test, "True")
            yield self._whole("condition", test, "False")

    def _constant(self, operator: str, node: ast.Constant) -> Iterator[Change]:
        match node.value:
            case bool(value):
                yield self._whole(operator, node, str(not value))
            case int(value):
                yield self._whole(operator, node, str(value + 1))
                if value > 0:
                    yield self._whole(operator, node, str(value - 1))
            case float(value):
                yield self._whole(operator, node, repr(value + 1))
            case str(value):
                yield self._whole(operator, node, '""' if value else '"mutant"')
            case bytes(value):
                yield self._whole(operator, node, 'b""' if value else 'b"mutant"')

    def _text(self, node: ast.expr) -> str:
        return self.source[self._start(node) : self._end(node)]


def _scope_of(function: Function) -> Scope:
    bindings = Counter(
        [
            *(
                part.id
                for part in ast.walk(function)
                if isinstance(part, ast.Name) and _binds(part)
            ),
            *(part.arg for part in ast.walk(function.args) if isinstance(part, ast.arg)),
        ]
    )
    returns_bool = isinstance(function.returns, ast.Name) and function.returns.id == "bool"
    return Scope(function.name, bindings, returns_bool)


def _binds(name: ast.Name) -> bool:
    return isinstance(name.ctx, ast.Store)


def _is_none(node: ast.expr) -> bool:
    return isinstance(node, ast.Constant) and node.value is None


def _is_log_call(node: ast.AST) -> bool:
    return (
        isinstance(node, ast.Call)
        and isinstance(node.func, ast.Attribute)
        and ast.unparse(node.func.value).split(".")[-1] in LOGGERS
    )


def _is_unreached(test: ast.expr) -> bool:
    return ast.unparse(test).split(".")[-1] in UNREACHED_CONDITIONS


def _called_name(node: ast.Call) -> str:
    return ast.unparse(node.func).split(".")[-1]


def _children(node: ast.AST) -> list[ast.AST]:
    """The parts of a node in which faults count."""
    match node:
        case ast.JoinedStr() | ast.Import() | ast.ImportFrom():
            return []
        case ast.Expr(value=ast.Constant()):
            return []
        case ast.Subscript(value=ast.Name(id="Literal")):
            return []
        case ast.Assign(targets=[ast.Name(id="__all__" | "__slots__")]):
            return []
        case ast.FunctionDef() | ast.AsyncFunctionDef() | ast.ClassDef():
            return [*node.body]
        case ast.AnnAssign():
            return [node.value] if node.value else []
        case ast.If() if _is_unreached(node.test):
            return [*node.orelse]
        case ast.Call() if _is_log_call(node) or _called_name(node) in TYPING_CALLS:
            return []
        case ast.Call(func=ast.Name(id="isinstance")):
            return [*node.args[:1]]
    return [*ast.iter_child_nodes(node)]


def mutants_of(path: str, source: str) -> list[Mutant]:
    """All mutants of one file, in the order of their places."""
    finder = Finder(source)
    mutants = []
    for change in finder.changes():
        line, column = finder.position(change.start)
        text = finder.lines[line - 1]
        before = source[change.start : change.end]
        if before != change.after:
            mutants.append(
                Mutant(
                    *(path, line, column, change.operator, before, change.after, text),
                    occurrence(finder.lines, line - 1),
                )
            )
    return sorted(set(mutants), key=lambda m: (m.line, m.column, m.operator, m.after))


def is_sound(mutant: Mutant, source: str) -> bool:
    """Return True if the mutated text is a program, and a different program."""
    try:
        changed = ast.parse(mutant.applied(source))
        compile(changed, mutant.path, "exec", dont_inherit=True)
    except SyntaxError:
        return False
    return ast.dump(changed) != ast.dump(ast.parse(source))


def sample(sources: dict[str, str], count: int, seed: int) -> list[Mutant]:
    """`count` mutants, one for each of as many lines; each line with mutants is equally likely.

    The order by chance depends on the seed and on the text of each line: a change elsewhere keeps the
    sample.
    """
    by_line: dict[str, list[Mutant]] = {}
    for path, source in sources.items():
        for mutant in mutants_of(path, source):
            place = content_hash(seed, path, mutant.line_text, mutant.line_occurrence)
            by_line.setdefault(place, []).append(mutant)
    mutants: list[Mutant] = []
    for place in sorted(by_line):
        if len(mutants) == count:
            break
        for mutant in sorted(by_line[place], key=lambda m: content_hash(place, m.name)):
            if is_sound(mutant, sources[mutant.path]):
                mutants.append(mutant)
                break
    return mutants
