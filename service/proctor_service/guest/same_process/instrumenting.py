"""Instrumentation of test code: comparisons and assertions call `comparison_policy.Comparing`.

The syntax tree gets method calls on a text constant, the mark. After compilation, `embed` replaces
the constant by the object itself. No name leads to the object, so the submission cannot find or
replace the object.
"""

from __future__ import annotations

import ast
import types
from typing import Any

_COMPARED: set[type[ast.cmpop]] = {
    ast.Eq, ast.NotEq, ast.Lt, ast.LtE, ast.Gt, ast.GtE, ast.In, ast.NotIn
}  # fmt: skip
_COMPREHENSIONS = (ast.ListComp, ast.SetComp, ast.DictComp, ast.GeneratorExp, ast.ClassDef)


def embed(code: types.CodeType, mark: str, value: object) -> types.CodeType:
    """Return the code with `value` in place of the mark."""
    constants: Any = tuple(
        embed(each, mark, value)
        if isinstance(each, types.CodeType)
        else value
        if type(each) is str and each == mark
        else each
        for each in code.co_consts
    )
    return code.replace(co_consts=constants)


class Instrument(ast.NodeTransformer):
    """Transformer that instruments a syntax tree in place.

    `numpy`: also check call arguments and operands. `builtin`: names that must mean the builtins.
    """

    def __init__(self, mark: str, numpy: bool, builtin: frozenset[str]) -> None:
        self._builtin = builtin
        self._mark = mark
        self._numpy = numpy
        self._scopes_without_names = 0
        self._chains = 0

    def _call(self, node: ast.AST, method: str, *operands: ast.expr) -> ast.Call:
        mark = ast.copy_location(ast.Constant(self._mark), node)
        function = ast.copy_location(ast.Attribute(mark, method, ast.Load()), node)
        return ast.copy_location(ast.Call(function, [*operands], []), node)

    def generic_visit(self, node: ast.AST) -> ast.AST:
        """Count the enclosing scopes in which an assignment expression cannot bind a name."""
        here = isinstance(node, _COMPREHENSIONS)
        self._scopes_without_names += here
        super().generic_visit(node)
        self._scopes_without_names -= here
        return node

    def visit_Name(self, node: ast.Name) -> ast.AST:
        if node.id not in self._builtin or not isinstance(node.ctx, ast.Load):
            return node
        return self._call(node, "named", ast.copy_location(ast.Constant(node.id), node))

    def visit_Assert(self, node: ast.Assert) -> ast.AST:
        self.generic_visit(node)
        node.test = self._call(node.test, "holds", node.test)
        return node

    def visit_Compare(self, node: ast.Compare) -> ast.AST:
        self.generic_visit(node)
        if any(type(each) not in _COMPARED for each in node.ops):
            return node
        if len(node.ops) == 1:
            return self._compare(node, node.ops[0], node.left, node.comparators[0])
        return node if self._scopes_without_names else self._chain(node)

    def _compare(
        self, node: ast.AST, operator: ast.cmpop, left: ast.expr, right: ast.expr
    ) -> ast.Call:
        symbol = ast.copy_location(ast.Constant(type(operator).__name__), node)
        return self._call(node, "compare", symbol, left, right)

    def _chain(self, node: ast.Compare) -> ast.AST:
        """Rewrite `a < b < c` as `a < (x := b) and x < c`."""
        left = node.left
        parts: list[ast.expr] = []
        for index, (operator, right) in enumerate(zip(node.ops, node.comparators)):
            following = right
            if index < len(node.ops) - 1:
                self._chains += 1
                name = f"_compared_{self._chains}"
                target = ast.copy_location(ast.Name(name, ast.Store()), node)
                right = ast.copy_location(ast.NamedExpr(target, right), node)
                following = ast.copy_location(ast.Name(name, ast.Load()), node)
            parts.append(self._compare(node, operator, left, right))
            left = following
        return ast.copy_location(ast.BoolOp(ast.And(), parts), node)

    def visit_BinOp(self, node: ast.BinOp) -> ast.AST:
        self.generic_visit(node)
        if self._numpy:
            node.left = self._call(node.left, "plain", node.left)
            node.right = self._call(node.right, "plain", node.right)
        if isinstance(node.op, ast.Sub):
            return self._call(node, "subtract", node.left, node.right)
        return node

    def visit_Call(self, node: ast.Call) -> ast.AST:
        self.generic_visit(node)
        if self._numpy:
            node.args = [
                each if isinstance(each, ast.Starred) else self._call(each, "plain", each)
                for each in node.args
            ]
            for keyword in node.keywords:
                if keyword.arg is not None:
                    keyword.value = self._call(keyword.value, "plain", keyword.value)
        return node

    def visit_Await(self, node: ast.Await) -> ast.AST:
        self.generic_visit(node)
        node.value = self._call(node.value, "awaited", node.value)
        return node
