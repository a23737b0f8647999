"""Tracing of objects in test code: expressions that hold objects made from submission classes.

`Stack()` is an object, and so are `s` after `s = Stack()`, `self.s` after the same in `setUp`, an
item of `[Stack()]`, and a helper's parameter with an object as argument. The result of a function
is not an object, because tests expect data from functions. There are two questions about an
expression, and an unclear name gets the cautious answer to each:

- `kind(node)`: may the expression hold an object? If so, operators on the expression need the
  submission's process.
- `is_own(node)`: does the expression always hold an object? If so, `len`, indexing, iteration and
  methods that data also has may reach the submission through the expression.
"""

from __future__ import annotations

import ast
import builtins
from collections.abc import Iterator
from typing import Literal

from proctor_service.guest.rpc.handles import data_names
from proctor_service.judge.analysis.names import Names, entry_is_class, entry_name
from proctor_service.judge.analysis.scopes import (
    Binding,
    Definition,
    Function,
    Scope,
    ScopeBuilder,
    parameters_of,
)
from proctor_service.judge.analysis.suite import Suite

Kind = Literal["object", "collection"]

DATA_ATTRIBUTES = data_names().union(
    ["data", "fill"], *map(dir, (list, dict, set, int, float, str))
)
"""Attributes and methods of data types. Reading them from a function's result expects data."""

_PASSES_ON = frozenset(
    ["list", "tuple", "set", "frozenset", "reversed", "iter", "dict", "enumerate"]
)
_DISPLAYS = (ast.List, ast.Tuple, ast.Set)
_COMPREHENSIONS = (ast.ListComp, ast.SetComp, ast.GeneratorExp)


