"""Resolution of names in test code: find the submission's names, and the classes among them.

Only the tests and `entry_point` decide. If test code reads a name without binding the name at
module level, and the name is not a built-in, the name belongs to the submission. The exception is
a few modules of the standard library that tests use without an import.
"""

from __future__ import annotations

import ast
import bisect
import builtins
import collections
import datetime
import decimal
import fractions
import functools
import heapq
import itertools
import math
import operator
import string
import symtable
import sys
import typing
import warnings
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

from proctor_service.errors import InvalidTask
from proctor_service.judge.analysis.suite import Source, Suite, containing

_words = str.split
_ALWAYS = frozenset(_words("__name__ __file__ __doc__ __builtins__ __annotations__ __module__"))
_BUILTINS = frozenset(dir(builtins))
# Modules that tests use without an import, because the solution imports the module. The list omits
# modules with names that solutions often give to their own functions and objects.
_MODULES = {
    **{
        name: name
        for name in _words(
            "math cmath re random itertools collections json os sys time functools operator heapq "
            "bisect typing decimal fractions statistics datetime copy asyncio unittest numpy"
        )
    },
    "np": "numpy",
}
RUNNING = frozenset(["eval", "exec", "compile"])
"""Built-in functions that run a text as code."""
_TYPING = frozenset(
    _words("Any Callable Dict Iterable Iterator List Optional Sequence Set Tuple Union")
)
_DATA_CLASSES: dict[str, tuple[str, type]] = {
    "Counter": ("collections", collections.Counter),
    "defaultdict": ("collections", collections.defaultdict),
    "deque": ("collections", collections.deque),
    "OrderedDict": ("collections", collections.OrderedDict),
    "Decimal": ("decimal", decimal.Decimal),
    "Fraction": ("fractions", fractions.Fraction),
}


@dataclass(frozen=True, slots=True)
class Names:
    """The submission's names, the classes among these names, and imports implied by the tests."""

    submission: frozenset[str]
    classes: frozenset[str]
    imports: tuple[str, ...]


_STAR_MODULES = (
    *(typing, math, collections, itertools, functools, heapq, bisect, string, operator, datetime),
)


def star_names(module: str) -> frozenset[str] | None:
    """Return the names that `from module import *` binds, or None for other modules."""
    for known in _STAR_MODULES:
        if known.__name__ == module:
            public = getattr(known, "__all__", None)
            return frozenset(public or (name for name in dir(known) if name[0] != "_"))
    return None


def resolve(suite: Suite) -> Names:
    """Resolve the global names of a suite."""
    loaded, bound = _globals_of(suite)
    free = {name for name in loaded - bound - _ALWAYS if name not in _BUILTINS}
    entry = entry_name(suite.entry_point)
    uses = _uses_of(suite, free | {entry})
    imports = []
    for name in sorted(free - {entry}):
        statement = _implied_import(name, uses.get(name, _Uses()))
        if statement is not None:
            imports.append(statement)
            free.discard(name)
    if entry:
        free.add(entry)
    free |= _overridden_builtins(suite, free, entry)
    classes = {name for name in free if _is_class(name, uses.get(name, _Uses()))}
    return Names(frozenset(free), frozenset(classes), tuple(imports))


def entry_name(entry_point: str | None) -> str:
    """Return the global name in an entry point, as `Solution` in `Solution().f`; "" if missing."""
    return (entry_point or "").partition(".")[0].removesuffix("()")


def entry_is_class(entry_point: str | None) -> bool:
    """Tell whether an entry point is a class name: true for `Stack`, false for `Solution().f`."""
    return bool(entry_point) and "." not in entry_point and looks_like_class(entry_point)  # type: ignore[operator,arg-type]


def looks_like_class(name: str) -> bool:
    """Tell whether a name is written like a class: true for `Stack`, false for `stack`, `LIMIT`."""
    stripped = name.lstrip("_")
    return stripped[:1].isupper() and (len(stripped) == 1 or not stripped.isupper())


