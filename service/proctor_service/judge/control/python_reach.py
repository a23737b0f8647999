"""Statements of Python tests with a certain run in every pass of the tests.

A function passes only by its return. So the statements directly in its body are certain, before the
first possible return. The same holds at the top level of a module, for functions
called there, and for a loop over a literal table with a plain body.
"""

from __future__ import annotations

import ast
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

Function = ast.FunctionDef | ast.AsyncFunctionDef
_FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef)
_DEFINITIONS = (*_FUNCTIONS, ast.ClassDef, ast.Lambda)
_PLAIN = (ast.Assign, ast.AnnAssign, ast.AugAssign, ast.Expr, ast.Assert, ast.Pass)
_LEAVES = (ast.Return, ast.Yield, ast.YieldFrom)
_ASYNC_CASES = frozenset(["unittest.IsolatedAsyncioTestCase"])
_CASES = _ASYNC_CASES | {"unittest.TestCase"}
_NOT_COLLECTED = frozenset(["__init__", "__new__", "__test__"])
_RUNS_OF_CASES = frozenset(["run", "debug", "fail", "countTestCases", "id"])


Column = tuple[ast.expr, ...]


@dataclass(frozen=True, slots=True)
class Block:
    """Statements of a scope, each with a certain run.

    `scope`: the function, or None for the top level. `case`: the first parameter of a TestCase's method.
    `columns`: for each name bound by a literal table, the expressions of its column.
    """

    statements: tuple[ast.stmt, ...]
    scope: Function | None = None
    case: str | None = None
    columns: Mapping[str, Column] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Definitions:
    """Bound names of modules with a common namespace, with the number of bindings of each."""

    counts: Counter[str]

    @classmethod
    def of(cls, trees: Iterable[ast.AST]) -> Definitions:
        """Return the names bound anywhere in trees, also in functions."""
        return cls(Counter(name for tree in trees for name in bound_names(tree)))

    def is_once(self, name: str) -> bool:
        """Return True if a single place binds a name."""
        return self.counts[name] == 1


def bound_names(tree: ast.AST) -> Iterator[str]:
    """Yield the names bound or deleted by a tree; without parameters."""
    for node in ast.walk(tree):
        match node:
            case ast.Name(id=name, ctx=ast.Store() | ast.Del()):
                yield name
            case (
                ast.FunctionDef(name=name)
                | ast.AsyncFunctionDef(name=name)
                | ast.ClassDef(name=name)
            ):
                yield name
            case ast.alias(name=name, asname=asname):
                yield asname or name.partition(".")[0]
            case ast.ExceptHandler(name=str(name)) | ast.MatchAs(name=str(name)):
                yield name
            case ast.MatchStar(name=str(name)) | ast.MatchMapping(rest=str(name)):
                yield name
            case ast.Global(names=names) | ast.Nonlocal(names=names):
                yield from names


def certain(body: Sequence[ast.stmt]) -> list[ast.stmt]:
    """Return the statements before the first possible exit of a function."""
    found: list[ast.stmt] = []
    for statement in body:
        if isinstance(statement, ast.Raise | ast.Return) or _has_own(statement, _LEAVES):
            break
        found.append(statement)
    return found


def is_generator(function: Function) -> bool:
    """Return True if a call of a function only makes a generator."""
    return any(_has_own(statement, (ast.Yield, ast.YieldFrom)) for statement in function.body)


def _has_own(statement: ast.stmt, kinds: tuple[type[ast.AST], ...]) -> bool:
    """Return True for a statement with a node of these kinds outside of its inner functions."""
    todo: list[ast.AST] = [statement]
    while todo:
        node = todo.pop()
        if isinstance(node, kinds):
            return True
        if not isinstance(node, _DEFINITIONS):
            todo += ast.iter_child_nodes(node)
    return False


def blocks_of(
    body: Sequence[ast.stmt],
    scope: Function | None,
    tables: Mapping[str, ast.expr],
    case: str | None = None,
    columns: Mapping[str, Column] | None = None,
) -> Iterator[Block]:
    """Yield the certain statements of a body, and of its loops over literal tables.

    `tables`: literals by their names in loops.
    """
    statements = certain(body)
    columns = columns or {}
    yield Block(tuple(statements), scope, case, columns)
    for statement in statements:
        match statement:
            case ast.For(target=target, iter=rows, body=inner):
                if isinstance(rows, ast.Name):
                    rows = tables.get(rows.id, rows)
                is_plain = all(isinstance(each, _PLAIN) for each in inner)
                if is_plain and column_of(rows, None):
                    yield Block(tuple(inner), scope, case, {**columns, **columns_of(target, rows)})


