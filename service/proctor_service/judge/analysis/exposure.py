"""Detection of expressions that pass a variable to the submission and also read the variable.

The submission may change a container argument. In `f(xs) == sorted(xs)` the right operand must see
`xs` as before the call; otherwise a submission that empties its argument passes with an empty list.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator, Sequence

from proctor_service.judge.analysis.values import Objects

_IDENTITY = frozenset(["assertIs", "assertIsNot"])


def may_reach(func: ast.expr, objects: Objects) -> bool:
    """Tell whether a call may run code of the submission: only built-ins and imports may not."""
    if isinstance(func, ast.Name):
        return not (objects.is_builtin(func) or objects.is_imported(func))
    root = func
    while isinstance(root, ast.Attribute | ast.Call | ast.Subscript):
        if isinstance(root, ast.Call) and may_reach(root.func, objects):
            return True
        root = root.func if isinstance(root, ast.Call) else root.value
    if isinstance(root, ast.Name):
        return not (objects.is_builtin(root) or objects.is_imported(root))
    return not isinstance(root, ast.Constant | ast.JoinedStr)


def is_exposed(parts: Sequence[ast.expr], objects: Objects) -> bool:
    """Tell whether a part passes the submission a variable that another part reads."""
    read = [_names_in(part) for part in parts]
    for place, part in enumerate(parts):
        others: set[str] = set().union(*read[:place], *read[place + 1 :])
        if others and not others.isdisjoint(_given_in(part, objects)):
            return True
    return False


def takes_copies(func: ast.expr, objects: Objects) -> bool:
    """Tell whether a call compares values: a built-in, a library function, or an assertion."""
    if isinstance(func, ast.Attribute) and func.attr.startswith("assert"):
        return func.attr not in _IDENTITY
    return not may_reach(func, objects)


def _given_in(part: ast.expr, objects: Objects) -> Iterator[str]:
    """Yield the variables that an expression passes to calls that may run the submission."""
    for node in ast.walk(part):
        if isinstance(node, ast.Call) and may_reach(node.func, objects):
            for each in (*node.args, *(keyword.value for keyword in node.keywords)):
                yield from _names_in(each)
            yield from _given_before(node.func, objects)


def _given_before(func: ast.expr, objects: Objects) -> Iterator[str]:
    """Yield the variables used to make a method's object, as `xs` in `c = C(xs); c.run()`."""
    while isinstance(func, ast.Attribute | ast.Subscript):
        func = func.value
        for source in objects.sources_of(func):
            if isinstance(source, ast.Call) and may_reach(source.func, objects):
                for each in (*source.args, *(keyword.value for keyword in source.keywords)):
                    yield from _names_in(each)


def _names_in(node: ast.expr) -> set[str]:
    return {each.id for each in ast.walk(node) if isinstance(each, ast.Name)}