@dataclass(slots=True)
class _Uses:
    """Uses of a name in tests: calls compared with data, all calls, subscripts, other uses."""

    compared_calls: int = 0
    calls: int = 0
    subscripts: int = 0
    other: int = 0
    attributes: set[str] = field(default_factory=set)


def _globals_of(suite: Suite) -> tuple[set[str], set[str]]:
    loaded: set[str] = set()
    bound: set[str] = set()
    for text, statements in zip(suite.texts, suite.statements, strict=True):
        inner = []
        for nodes in statements:
            if _SCOPED.isdisjoint(map(type, nodes)) and not _is_future(nodes[0]):
                _note_globals(nodes, loaded, bound)
            else:
                inner.append(nodes[0])
        if not inner:
            continue
        lines = Source.of(text).lines_of(inner, [nodes[0] for nodes in statements])
        for table in _tables(_symbols_of(lines)):
            top = table.get_type() == "module"
            for symbol in table.get_symbols():
                at_module = top or symbol.is_declared_global()
                if symbol.is_referenced() and (top or symbol.is_global()):
                    loaded.add(symbol.get_name())
                if at_module and (symbol.is_assigned() or symbol.is_imported()):
                    bound.add(symbol.get_name())
    for nodes in suite.nodes:
        for node in nodes:
            if isinstance(node, ast.ImportFrom) and node.names[0].name == "*":
                bound |= star_names(node.module or "") or frozenset()
    return loaded, bound


_SCOPED = frozenset(
    (
        *(
            ast.FunctionDef,
            ast.AsyncFunctionDef,
            ast.ClassDef,
            ast.Lambda,
            ast.Global,
            ast.Nonlocal,
        ),
        *(ast.ListComp, ast.SetComp, ast.DictComp, ast.GeneratorExp, ast.AnnAssign),
        getattr(ast, "TypeAlias", ast.Lambda),  # of Python 3.12
    )
)
"""Nodes with scopes of their own, or with names of another one."""


def _is_future(node: ast.stmt) -> bool:
    """Tell whether a statement may change how others are compiled."""
    return isinstance(node, ast.ImportFrom) and node.module == "__future__"


def _note_globals(nodes: Sequence[Any], loaded: set[str], bound: set[str]) -> None:
    """Add the names that a statement without inner scopes reads and binds."""
    for node in nodes:
        kind = type(node)
        if kind is ast.Name:
            (loaded if type(node.ctx) is ast.Load else bound).add(node.id)
        elif kind is ast.alias:
            bound.add(node.asname or node.name.partition(".")[0])
        elif kind in (ast.ExceptHandler, ast.MatchAs, ast.MatchStar) and node.name:
            bound.add(node.name)
        elif kind is ast.MatchMapping and node.rest:
            bound.add(node.rest)


def _symbols_of(text: str) -> symtable.SymbolTable:
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            return symtable.symtable(text, "<tests>", "exec")
    except SyntaxError as error:  # text that parses but does not compile: `nonlocal x`
        raise InvalidTask(f"the tests are not Python: {error}") from None


def _tables(table: symtable.SymbolTable) -> Iterable[symtable.SymbolTable]:
    yield table
    for child in table.get_children():
        yield from _tables(child)


def _uses_of(suite: Suite, wanted: set[str]) -> dict[str, _Uses]:
    uses = {name: _Uses() for name in wanted}
    holders: dict[str, str] = {}  # variables that hold the result of a name's call
    compares: list[ast.Compare] = []  # with a call of a name that may be a class
    for nodes in suite.nodes:
        for node in nodes:
            kind = type(node)
            if kind is ast.Constant:
                continue
            if kind is ast.Name:
                if node.id in uses and type(node.ctx) is ast.Load:
                    uses[node.id].other += 1
            elif kind is ast.Call:
                _note(uses, node.func, "calls")
            elif kind is ast.Compare:
                if type(node.ops[0]) is ast.Eq and any(
                    looks_like_class(_called_name(side)) for side in _sides(node)
                ):
                    compares.append(node)
            elif kind is ast.Subscript:
                _note(uses, node.value, "subscripts")
            elif kind is ast.Attribute:
                found = _note(uses, node.value, "")
                held = node.value.id if isinstance(node.value, ast.Name) else ""
                found = found or uses.get(holders.get(held, _called_name(node.value)))
                if found is not None:
                    found.attributes.add(node.attr)
            elif kind is ast.Assign and _called_name(node.value) in _DATA_CLASSES:
                holders.update(
                    (target.id, _called_name(node.value))
                    for target in node.targets
                    if isinstance(target, ast.Name)
                )
    named = containing(suite, _is_no_builtin) if compares else set()
    for compare in compares:
        for call in _compared_with_data(_sides(compare), named):
            _note(uses, call.func, "compared_calls", taken=0)
    return uses


