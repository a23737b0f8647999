"""Rewrites test code for the test sandbox, where the submission's objects are handles.

What a handle may be asked depends on how the tests write it, so the places are marked in the text. The
test sandbox gives test code one object, `__proctor__`:

    own(x)                   x is written as an object that the tests made: data's methods may reach it
    make(f, ...)             a class's call: its result stays an object, whatever it derives from
    compare(op, hold(), a, b)   a comparison or sum in which `b` sees the arguments of `a` as they were before
    apply(g, copies, hold(), a, b)   the same for the arguments of assertEqual, `zip`, `math.isclose`
    expecting("SystemExit")  the block expects this exception, which a submission may not raise elsewhere
"""

from __future__ import annotations

import ast
from typing import Any

from proctor_service.judge.analysis.exposure import is_exposed, may_reach, takes_copies
from proctor_service.judge.analysis.literals import NotConstant, evaluate
from proctor_service.judge.analysis.suite import Suite
from proctor_service.judge.analysis.values import DATA_ATTRIBUTES, Objects

_CONTROL = frozenset(
    (
        *("SystemExit", "KeyboardInterrupt", "GeneratorExit", "CancelledError", "SkipTest"),
        *("StopIteration", "StopAsyncIteration", "Skipped", "Failed", "Exit", "XFailed"),
    )
)
_RAISES = frozenset(["assertRaises", "assertRaisesRegex", "raises"])
_TAKES_AS_IT_IS = frozenset(
    ["isinstance", "type", "id", "print", "str", "repr", "format", "float", "int", "callable"]
)
_ASKED = ("value", "values", "iter", "ifs", "test", "operand")
"""The parts of nodes that are asked for their items or their truth."""


class NotRewritable(Exception):
    """The test code cannot be written out again."""


def rewrite(suite: Suite, objects: Objects) -> tuple[tuple[str, ...], bool]:
    """Return the setup and the tests as source text with all places marked.

    The second value tells whether any of them asks an object of the submission's for its length, items
    or truth, which it may answer as it likes. Changes the suite's trees: it is the last thing that is
    done with them. Raises NotRewritable.
    """
    for nodes in suite.nodes:  # rewriting changes what names are bound to: `for c in [C(1)]`
        for node in nodes:
            if isinstance(node, ast.expr):
                objects.is_own(node)
    texts = []
    asks = False
    for tree, text in zip(suite.trees, suite.texts, strict=True):
        rewriter = _Rewriter(objects)
        rewriter.visit(tree)
        asks |= rewriter.asks_objects
        if not rewriter.changed:
            texts.append(text)
            continue
        try:
            texts.append(ast.unparse(ast.fix_missing_locations(tree)))
        except (ValueError, RecursionError) as error:
            raise NotRewritable(str(error)) from None
    return tuple(texts), asks


def calls_carry_literals(suite: Suite, objects: Objects) -> bool:
    """Tell whether all that the tests hand to the submission are constants.

    Then what it says of them in an exception or prints is no more than it was told.
    """
    for nodes in suite.nodes:
        for node in nodes:
            if isinstance(node, ast.Call) and _hands_over(node.func, objects):
                arguments = [*node.args, *(keyword.value for keyword in node.keywords)]
                if not all(map(_is_constant, arguments)):
                    return False
            elif isinstance(node, ast.Attribute | ast.Subscript) and _may_tell(node):
                return False
    return True


def _hands_over(func: ast.expr, objects: Objects) -> bool:
    """Tell whether a call may hand its arguments to the submission itself."""
    if objects.is_own_function(func):  # what it hands on stands in its body
        return False
    if isinstance(func, ast.Attribute) and func.attr.startswith("assert"):
        return False
    return may_reach(func, objects)


def _may_tell(node: ast.Attribute | ast.Subscript) -> bool:
    """Tell whether a field is set on what may be an object of the submission's, or a key is variable."""
    if isinstance(node, ast.Subscript):
        return not isinstance(node.ctx, ast.Load)
    own = isinstance(node.value, ast.Name) and node.value.id in ("self", "cls")
    return not (isinstance(node.ctx, ast.Load) or own)


def _is_constant(node: ast.expr) -> bool:
    try:
        evaluate(node, {})
    except NotConstant:
        return False
    return True


def _helper(name: str, *arguments: ast.expr) -> ast.Call:
    target = ast.Attribute(ast.Name("__proctor__", ast.Load()), name, ast.Load())
    return ast.Call(target, list(arguments), [])


