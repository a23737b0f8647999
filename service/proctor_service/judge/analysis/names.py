"""Resolution of names in test code: which names are the submission's.

Only the tests, the setup and `entry_point` decide. A name read, but not defined or imported, by test code
is a built-in, or else the submission's, even with the same name as a library. The entry point is the
submission's in any case.
"""

from __future__ import annotations

import ast
import bisect
import builtins
import collections
import datetime
import functools
import heapq
import itertools
import math
import operator
import string
import symtable
import typing
import warnings
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from proctor_service.errors import InvalidTask
from proctor_service.judge.analysis.suite import Source, Suite

_ALWAYS = frozenset(
    ["__name__", "__file__", "__doc__", "__builtins__", "__annotations__", "__module__"]
)
_BUILTINS = frozenset(dir(builtins))
_STAR_MODULES = (
    *(typing, math, collections, itertools, functools, heapq, bisect, string, operator, datetime),
)


@dataclass(frozen=True, slots=True)
class Names:
    """The submission's names in a suite, and the classes with objects made for a single call.

    `fresh`: `Solution` in `Solution().f(1)`.
    """

    submission: frozenset[str]
    fresh: frozenset[str] = frozenset()


def star_names(module: str) -> frozenset[str] | None:
    """Return the names bound by `from module import *`, or None for other modules."""
    for star_module in _STAR_MODULES:
        if star_module.__name__ == module:
            public = getattr(star_module, "__all__", None)
            return frozenset(public or (name for name in dir(star_module) if name[0] != "_"))
    return None


def names_of(suite: Suite) -> frozenset[str]:
    """Return the submission's names. Raises InvalidTask for text that parses but does not compile."""
    loaded, bound = _globals_of(suite)
    entry = entry_name(suite.entry_point)
    return frozenset(loaded - bound - _ALWAYS - _BUILTINS).union([entry] if entry else [])


def entry_name(entry_point: str | None) -> str:
    """Return the global name in an entry point, as `Solution` in `Solution().f`; "" if missing."""
    return (entry_point or "").partition(".")[0].removesuffix("()")


def looks_like_class(name: str) -> bool:
    """Tell whether a name is written like a class: true for `Stack`, false for `stack`, `LIMIT`."""
    stripped = name.lstrip("_")
    return stripped[:1].isupper() and (len(stripped) == 1 or not stripped.isupper())


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
        for top, symbol in _symbols_of(lines):
            if symbol.is_referenced() and (top or symbol.is_global()):
                loaded.add(symbol.get_name())
            at_module = top or symbol.is_declared_global()
            if at_module and (symbol.is_assigned() or symbol.is_imported()):
                bound.add(symbol.get_name())
    for nodes in suite.nodes:
        for node in nodes:
            if type(node) is ast.ImportFrom and node.names[0].name == "*":
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
"""Nodes with scopes of their own, or with names of another scope."""


def _is_future(node: ast.stmt) -> bool:
    """Return True if a statement may change the compilation of other statements."""
    return isinstance(node, ast.ImportFrom) and node.module == "__future__"


def _note_globals(nodes: Sequence[Any], loaded: set[str], bound: set[str]) -> None:
    """Add the names read and bound by a statement without inner scopes."""
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


def _symbols_of(text: str) -> Iterator[tuple[bool, symtable.Symbol]]:
    """Yield the symbols of all scopes of a text, and whether the scope is the module.

    `get_symbols` looks at all inner scopes for each name, so this function reads the underlying table.
    """
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            module: Any = symtable.symtable(text, "<tests>", "exec")
    except SyntaxError as error:  # text that parses but does not compile: `nonlocal x`
        raise InvalidTask(f"the tests are not Python: {error}") from None
    todo = [module._table]
    for table in todo:  # which grows meanwhile
        top = table is module._table
        for name, flags in table.symbols.items():
            yield top, symtable.Symbol(name, flags, module_scope=top)
        todo += table.children
