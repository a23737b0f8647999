"""Scopes of test code, with the bindings of names and of attributes of `self`."""

from __future__ import annotations

import ast
from bisect import bisect_left
from dataclasses import dataclass, field

Function = ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda
Definition = ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef


@dataclass(slots=True)
class Binding:
    """One binding of a name: to `value`, to an item of `value`, by an import or a definition."""

    value: ast.expr | None
    item: bool = False
    imported: bool = False
    definition: Definition | None = None


class Trees:
    """The scopes of several modules that share one namespace, in their order."""

    def __init__(self) -> None:
        self.count = 0
        self._places: dict[str, list[int]] = {}
        self._bindings: dict[str, list[list[Binding]]] = {}

    def add(self, scope: Scope) -> None:
        """Add the scope of the next module."""
        for name, bindings in scope.bindings.items():
            self._places.setdefault(name, []).append(self.count)
            self._bindings.setdefault(name, []).append(bindings)
        self.count += 1

    def find(self, name: str, before: int) -> list[Binding] | None:
        """Return the bindings of a name in the last module before a place, or None."""
        index = bisect_left(self._places.get(name, ()), before)
        return self._bindings[name][index - 1] if index else None


@dataclass(slots=True)
class Scope:
    """The names of a module, class or function of the tests.

    `trees`, `place`: the modules of the tests, and the place of this one.
    """

    parent: Scope | None
    is_class: bool = False
    trees: Trees | None = None
    place: int = 0
    bindings: dict[str, list[Binding]] = field(default_factory=dict)
    attributes: dict[str, list[Binding]] = field(default_factory=dict)

    def find(self, name: str) -> list[Binding] | None:
        """Return the bindings of a name in the nearest scope with a binding, or None."""
        scope: Scope | None = self
        inner = True
        while scope is not None:
            if name in scope.bindings and (inner or not scope.is_class):
                return scope.bindings[name]
            if scope.trees is not None:
                return scope.trees.find(name, scope.place)
            scope, inner = scope.parent, False
        return None

    def own_class(self) -> Scope | None:
        """Return the class scope around a method."""
        scope: Scope | None = self
        while scope is not None and not scope.is_class:
            scope = scope.parent
        return scope


def parameters_of(function: Function) -> list[str]:
    """Return the names of a function's positional parameters."""
    arguments = function.args
    return [each.arg for each in (*arguments.posonlyargs, *arguments.args)]


class ScopeBuilder(ast.NodeVisitor):
    """Visitor that records the scope of every node, and all bindings of names."""

    def __init__(
        self,
        scope_of: dict[int, Scope],
        functions: dict[str, ast.FunctionDef | ast.AsyncFunctionDef],
    ) -> None:
        self._scope_of = scope_of
        self._functions = functions
        self._scope = Scope(None)

    def build(self, tree: ast.Module, scope: Scope) -> None:
        """Walk one module, and add its names to `scope`."""
        self._scope = scope
        self.visit(tree)

    def visit(self, node: ast.AST) -> None:
        """Record the scope of a node, and visit the node."""
        self._scope_of[id(node)] = self._scope
        super().visit(node)

    def _bind(self, target: ast.expr, value: ast.expr | None, *, item: bool = False) -> None:
        if isinstance(target, ast.Name):
            self._scope.bindings.setdefault(target.id, []).append(Binding(value, item))
        elif isinstance(target, ast.Attribute) and isinstance(target.value, ast.Name):
            around = self._scope.own_class()
            if around is not None and target.value.id in ("self", "cls"):
                around.attributes.setdefault(target.attr, []).append(Binding(value, item))
        elif isinstance(target, ast.Starred):
            self._bind(target.value, value, item=False)
        elif isinstance(target, ast.Tuple | ast.List):
            self._bind_each(target.elts, value, item)

    def _bind_each(self, targets: list[ast.expr], value: ast.expr | None, item: bool) -> None:
        same = isinstance(value, ast.Tuple | ast.List) and len(value.elts) == len(targets)
        for index, target in enumerate(targets):
            if same and not item:
                assert isinstance(value, ast.Tuple | ast.List)
                self._bind(target, value.elts[index])
            else:
                self._bind(target, value, item=value is not None)

    def visit_Assign(self, node: ast.Assign) -> None:
        for target in node.targets:
            self._bind(target, node.value)
        self.generic_visit(node)

    def visit_AnnAssign(self, node: ast.AnnAssign) -> None:
        if node.value is not None:
            self._bind(node.target, node.value)
        self.generic_visit(node)

    def visit_AugAssign(self, node: ast.AugAssign) -> None:
        self._bind(node.target, None)
        self.generic_visit(node)

    def visit_NamedExpr(self, node: ast.NamedExpr) -> None:
        self._bind(node.target, node.value)
        self.generic_visit(node)

    def _visit_loop(self, node: ast.For | ast.AsyncFor | ast.comprehension) -> None:
        self._bind(node.target, node.iter, item=True)
        self.generic_visit(node)

    visit_For = visit_AsyncFor = visit_comprehension = _visit_loop

    def visit_withitem(self, node: ast.withitem) -> None:
        if node.optional_vars is not None:
            self._bind(node.optional_vars, node.context_expr)
        self.generic_visit(node)

    def visit_ExceptHandler(self, node: ast.ExceptHandler) -> None:
        if node.name:
            self._scope.bindings.setdefault(node.name, []).append(Binding(None))
        self.generic_visit(node)

    def _visit_import(self, node: ast.Import | ast.ImportFrom) -> None:
        for alias in node.names:
            name = alias.asname or alias.name.partition(".")[0]
            self._scope.bindings.setdefault(name, []).append(Binding(None, imported=True))

    visit_Import = visit_ImportFrom = _visit_import

    def visit_ClassDef(self, node: ast.ClassDef) -> None:
        self._define(node)
        self._within(Scope(self._scope, is_class=True), node)

    def _visit_function(self, node: ast.FunctionDef | ast.AsyncFunctionDef) -> None:
        self._define(node)
        self._functions.setdefault(node.name, node)
        self._within(_with_parameters(Scope(self._scope), node.args), node)

    visit_FunctionDef = visit_AsyncFunctionDef = _visit_function

    def visit_Lambda(self, node: ast.Lambda) -> None:
        self._within(_with_parameters(Scope(self._scope), node.args), node)

    def _define(self, node: Definition) -> None:
        """Bind a name to its definition, and to the result of the outermost decorator."""
        made = ast.Call(node.decorator_list[0], [], []) if node.decorator_list else None
        binding = Binding(made, definition=node)
        self._scope.bindings.setdefault(node.name, []).append(binding)

    def _within(self, scope: Scope, node: ast.AST) -> None:
        outer, self._scope = self._scope, scope
        self.generic_visit(node)
        self._scope = outer


def _with_parameters(scope: Scope, arguments: ast.arguments) -> Scope:
    every = [*arguments.posonlyargs, *arguments.args, *arguments.kwonlyargs]
    every += [each for each in (arguments.vararg, arguments.kwarg) if each is not None]
    for each in every:
        scope.bindings[each.arg] = [Binding(None)]
    return scope
