"""Which parts of an expression hand variables to the submission while other parts read them.

The submission may change a container that it is given. In `f(xs) == sorted(xs)` the right side must see
`xs` as it was before the call, or a submission that empties its argument is right about the empty list.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator, Sequence

from proctor_service.judge.analysis.values import Objects

_IDENTITY = frozenset(["assertIs", "assertIsNot"])


def may_reach(func: ast.expr, objects: Objects) -> bool:
    """Tell whether a call may run code of the submission: all but built-ins and imported modules may."""
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
    """Tell whether one part gives the submission a variable that another part reads."""
    read = [_names_in(part) for part in parts]
    for place, part in enumerate(parts):
        others: set[str] = set().union(*read[:place], *read[place + 1 :])
        if others and not others.isdisjoint(_given_in(part, objects)):
            return True
    return False


def takes_copies(func: ast.expr, objects: Objects) -> bool:
    """Tell whether a call compares values: that of a built-in, of a library, or of an assertion."""
    if isinstance(func, ast.Attribute) and func.attr.startswith("assert"):
        return func.attr not in _IDENTITY
    return not may_reach(func, objects)


def _given_in(part: ast.expr, objects: Objects) -> Iterator[str]:
    """Yield the variables that an expression hands to calls which may reach the submission."""
    for node in ast.walk(part):
        if isinstance(node, ast.Call) and may_reach(node.func, objects):
            for each in (*node.args, *(keyword.value for keyword in node.keywords)):
                yield from _names_in(each)
            yield from _given_before(node.func, objects)


def _given_before(func: ast.expr, objects: Objects) -> Iterator[str]:
    """Yield the variables that made what a method is called on, as `xs` in `c = C(xs); c.run()`."""
    while isinstance(func, ast.Attribute | ast.Subscript):
        func = func.value
        for source in objects.sources_of(func):
            if isinstance(source, ast.Call) and may_reach(source.func, objects):
                for each in (*source.args, *(keyword.value for keyword in source.keywords)):
                    yield from _names_in(each)


def _names_in(node: ast.expr) -> set[str]:
    return {each.id for each in ast.walk(node) if isinstance(each, ast.Name)}