def _sides(node: ast.Compare) -> list[ast.expr]:
    return [node.left, *node.comparators]


def _called_name(node: ast.expr) -> str:
    """Return `f` for the call `f(..)`, otherwise ""."""
    return node.func.id if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) else ""


def _note(uses: dict[str, _Uses], node: ast.expr, what: str, taken: int = 1) -> _Uses | None:
    """Count a specific use of a name, and subtract `taken` from the count of other uses."""
    found = uses.get(node.id) if isinstance(node, ast.Name) else None
    if found is not None:
        found.other -= taken
        if what:
            setattr(found, what, getattr(found, what) + 1)
    return found


def _is_no_builtin(node: ast.AST) -> bool:
    return isinstance(node, ast.Name) and node.id not in _BUILTINS


def _compared_with_data(sides: Sequence[ast.expr], named: set[int]) -> Iterator[ast.Call]:
    """Yield the calls whose other sides are data. `named`: the expressions with other names."""
    with_names = sum(id(side) in named for side in sides)
    for side in sides:
        if isinstance(side, ast.Call) and with_names == (id(side) in named):
            yield side


def _implied_import(name: str, uses: _Uses) -> str | None:
    """Return the import that test code implies for a name, or None."""
    only_attributes = uses.attributes and not (uses.calls or uses.subscripts)
    if name in _MODULES and only_attributes:
        module = _MODULES[name]
        return f"import {module}" if module == name else f"import {module} as {name}"
    if name in _TYPING and uses.subscripts + uses.other and not (uses.calls or uses.attributes):
        return f"from typing import {name}"
    if name in _DATA_CLASSES:
        module, cls = _DATA_CLASSES[name]
        if uses.attributes <= set(dir(cls)):
            return f"from {module} import {name}"
    return None


def _overridden_builtins(suite: Suite, free: set[str], entry: str) -> set[str]:
    """Return the built-in name that a suite tests, as `sum` in `assert sum(10, 15) == 6`.

    An entry point decides alone. Otherwise the tests must use no other name that could belong to
    the submission, and the outermost calls of all asserts must use a single name.
    """
    if free or entry:
        return {entry} & _BUILTINS
    found: set[str] = set()
    for test in suite.tests:
        for node in test.tree.body:
            found |= {call.func.id for call in _outermost_calls(node)}  # type: ignore[attr-defined]
    return found if len(found) == 1 and found <= _BUILTINS - RUNNING else set()


def _outermost_calls(node: ast.stmt) -> list[ast.Call]:
    if not isinstance(node, ast.Assert):
        return []
    test = node.test
    if isinstance(test, ast.UnaryOp) and isinstance(test.op, ast.Not):
        test = test.operand
    sides = [test.left, *test.comparators] if isinstance(test, ast.Compare) else [test]
    calls = [
        side for side in sides if isinstance(side, ast.Call) and isinstance(side.func, ast.Name)
    ]
    return [call for call in calls if call.args or call.keywords]


def _is_class(name: str, uses: _Uses) -> bool:
    """Tell whether a name is a class: capitalised, and not only used as `Name(..) == data`."""
    if not looks_like_class(name):
        return False
    only_compared = uses.calls == uses.compared_calls and not (uses.attributes or uses.other)
    return not (uses.calls and only_compared)


def is_standard(module: str) -> bool:
    """Tell whether a module is in the standard library, or is numpy, pytest or `__future__`."""
    top = module.partition(".")[0]
    return top in sys.stdlib_module_names or top in ("numpy", "pytest", "__future__")
