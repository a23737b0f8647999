"""Resolution of names in test code: which names are the submission's.

Only the tests, the setup and `entry_point` decide. A name that test code reads and neither defines nor
imports is a built-in, or else the submission's, whatever library has the same name. The entry point is
the submission's in any case.
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
import sys
import typing
import warnings
from collections.abc import Iterable
from dataclasses import dataclass

from proctor_service.errors import InvalidTask
from proctor_service.judge.analysis.suite import Suite

_ALWAYS = frozenset(
    ["__name__", "__file__", "__doc__", "__builtins__", "__annotations__", "__module__"]
)
_BUILTINS = frozenset(dir(builtins))
_STAR_MODULES = (
    *(typing, math, collections, itertools, functools, heapq, bisect, string, operator, datetime),
)


@dataclass(frozen=True, slots=True)
class Names:
    """The submission's names in a suite, and the classes of which tests make an object for one call.

    `fresh`: `Solution` in `Solution().f(1)`.
    """

    submission: frozenset[str]
    fresh: frozenset[str] = frozenset()


def star_names(module: str) -> frozenset[str] | None:
    """Return the names that `from module import *` binds, or None for other modules."""
    for known in _STAR_MODULES:
        if known.__name__ == module:
            public = getattr(known, "__all__", None)
            return frozenset(public or (name for name in dir(known) if name[0] != "_"))
    return None


def names_of(suite: Suite) -> frozenset[str]:
    """Return the submission's names. Raises InvalidTask for text that parses but does not compile."""
    loaded, bound = _globals_of(suite.texts)
    for nodes in suite.nodes:
        for node in nodes:
            if isinstance(node, ast.ImportFrom) and node.names[0].name == "*":
                bound |= star_names(node.module or "") or frozenset()
    entry = entry_name(suite.entry_point)
    return frozenset(loaded - bound - _ALWAYS - _BUILTINS).union([entry] if entry else [])


def setup_before(suite: Suite, submission: frozenset[str]) -> str:
    """Return the setup if it needs no name of the submission, else its first statements that need none.

    It runs before the submission, in its globals. What a statement of the rest binds is not there yet.
    """
    if not suite.setup_text.strip():
        return ""
    lines = suite.setup_text.splitlines(keepends=True)
    for statement in suite.setup.body:
        read = {node.id for node in ast.walk(statement) if isinstance(node, ast.Name)}
        if read & submission:
            return "".join(lines[: first_line(statement) - 1])
    return suite.setup_text


def first_line(statement: ast.stmt) -> int:
    """Return the number of a statement's first line, that of its first decorator if there is one."""
    decorators: list[ast.expr] = getattr(statement, "decorator_list", [])
    return min([statement.lineno, *(each.lineno for each in decorators)])


def entry_name(entry_point: str | None) -> str:
    """Return the global name in an entry point, as `Solution` in `Solution().f`; "" if missing."""
    return (entry_point or "").partition(".")[0].removesuffix("()")


def looks_like_class(name: str) -> bool:
    """Tell whether a name is written like a class: true for `Stack`, false for `stack`, `LIMIT`."""
    stripped = name.lstrip("_")
    return stripped[:1].isupper() and (len(stripped) == 1 or not stripped.isupper())


def is_standard(module: str) -> bool:
    """Tell whether a module is in the standard library, or is numpy, pytest or `__future__`."""
    top = module.partition(".")[0]
    return top in sys.stdlib_module_names or top in ("numpy", "pytest", "__future__")


def _globals_of(texts: Iterable[str]) -> tuple[set[str], set[str]]:
    loaded: set[str] = set()
    bound: set[str] = set()
    for text in texts:
        for table in _tables(_symbols_of(text)):
            top = table.get_type() == "module"
            for symbol in table.get_symbols():
                at_module = top or symbol.is_declared_global()
                if symbol.is_referenced() and (top or symbol.is_global()):
                    loaded.add(symbol.get_name())
                if at_module and (symbol.is_assigned() or symbol.is_imported()):
                    bound.add(symbol.get_name())
    return loaded, bound


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
