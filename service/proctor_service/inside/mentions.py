"""What test code says about the names it uses: which it binds, calls, and means as classes.

The submission chooses what its names are, so a function that the tests call may come as a class, whose
objects answer comparisons. What the tests do with a name tells what they expect it to be.
"""

import ast
import builtins
from collections.abc import Iterable, Iterator
from typing import Any

_MOST_LITERALS = 200
_LITERALS = (ast.Constant, ast.UnaryOp, ast.List, ast.Tuple, ast.Set, ast.Dict)
# Methods that what a function returns may have, too.
_PLAIN_METHODS = frozenset(
    name for kind in (str, bytes, int, float, list, dict, set, tuple) for name in dir(kind)
)
# What makes code of texts and bytes, which may be the submission's.
_RUNNERS = frozenset(["eval", "exec", "compile"])
_RUNNING_MODULES = frozenset(
    [
        *("pickle", "marshal", "shelve", "dill", "cloudpickle", "joblib"),
        *("timeit", "doctest", "runpy", "code", "codeop", "subprocess"),
    ]
)
_SCOPES = (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)


class Mentions:
    """The names in test code.

    ``bases``: used as in ``math.isclose``, and in no other way. ``classes``: meant as classes, as
    ``Stack`` is in ``s = Stack()`` and ``s.push(1)``, or in ``isinstance(x, Stack)``. ``literals``:
    what things are compared with, and what functions are given. ``runs``: it makes code of what is no
    literal.
    """

    def __init__(self) -> None:
        self.loaded: set[str] = set()
        self.bound: set[str] = set()
        self.called: set[str] = set()
        self.bases: set[str] = set()
        self.classes: set[str] = set()
        self.literals: list[Any] = []
        self.runs = False


def mentions(sources: Iterable[str]) -> Mentions:
    """What the tests and their setup say."""
    found = Mentions()
    trees = [tree for tree in map(_parsed, sources) if tree is not None]
    plain: set[str] = set()
    stored: set[str] = set()
    # Which name's call a variable holds the result of.
    instances: dict[str, str] = {}
    for tree in trees:
        attributed = {id(n.value) for n in ast.walk(tree) if isinstance(n, ast.Attribute)}
        for node in ast.walk(tree):
            if isinstance(node, ast.Call) and isinstance(node.func, ast.Name):
                found.called.add(node.func.id)
            if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Load):
                (found.bases if id(node) in attributed else plain).add(node.id)
            elif isinstance(node, ast.Name):
                stored.add(node.id)
            found.runs = found.runs or _runs(node)
            found.bound.update(_bound(node))
            instances.update(_assigned(node))
    found.loaded = (found.bases | plain) - stored
    found.bases -= plain | stored
    for tree in trees:
        for node in ast.walk(tree):
            found.classes.update(_classes(node, instances))
            if isinstance(node, ast.Compare):
                found.literals += _literals([node.left, *node.comparators])
            elif isinstance(node, ast.Call):
                found.literals += _literals(node.args)
    del found.literals[_MOST_LITERALS:]
    return found


def _parsed(source: str) -> ast.Module | None:
    try:
        return ast.parse(source)
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return None


def unknown(found: Mentions) -> set[str]:
    """The names that only the submission can have."""
    return {name for name in found.loaded - found.bound if not hasattr(builtins, name)}


def _runs(node: ast.AST) -> bool:
    if isinstance(node, ast.Name):
        return node.id in _RUNNING_MODULES
    if isinstance(node, ast.Import):
        return any(alias.name.partition(".")[0] in _RUNNING_MODULES for alias in node.names)
    if isinstance(node, ast.ImportFrom):
        return (node.module or "").partition(".")[0] in _RUNNING_MODULES
    if not isinstance(node, ast.Call) or not isinstance(node.func, ast.Name):
        return False
    return node.func.id in _RUNNERS and not all(
        isinstance(part, ast.Constant) for part in node.args[:1]
    )


def _bound(node: ast.AST) -> Iterator[str]:
    if isinstance(node, ast.Name) and not isinstance(node.ctx, ast.Load):
        yield node.id
    elif isinstance(node, _SCOPES):
        yield node.name
    elif isinstance(node, ast.arg):
        yield node.arg
    elif isinstance(node, ast.ExceptHandler) and node.name:
        yield node.name
    elif isinstance(node, ast.Import | ast.ImportFrom):
        for alias in node.names:
            yield alias.asname or alias.name.partition(".")[0]


def _assigned(node: ast.AST) -> Iterator[tuple[str, str]]:
    """Variables that hold what a call of a name gave."""
    targets: list[ast.expr | None] = []
    value: ast.expr | None = None
    if isinstance(node, ast.Assign):
        targets, value = [*node.targets], node.value
    elif isinstance(node, ast.AnnAssign | ast.NamedExpr):
        targets, value = [node.target], node.value
    elif isinstance(node, ast.withitem):
        targets, value = [node.optional_vars], node.context_expr
    if isinstance(value, ast.Call) and isinstance(value.func, ast.Name):
        for target in targets:
            if isinstance(target, ast.Name):
                yield target.id, value.func.id


def _classes(node: ast.AST, instances: dict[str, str]) -> Iterator[str]:
    """The names that one node shows to be meant as classes."""
    if isinstance(node, ast.Attribute | ast.Subscript):
        if isinstance(node.value, ast.Name) and node.value.id not in instances:
            yield node.value.id
        name, direct = _instance(node.value, instances)
        special = isinstance(node, ast.Attribute) and node.attr not in _PLAIN_METHODS
        if name and (special or not direct):
            yield name
    elif isinstance(node, ast.Compare):
        sides = [node.left, *node.comparators]
        names = [_instance(side, instances)[0] for side in sides]
        yield from (name for name in names if name and names.count(name) > 1)
        yield from (side.id for side in sides if isinstance(side, ast.Name))
    elif isinstance(node, ast.ExceptHandler) and node.type is not None:
        yield from _names(node.type)
    elif isinstance(node, ast.ClassDef):
        yield from (name for base in node.bases for name in _names(base))
    elif isinstance(node, ast.Call) and isinstance(node.func, ast.Name):
        if node.func.id in ("isinstance", "issubclass"):
            yield from (name for part in node.args[1:] for name in _names(part))
        elif not hasattr(builtins, node.func.id):
            for part in node.args:
                if isinstance(part, ast.Name) and part.id in instances:
                    yield instances[part.id]


def _names(node: ast.expr) -> Iterator[str]:
    parts = node.elts if isinstance(node, ast.Tuple) else [node]
    return (part.id for part in parts if isinstance(part, ast.Name))


def _instance(node: ast.expr, instances: dict[str, str]) -> tuple[str, bool]:
    """Of which name's call an expression is the result, and whether it is the call itself."""
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Name):
        return node.func.id, True
    if isinstance(node, ast.Name):
        return instances.get(node.id, ""), False
    return "", False


def _literals(sides: Iterable[ast.expr]) -> list[Any]:
    found = []
    for side in sides:
        if isinstance(side, _LITERALS):
            try:
                found.append(ast.literal_eval(side))
            except (ValueError, TypeError, SyntaxError, MemoryError, RecursionError):
                continue
    return found
