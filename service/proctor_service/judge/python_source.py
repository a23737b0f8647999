"""Python source: its syntax tree, two sources joined, and signs of programs and of examples.

A parse holds the interpreter's lock, so a long text is parsed in parts of whole statements, and other
threads run in between. A text is parsed up to `MOST_PARSED` characters. Standard library only: the
process of long analyses imports this module.
"""

from __future__ import annotations

import ast
import builtins
import codeop
import re
import sys
import textwrap
import threading
import warnings
from collections.abc import Callable
from functools import partial

_ONE_AT_A_TIME = threading.Lock()
"""CPython 3.11 and 3.12 count the depth of a tree for all threads together: a parse going on in the
middle of another parse ends with a SystemError or a RecursionError. A parse holds the interpreter's
lock but for callbacks of the collector, so waiting here is free."""
_INCOMPLETE = "incomplete input"
_ALLOW_INCOMPLETE: int = vars(codeop)["PyCF_ALLOW_INCOMPLETE_INPUT"]


class Incomplete(Exception):
    """The source ends within a statement, and is right up to its end."""


def syntax_tree(text: str, *, is_part: bool = False) -> ast.Module:
    """Parse Python source without warnings. Raises the errors of `ast.parse`.

    `is_part`: more follows. Raises Incomplete if more must follow.
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


_INDENTED = re.compile(r"(?:\s*\n)?[ \t]{1,100}\S")  # "\n\n  x"


def tidy(block: str) -> str:
    """Return the code without blank lines around the code and without common indentation."""
    return (textwrap.dedent(block) if _INDENTED.match(block) else block).strip()


PART_CHARACTERS = 16 * 1024
MOST_PARSED = 256 * 1024
_IDLE = (ast.Pass, ast.Break, ast.Continue, ast.Return, ast.Global, ast.Nonlocal, ast.Delete)
_BLOCKS = (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)
_ERRORS = (SyntaxError, ValueError, MemoryError, RecursionError)
# A line that begins a statement at the top level: "def f():", but not "else:" or ")".
_STATEMENT = re.compile(r"^(?!(?:elif|else|except|finally)\b)[^\s#)\]}]", re.M)
_SESSION = re.compile(r"^(?:>>>|\.\.\.) ?", re.M)  # ">>> f(1)"


def is_program(text: str, *, if_too_long: bool = False) -> bool:
    """Tell whether a text parses and does more than name or compute a value: "Yes" and "42" parse, too."""
    text, start, size, does = tidy(text), 0, PART_CHARACTERS, False
    while start < len(text):
        following = _STATEMENT.search(text, start + size, MOST_PARSED)
        end = following.start() if following else len(text)
        if end > MOST_PARSED:
            return if_too_long
        try:
            tree = syntax_tree(text[start:end], is_part=end < len(text))
        except Incomplete:
            size *= 2  # the part ended within a statement, such as a text in quotes
            continue
        except _ERRORS:
            return False
        does = does or any(map(_acts, tree.body))
        start, size = end, PART_CHARACTERS
    return does


begins_as_code = partial(is_program, if_too_long=True)


def _acts(statement: ast.stmt) -> bool:
    if isinstance(statement, ast.Expr):
        return any(isinstance(node, ast.Call | ast.Lambda) for node in ast.walk(statement))
    return not isinstance(statement, _IDLE) and getattr(statement, "value", statement) is not None


def defined_names(block: str) -> frozenset[str]:
    """Return the functions and classes defined by a block at its top level."""
    try:
        return frozenset(each.name for each in syntax_tree(block).body if isinstance(each, _BLOCKS))
    except _ERRORS:
        return frozenset()


def is_example(block: str, defined: frozenset[str], *, is_named: bool) -> bool:
    """Return True for an output, and for a use of the names `defined` in other blocks.

    The class of a solution may use definitions of another block, for example the nodes of a list.
    """
    try:
        tree = syntax_tree(_SESSION.sub("", block))
    except _ERRORS:
        return not is_named  # broken code is code
    if not any(map(_acts, tree.body)):
        return True
    bound, loaded = set[str](vars(builtins)), set[str]()
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom):
            is_own = node.module not in sys.stdlib_module_names
            (loaded if is_own else bound).update(each.asname or each.name for each in node.names)
        elif isinstance(node, ast.Name) and isinstance(node.ctx, ast.Load):
            loaded.add(node.id)
        elif not isinstance(node, ast.alias):
            bound.update(getattr(node, name, None) or "" for name in ("id", "arg", "name"))
    return "Solution" not in bound - defined and not defined.isdisjoint(loaded - bound)


# `from __future__ import annotations`, and before a semicolon.
_FUTURE = re.compile(
    r"^(from[ \t]+__future__[ \t]+import[ \t]*(?:\([^()]*\)|[^\n;#]*))(?:[ \t]*;[ \t]*)?",
    re.MULTILINE,
)
_SHEBANG = re.compile(r"#![^\[\n][^\n]*(?:\n|\Z)")  # `#!/bin/bash`; not Rust's `#![allow(unused)]`

Join = Callable[[str, str], str]


def join_by(rule: Join, before: str, code: str) -> str:
    """Return a source with the contents of both, in this order, by the rule of a language."""
    if not before.strip():
        return code
    if not code.strip():
        return before
    code = _SHEBANG.sub("", code, count=1) if code.startswith("#!") else code
    return rule(before, code)


def appended(before: str, code: str) -> str:
    """Return `code` behind the other source."""
    return f"{before.rstrip()}\n{code}"


def joined(before: str, code: str) -> str:
    """Return a Python source with the contents of both: imports from `__future__` stand first."""
    return join_by(join, before, code)


def join(before: str, code: str) -> str:
    """Return a Python source with both; both must have content."""
    futures = dict.fromkeys(
        each.strip() for text in (code, before) for each in _FUTURE.findall(text)
    )
    return "\n".join([*futures, _FUTURE.sub("", before).strip("\n"), _FUTURE.sub("", code)])
