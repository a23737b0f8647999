"""Doctests count with the text that the task has, also in files that the submission changed."""

import ast
import doctest
from typing import Any, Dict, Optional


def docstring_at(tree: ast.AST, names: Any) -> Optional[str]:
    """The docstring of a module (no names), class or function by its names from the outside."""
    node: Any = tree
    for name in names:
        inner = [
            each
            for each in ast.walk(node) if each is not node
            and isinstance(each, (ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef))
            and each.name == name
        ]  # fmt: skip
        if not inner:
            return None
        node = inner[0]
    return ast.get_docstring(node, clean=False)


def replace_examples(test: doctest.DocTest, texts: Dict[str, str]) -> None:
    """Put the examples of the task's text in place of those of `test`, where its file has a text."""
    text = texts.get(test.filename or "")
    if text is None:
        return
    tree = ast.parse(text)
    names = test.name.split(".")
    for start in range(len(names) + 1):  # the first names are those of the module
        docstring = docstring_at(tree, names[start:])
        if docstring is not None and (start == len(names) or is_defined(tree, names[start])):
            test.examples = doctest.DocTestParser().get_examples(docstring, test.name)
            test.docstring = docstring
            return


def is_defined(tree: Any, name: str) -> bool:
    """Return True if the module itself defines `name`."""
    return any(getattr(each, "name", None) == name for each in tree.body)