class Objects:
    """Analysis of a suite's expressions: objects, classes and names of the submission."""

    def __init__(self, suite: Suite, names: Names) -> None:
        self.names = names
        self._entry = entry_name(suite.entry_point)
        self._entry_is_class = entry_is_class(suite.entry_point)
        self._scope_of: dict[int, Scope] = {}
        self._functions: dict[str, ast.FunctionDef | ast.AsyncFunctionDef] = {}
        self._answers: dict[tuple[int, bool], Kind | None] = {}
        self._came: dict[int, bool] = {}
        self._factories: set[str] = set()
        self._candidates: set[int] = set()
        scope: Scope | None = None
        for tree in suite.trees:  # all trees share one namespace, in this order
            scope = Scope(scope)
            ScopeBuilder(self._scope_of, self._functions).build(tree, scope)
        self._bind_parameters(suite)
        self._factories = set(self._find_factories(suite))
        self._answers.clear()

    def kind(self, node: ast.expr) -> Kind | None:
        """Return "object" or "collection" if an expression may hold one or more, else None."""
        return self._kind(node, sure=False)

    def is_own(self, node: ast.expr) -> bool:
        """Tell whether an expression is a class's call, or a name bound to these calls only."""
        return self._kind(node, sure=True) == "object"

    def is_submission(self, node: ast.AST) -> bool:
        """Tell whether an expression is a global name of the submission."""
        return bool(self._origins(node))

    def is_global(self, node: ast.Name) -> bool:
        """Tell whether a name is the submission's, and no variable that stands for such a name."""
        return self._bindings(node) is None and node.id in self.names.submission

    def is_builtin(self, node: ast.Name) -> bool:
        """Tell whether a name means Python's own built-in."""
        bound = self._bindings(node) is not None
        return not bound and node.id not in self.names.submission and hasattr(builtins, node.id)

    def is_imported(self, node: ast.Name) -> bool:
        """Tell whether only imports bind a name, in the tests or implied."""
        bindings = self._bindings(node)
        if bindings is None:
            return node.id not in self.names.submission and not hasattr(builtins, node.id)
        return bool(bindings) and all(each.imported for each in bindings)

    def is_own_function(self, node: ast.expr) -> bool:
        """Tell whether an expression is the name of a function that the tests define."""
        return isinstance(node, ast.Name) and node.id in self._functions

    def definitions_of(self, node: ast.expr) -> list[Definition]:
        """Return the functions and classes of the tests that a name may stand for."""
        found: list[Definition] = []
        seen: set[int] = set()
        names = [node]
        while names:
            name = names.pop()
            bindings = self._bindings(name) if isinstance(name, ast.Name) else None
            if bindings is None or id(bindings) in seen:
                continue
            seen.add(id(bindings))
            for each in bindings:
                if each.definition is not None:
                    found.append(each.definition)
                elif each.item and isinstance(each.value, _DISPLAYS):
                    names += each.value.elts
                elif each.value is not None and not each.item:
                    names.append(each.value)
        return found

    def is_decorated(self, node: Definition) -> bool:
        """Tell whether the submission decorates a function or a class of the tests."""
        return any(map(self.runs_submission, node.decorator_list))

    def runs_submission(self, func: ast.expr) -> bool:
        """Tell whether a call may be of the submission's, or of something that came from it."""
        part = func
        while not (self.is_submission(part) or self.kind(part) == "object"):
            if self._came_from_submission(part):
                return True
            if isinstance(part, ast.Call):
                part = part.func
            elif isinstance(part, ast.Attribute | ast.Subscript):
                part = part.value
            else:
                return False
        return True

    def _came_from_submission(self, node: ast.expr) -> bool:
        """Tell whether a variable holds the result of a call that may run the submission."""
        bindings = self._bindings(node)
        if bindings is None:
            return False
        if id(bindings) not in self._came:
            self._came[id(bindings)] = False  # ends the recursion for a name bound to itself
            values = [each.value for each in bindings if each.value is not None and not each.item]
            self._came[id(bindings)] = any(map(self.runs_submission, values))
        return self._came[id(bindings)]

    def sources_of(self, node: ast.expr) -> list[ast.expr]:
        """Return the expressions assigned to a variable or to an attribute of `self`."""
        if isinstance(node, ast.Call):
            return [node]
        return [each.value for each in self._bindings(node) or () if each.value and not each.item]

    def is_class(self, node: ast.AST) -> bool:
        """Tell whether an expression names a class of the submission."""
        origins = self._origins(node)
        return bool(origins) and all(
            self._entry_is_class if id(each) in self._candidates else each.id in self.names.classes
            for each in origins
        )

    def _origins(self, node: ast.AST) -> list[ast.Name]:
        """Return the submission's names that a name may stand for; none, if also for anything else.

        A name that is bound to itself, as a parameter that a recursive function passes on, adds
        nothing.
        """
        if not isinstance(node, ast.Name):
            return []
        origins: list[ast.Name] = []
        seen: set[int] = set()
        names = [node]
        while names:
            name = names.pop()
            bindings = None if id(name) in self._candidates else self._bindings(name)
            if bindings is None:
                if id(name) not in self._candidates and name.id not in self.names.submission:
                    return []
                origins.append(name)
            elif id(bindings) not in seen:
                seen.add(id(bindings))
                for each in bindings:
                    if not isinstance(each.value, ast.Name) or each.item:
                        return []
                    names.append(each.value)
        return origins

    def makes_object(self, call: ast.Call) -> bool:
        """Tell whether a call is of a class, or of a function with a result used as an object."""
        func = call.func
        return self.is_class(func) or (
            isinstance(func, ast.Name) and func.id in self._factories and self.is_submission(func)
        )

    def _bind_parameters(self, suite: Suite) -> None:
        """Bind the parameters of test functions to the arguments of calls, and `candidate`."""
        for test in suite.tests:
            for step in test.run:
                if step[0] == "check" and step[1] in self._functions:
                    name = parameters_of(self._functions[step[1]])[0]
                    stands_for = ast.Name(self._entry, ast.Load())
                    self._candidates.add(id(stands_for))
                    self._bind_in(self._functions[step[1]], name, Binding(stands_for))
        for nodes in suite.nodes:
            for node in nodes:
                if isinstance(node, ast.Call):
                    self._bind_arguments(node)

    def _bind_arguments(self, call: ast.Call) -> None:
        function: Function | None = None
        if isinstance(call.func, ast.Name):
            function = self._functions.get(call.func.id)
        elif isinstance(call.func, ast.Lambda):
            function = call.func
        if function is None:
            return
        parameters = parameters_of(function)
        for parameter, argument in zip(parameters, call.args, strict=False):
            self._bind_in(function, parameter, Binding(argument))
        for keyword in call.keywords:
            if keyword.arg in parameters:
                self._bind_in(function, keyword.arg, Binding(keyword.value))

    def _bind_in(self, function: Function, name: str, binding: Binding) -> None:
        body = function.body
        scope = self._scope_of[id(body[0] if isinstance(body, list) else body)]
        known = scope.bindings.setdefault(name, [])
        known[:] = [each for each in known if each.value is not None]
        known.append(binding)

    def _find_factories(self, suite: Suite) -> Iterator[str]:
        """Yield functions with a result used as an object: `make` in `c = make(); c.step()`."""
        for nodes in suite.nodes:
            for node in nodes:
                if isinstance(node, ast.Attribute) and node.attr not in DATA_ATTRIBUTES:
                    for source in self.sources_of(node.value):
                        if isinstance(source, ast.Call) and self.is_submission(source.func):
                            assert isinstance(source.func, ast.Name)
                            yield source.func.id

    def _bindings(self, node: ast.expr) -> list[Binding] | None:
        """Return the bindings of a name, or of an attribute of `self`."""
        scope = self._scope_of.get(id(node))
        if scope is None:
            return None
        if isinstance(node, ast.Name):
            return scope.find(node.id)
        if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name):
            around = scope.own_class()
            if around is not None and node.value.id in ("self", "cls"):
                return around.attributes.get(node.attr)
        return None

    def _kind(self, node: ast.expr, *, sure: bool) -> Kind | None:
        key = (id(node), sure)
        if key not in self._answers:
            self._answers[key] = None  # ends the recursion for a name bound to itself
            self._answers[key] = self._find_kind(node, sure)
        return self._answers[key]

    def _find_kind(self, node: ast.expr, sure: bool) -> Kind | None:
        if isinstance(node, ast.Call):
            return self._kind_of_call(node, sure)
        bindings = self._bindings(node)
        if bindings is not None:
            return self._kind_of_bindings(bindings, sure)
        if isinstance(node, ast.Attribute):  # Colour.RED
            return None if sure or not self.is_class(node.value) else "object"
        if isinstance(node, ast.Await | ast.NamedExpr | ast.Starred):
            return self._kind(node.value, sure=sure)
        if isinstance(node, ast.Subscript):
            whole = self._kind(node.value, sure=sure)
            inner: Kind = "collection" if isinstance(node.slice, ast.Slice) else "object"
            return inner if whole == "collection" else None
        if sure:
            return None
        if isinstance(node, _DISPLAYS):
            return "collection" if any(map(self.kind, node.elts)) else None
        if isinstance(node, ast.Dict):
            parts = [*filter(None, node.keys), *node.values]
            return "collection" if any(map(self.kind, parts)) else None
        if isinstance(node, _COMPREHENSIONS):
            return "collection" if self.kind(node.elt) else None
        return self._kind_of_operation(node)

    def _kind_of_operation(self, node: ast.expr) -> Kind | None:
        parts: list[ast.expr] = []
        if isinstance(node, ast.IfExp):
            parts = [node.body, node.orelse]
        elif isinstance(node, ast.BoolOp):
            parts = node.values
        elif isinstance(node, ast.BinOp) and not _is_text(node.left):  # "%s" % x is a text
            parts = [node.left, node.right]
        elif isinstance(node, ast.UnaryOp) and not isinstance(node.op, ast.Not):
            parts = [node.operand]
        kinds = [kind for kind in map(self.kind, parts) if kind]
        return kinds[0] if kinds else None

    def _kind_of_call(self, node: ast.Call, sure: bool) -> Kind | None:
        if self.is_class(node.func) or (sure and self.makes_object(node)):
            return "object"
        if not isinstance(node.func, ast.Name):
            return None
        function = self._functions.get(node.func.id)
        if function is not None:
            returned = [each.value for each in ast.walk(function) if isinstance(each, ast.Return)]
            return self._kind_of_bindings([Binding(each) for each in returned if each], sure)
        if node.func.id in _PASSES_ON and len(node.args) == 1 and not sure:
            return "collection" if self.kind(node.args[0]) == "collection" else None
        return None

    def _kind_of_bindings(self, bindings: list[Binding], sure: bool) -> Kind | None:
        kinds: list[Kind | None] = []
        for each in bindings:
            if isinstance(each.value, ast.Constant) and each.value.value is None:
                continue
            kind = None if each.value is None else self._kind(each.value, sure=sure)
            if sure and each.definition is not None and self.is_decorated(each.definition):
                kind = "object"  # tests expect data from a function, and no data from a decorator
            if each.item and each.value is not None:
                whole = self.kind(each.value)
                kind = "object" if whole == "collection" else None
            kinds.append(kind)
        if sure:
            return kinds[0] if kinds and kinds[0] and all(k == kinds[0] for k in kinds) else None
        return next((kind for kind in kinds if kind), None)


def _is_text(node: ast.expr) -> bool:
    return isinstance(node, ast.Constant) and isinstance(node.value, str)