def columns_of(target: ast.expr, rows: ast.expr) -> dict[str, Column]:
    """Return the column of each name in a loop's target."""
    names = target.elts if isinstance(target, ast.Tuple | ast.List) else None
    found = {}
    for number, each in enumerate([target] if names is None else names):
        if isinstance(each, ast.Name):
            found[each.id] = column_of(rows, None if names is None else (number, len(names)))
    return found


def column_of(rows: ast.expr, place: tuple[int, int] | None) -> Column:
    """Return a column of a literal list, empty for other tables.

    `place`: number of the column and of all columns; None for a table of single values. Rows such
    as `pytest.param(..)`, which are calls, are left out.
    """
    if not isinstance(rows, ast.List | ast.Tuple):
        return ()
    if any(isinstance(each, ast.Starred) for each in rows.elts):
        return ()
    plain = [each for each in rows.elts if not isinstance(each, ast.Call)]
    if place is None:
        return tuple(plain)
    number, width = place
    column = []
    for row in plain:
        if not isinstance(row, ast.Tuple | ast.List) or len(row.elts) != width:
            return ()
        if any(isinstance(each, ast.Starred) for each in row.elts):
            return ()
        column.append(row.elts[number])
    return tuple(column)


def runs_all_cases(statement: ast.stmt, full_name: Mapping[str, str]) -> bool:
    """Tell whether a statement is `unittest.main()`: without arguments, a failed test fails all."""
    match statement:
        case ast.Expr(value=ast.Call(func=function, args=[], keywords=more)):
            is_plain = all(each.arg == "verbosity" for each in more)
            return is_plain and dotted(function, full_name) == "unittest.main"
    return False


def called_at_top(body: Sequence[ast.stmt]) -> set[str]:
    """Return the functions called by plain statements below their definition, as `test_a()`."""
    defined: set[str] = set()
    called: set[str] = set()
    for statement in body:
        match statement:
            case ast.FunctionDef(name=name):
                defined.add(name)
            case ast.Expr(value=ast.Call(func=ast.Name(id=name))) if name in defined:
                called.add(name)
    return called


def methods_of_case(
    node: ast.ClassDef, full_name: Mapping[str, str], definitions: Definitions
) -> Iterator[Function]:
    """Yield the test methods of a plain `unittest.TestCase`."""
    if node.decorator_list or node.keywords or len(node.bases) != 1:
        return
    base = dotted(node.bases[0], full_name)
    if base not in _CASES or not definitions.is_once(node.name):
        return
    bound = {name for statement in node.body for name in _directly_bound(statement)}
    if bound & _RUNS_OF_CASES:
        return
    for method in _methods(node):
        is_run = base in _ASYNC_CASES or isinstance(method, ast.FunctionDef)
        if is_run and len(method.args.args) == 1 and not method.decorator_list:
            yield method


def methods_of_plain_class(node: ast.ClassDef, definitions: Definitions) -> Iterator[Function]:
    """Yield the test methods of a collected class without inheritance."""
    if node.decorator_list or node.keywords or not definitions.is_once(node.name):
        return
    if any(not (isinstance(each, ast.Name) and each.id == "object") for each in node.bases):
        return
    bound = {name for statement in node.body for name in _directly_bound(statement)}
    if node.name.startswith("Test") and not bound & _NOT_COLLECTED:
        yield from _methods(node)


def _methods(node: ast.ClassDef) -> Iterator[Function]:
    counts = Counter(name for statement in node.body for name in _directly_bound(statement))
    for method in node.body:
        if not isinstance(method, _FUNCTIONS) or not method.name.startswith("test"):
            continue
        if counts[method.name] == 1 and not is_generator(method):
            yield method


def _directly_bound(statement: ast.stmt) -> Iterator[str]:
    """Yield the names bound by a statement in its own scope; more in doubt."""
    if isinstance(statement, (*_FUNCTIONS, ast.ClassDef)):
        yield statement.name
    else:
        yield from bound_names(statement)


def dotted(node: ast.expr, full_name: Mapping[str, str]) -> str:
    """Return the full name of an imported object, or an empty text."""
    match node:
        case ast.Name(id=name):
            return full_name.get(name, "")
        case ast.Attribute(value=ast.Name(id=name), attr=attr) if name in full_name:
            return f"{full_name[name]}.{attr}"
    return ""
