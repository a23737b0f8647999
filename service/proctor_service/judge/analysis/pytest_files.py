"""Test files without a test for pytest, decided from their text alone."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator, Mapping

from proctor_service.guest.same_process.pytest_reporter import configures, files_to_collect
from proctor_service.judge.python_source import syntax_tree

# Of most files, one that says `def test_it` or `async def testIt` needs no syntax tree.
_TEST = re.compile(r"\bdef[ \t]+test")
# Settings, and hooks of a conftest.py, with which pytest may find tests elsewhere:
# `python_functions = check_*`, `addopts = --doctest-modules`, `-p plugin`, `def pytest_collect_file`.
_ELSEWHERE = re.compile(r"python_(?:files|classes|functions)|doctest|-p\b|plugins|def[ \t]+pytest_")
_DOCUMENTS = (".txt", ".rst")  # may hold doctests
_DYNAMIC = frozenset(["exec", "globals", "setattr", "vars", "type", "__getattr__", "load_tests"])


def has_no_test(files: Mapping[str, str]) -> bool:
    """Return True if pytest finds no test in a grader's files, whatever the submission does.

    False wherever the text cannot tell: hooks, names of tests by settings, doctests, classes that may
    inherit tests, names that another module or a call binds.
    """
    texts = dict(files)
    if any(path.endswith(_DOCUMENTS) for path in texts):
        return False
    if any(configures(path) and _ELSEWHERE.search(text) for path, text in texts.items()):
        return False
    collected = [texts[path[2:]] for path in files_to_collect(texts)]
    return not any(map(_TEST.search, collected)) and not any(map(_may_have_test, collected))


def _may_have_test(text: str) -> bool:
    try:
        return any(map(_may_be_test, ast.walk(syntax_tree(text))))
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return True


def _may_be_test(node: ast.AST) -> bool:
    if isinstance(node, ast.ClassDef) and any(_dotted(base) != "object" for base in node.bases):
        return True
    return any(
        name == "*" or name in _DYNAMIC or name[:4] in ("test", "Test") for name in _names(node)
    )


def _dotted(node: ast.expr) -> str:
    return node.id if isinstance(node, ast.Name) else ""


def _names(node: ast.AST) -> Iterator[str]:
    """Iterate over the names that a node binds, and over names that are loaded."""
    if isinstance(node, ast.Name):
        loads_test = isinstance(node.ctx, ast.Load) and node.id not in _DYNAMIC
        yield "" if loads_test else node.id
    elif isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)):
        yield node.name
    elif isinstance(node, (ast.Import, ast.ImportFrom)):
        yield from (each.asname or each.name for each in node.names)
