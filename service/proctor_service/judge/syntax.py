"""Parsing of Python source in several threads."""

from __future__ import annotations

import ast

_ATTEMPTS = 5


def syntax_tree(text: str) -> ast.Module:
    """Parse Python source. Raises what `ast.parse` raises.

    CPython 3.11 and 3.12 count the depth of a tree for all threads together: a parse that another thread's
    interrupts may end with a SystemError ("AST constructor recursion depth mismatch"). It is tried again.
    """
    for _ in range(_ATTEMPTS - 1):
        try:
            return ast.parse(text)
        except SystemError:
            continue
    return ast.parse(text)
