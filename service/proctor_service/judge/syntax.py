"""Parsing of Python source in several threads."""

from __future__ import annotations

import ast
import threading
import warnings

_ONE_AT_A_TIME = threading.Lock()
"""CPython 3.11 and 3.12 count the depth of a tree for all threads together: a parse that goes on in the
middle of another one ends with a SystemError or a RecursionError. A parse holds the interpreter's lock but
for callbacks of the collector, so waiting here costs nothing."""


def syntax_tree(text: str) -> ast.Module:
    """Parse Python source without warnings. Raises what `ast.parse` raises."""
    with _ONE_AT_A_TIME, warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return ast.parse(text)