class _Rewriter(ast.NodeTransformer):
    def __init__(self, objects: Objects) -> None:
        self._objects = objects
        self.changed = False
        self.asks_objects = False

    def _own(self, node: ast.expr, own: bool) -> ast.expr:
        self.changed |= own
        self.asks_objects |= own
        return _helper("own", node) if own else node

    def _is_own(self, node: ast.expr) -> bool:
        return self._objects.is_own(node)

    def visit_JoinedStr(self, node: ast.JoinedStr) -> ast.AST:
        """Leave format strings alone: older Pythons cannot write all of them out again."""
        return node

    def visit_Attribute(self, node: ast.Attribute) -> ast.AST:
        own = node.attr in DATA_ATTRIBUTES and (
            self._is_own(node.value) or self._objects.is_class(node.value)
        )
        self.generic_visit(node)
        node.value = self._own(node.value, own)
        return node

    def _visit_query(self, node: Any) -> Any:
        """Visit a node that asks some of its parts for items or for their truth."""
        parts = {name: getattr(node, name) for name in _ASKED if hasattr(node, name)}
        own = {
            name: [self._is_own(each) for each in (part if isinstance(part, list) else [part])]
            for name, part in parts.items()
        }
        self.generic_visit(node)
        for name, marks in own.items():
            part = getattr(node, name)
            if isinstance(part, list):
                part[:] = [self._own(*each) for each in zip(part, marks, strict=True)]
            else:
                setattr(node, name, self._own(part, marks[0]))
        return node

    visit_Subscript = visit_Starred = visit_BoolOp = _visit_query
    visit_For = visit_AsyncFor = visit_comprehension = _visit_query
    visit_Assert = visit_If = visit_While = visit_IfExp = _visit_query

    def visit_Assign(self, node: ast.Assign) -> ast.AST:
        unpacks = isinstance(node.targets[0], ast.Tuple | ast.List)
        return self._visit_query(node) if unpacks else self.generic_visit(node)

    def visit_UnaryOp(self, node: ast.UnaryOp) -> ast.AST:
        negates = isinstance(node.op, ast.Not)
        return self._visit_query(node) if negates else self.generic_visit(node)

    def visit_Call(self, node: ast.Call) -> ast.AST:
        makes = self._objects.is_class(node.func)
        own = [self._takes_own(node.func) and self._is_own(each) for each in node.args]
        expected = _names_of_control(node.args[0]) if self._is_raises(node) else []
        held = self._is_exposed_call(node)
        copies = held and takes_copies(node.func, self._objects)
        self.generic_visit(node)
        node.args = [self._own(*each) for each in zip(node.args, own, strict=True)]
        if expected and len(node.args) > 1:
            self.changed = True
            names = ast.Tuple([ast.Constant(name) for name in expected], ast.Load())
            node.args[1] = _helper("expecting_call", names, node.args[1])
        if makes:
            self.changed = True
            made = _helper("make", node.func, *node.args)
            made.keywords = node.keywords
            return made
        if held:
            self.changed = True
            applied = _helper("apply", node.func, ast.Constant(copies), _helper("hold"), *node.args)
            applied.keywords = node.keywords
            return applied
        return node

    def _takes_own(self, func: ast.expr) -> bool:
        """Tell whether arguments of a call are looked into: by a built-in, or by assertTrue."""
        if isinstance(func, ast.Name):
            return func.id not in _TAKES_AS_IT_IS and self._objects.is_builtin(func)
        return isinstance(func, ast.Attribute) and func.attr in ("assertTrue", "assertFalse")

    def _is_raises(self, node: ast.Call) -> bool:
        func = node.func
        return isinstance(func, ast.Attribute) and func.attr in _RAISES and bool(node.args)

    def _is_exposed_call(self, node: ast.Call) -> bool:
        """Tell whether one argument gives the submission what another reads, in a comparing call."""
        func, objects = node.func, self._objects
        if not (takes_copies(func, objects) or objects.is_own_function(func)):
            return False
        return is_exposed([*node.args, *(each.value for each in node.keywords)], objects)

    def visit_Compare(self, node: ast.Compare) -> ast.AST:
        identity = any(isinstance(op, ast.Is | ast.IsNot) for op in node.ops)
        sides = [node.left, *node.comparators]
        held = not identity and is_exposed(sides, self._objects)
        self.generic_visit(node)
        if not held:
            return node
        self.changed = True
        names: list[ast.expr] = [ast.Constant(type(op).__name__) for op in node.ops]
        name = names[0] if len(names) == 1 else ast.Tuple(names, ast.Load())
        return _helper("compare", name, _helper("hold"), node.left, *node.comparators)

    def visit_BinOp(self, node: ast.BinOp) -> ast.AST:
        held = is_exposed([node.left, node.right], self._objects)
        self.generic_visit(node)
        if not held:
            return node
        self.changed = True
        return _helper(
            "compare", ast.Constant(type(node.op).__name__), _helper("hold"), node.left, node.right
        )

    def _expecting(self, node: Any, names: list[str]) -> Any:
        """Visit a statement, and let its body expect exceptions of control flow."""
        self.generic_visit(node)
        if names:
            self.changed = True
            expecting = _helper("expecting", *(ast.Constant(name) for name in names))
            node.body = [ast.With([ast.withitem(expecting, None)], node.body)]
        return node

    def _visit_try(self, node: Any) -> Any:
        names = [
            name
            for handler in node.handlers
            if handler.type is not None
            for name in _names_of_control(handler.type)
        ]
        return self._expecting(node, names)

    visit_Try = visit_TryStar = _visit_try

    def _visit_with(self, node: Any) -> Any:
        names = [
            name
            for item in node.items
            if isinstance(item.context_expr, ast.Call) and self._is_raises(item.context_expr)
            for name in _names_of_control(item.context_expr.args[0])
        ]
        return self._expecting(node, names)

    visit_With = visit_AsyncWith = _visit_with


def _names_of_control(node: ast.expr) -> list[str]:
    """Return the classes of control flow that an `except` or `raises` names."""
    parts = node.elts if isinstance(node, ast.Tuple) else [node]
    found = []
    for part in parts:
        name = part.attr if isinstance(part, ast.Attribute) else getattr(part, "id", "")
        if name in _CONTROL:
            found.append(name)
    return found
