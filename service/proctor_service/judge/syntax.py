"""Parsing of Python source in several threads."""

from __future__ import annotations

import ast
import codeop
import threading
import warnings

_ONE_AT_A_TIME = threading.Lock()
"""CPython 3.11 and 3.12 count the depth of a tree for all threads together: a parse that goes on in the
middle of another one ends with a SystemError or a RecursionError. A parse holds the interpreter's lock but
for callbacks of the collector, so waiting here costs nothing."""
_INCOMPLETE = "incomplete input"
_ALLOW_INCOMPLETE: int = vars(codeop)["PyCF_ALLOW_INCOMPLETE_INPUT"]


class Incomplete(Exception):
    """The source ends within a statement, and is right as far as it goes."""


def syntax_tree(text: str, *, is_part: bool = False) -> ast.Module:
    """Parse Python source without warnings. Raises what `ast.parse` raises.

    `is_part`: more follows. Raises Incomplete if it has to.
    """
    flags = ast.PyCF_ONLY_AST | (_ALLOW_INCOMPLETE if is_part else 0)
    with _ONE_AT_A_TIME, warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            tree = compile(text, "<unknown>", "exec", flags, dont_inherit=True)
        except SyntaxError as error:
            if is_part and error.msg == _INCOMPLETE:
                raise Incomplete from error
            raise
    assert isinstance(tree, ast.Module)
    return tree
