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
from collections.abc import Callable, Iterator
from functools import partial
from typing import Literal

from proctor_service.guest.rpc.handles import data_names
from proctor_service.judge.analysis.answers import Answers
from proctor_service.judge.analysis.names import Names, entry_is_class, entry_name
from proctor_service.judge.analysis.scopes import (
    Binding,
    Definition,
    Function,
    Scope,
    ScopeBuilder,
    Trees,
    parameters_of,
)
from proctor_service.judge.analysis.suite import Suite

Kind = Literal["object", "collection"]
Item = ast.AST | list[Binding]
"""An expression, or the bindings of a name."""

DATA_ATTRIBUTES = data_names().union(
    ["data", "fill"], *map(dir, (list, dict, set, int, float, str))
)
"""Attributes and methods of data types. Reading them from a function's result expects data."""

_PASSES_ON = frozenset(
    ["list", "tuple", "set", "frozenset", "reversed", "iter", "dict", "enumerate"]
)
_DISPLAYS = (ast.List, ast.Tuple, ast.Set)
_COMPREHENSIONS = (ast.ListComp, ast.SetComp, ast.GeneratorExp)

# The origin of a name: where several bindings differ, the greatest counts.
_NO_ORIGIN, _CLASS, _NAME, _OTHER = range(4)


class Objects:
    """Analysis of a suite's expressions: objects, classes and names of the submission."""

    def __init__(self, suite: Suite, names: Names) -> None:
        self.names = names
        self._entry = entry_name(suite.entry_point)
        self._entry_is_class = entry_is_class(suite.entry_point)
        self._scope_of: dict[int, Scope] = {}
        self._functions: dict[str, ast.FunctionDef | ast.AsyncFunctionDef] = {}
        self._kinds = Answers[Item, Kind | None](partial(self._find_kind, sure=False), None)
        self._sure_kinds = Answers[Item, Kind | None](partial(self._find_kind, sure=True), None)
        self._origins = Answers[Item, int](self._find_origin, _NO_ORIGIN)
        self._runs = Answers[Item, bool](self._find_runs, False)
        self._definitions: dict[Callable[[Definition], bool], Answers[Item, Definition | None]] = {}
        self._imported: dict[int, bool] = {}
        self._sources: dict[int, list[ast.expr]] = {}
        self._returned: dict[str, list[Binding]] = {}
        self._parameters: dict[int, dict[str, None]] = {}
        self._passed: set[int] = set()
        self._factories: set[str] = set()
        self._candidates: set[int] = set()
        trees = Trees()
        for tree in suite.trees:  # all trees share one namespace, in this order
            scope = Scope(None, trees=trees, place=trees.count)
            ScopeBuilder(self._scope_of, self._functions).build(tree, scope)
            trees.add(scope)
        self._bind_parameters(suite)
        self._factories = set(self._find_factories(suite))

    def kind(self, node: ast.expr) -> Kind | None:
        """Return "object" or "collection" if an expression may hold one or more, else None."""
        return self._kinds.of(node)

    def is_own(self, node: ast.expr) -> bool:
        """Tell whether an expression is a class's call, or a name bound to these calls only."""
        return self._sure_kinds.of(node) == "object"

    def is_submission(self, node: ast.AST) -> bool:
        """Tell whether an expression is a global name of the submission."""
        return self._origins.of(node) in (_CLASS, _NAME)

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
        if id(bindings) not in self._imported:
            self._imported[id(bindings)] = all(each.imported for each in bindings)
        return self._imported[id(bindings)]

    def is_own_function(self, node: ast.expr) -> bool:
        """Tell whether an expression is the name of a function that the tests define."""
        return isinstance(node, ast.Name) and node.id in self._functions

    def definition_of(
        self, node: ast.expr, wanted: Callable[[Definition], bool]
    ) -> Definition | None:
        """Return a wanted function or class of the tests that a name may stand for, or None."""
        if not isinstance(node, ast.Name):
            return None
        if wanted not in self._definitions:
            find = partial(self._find_definition, wanted=wanted)
            self._definitions[wanted] = Answers(find, None)
        return self._definitions[wanted].of(node)

    def _find_definition(
        self, item: Item, wanted: Callable[[Definition], bool]
    ) -> Definition | None:
        ask = self._definitions[wanted].of
        parts: list[Item] = []
        if isinstance(item, ast.Name):
            bindings = self._bindings(item)
            parts = [] if bindings is None else [bindings]
        elif isinstance(item, _DISPLAYS):
            parts = [each for each in item.elts if isinstance(each, ast.Name)]
        elif isinstance(item, list):
            for each in item:
                if each.definition is not None:
                    if wanted(each.definition):
                        return each.definition
                elif isinstance(each.value, _DISPLAYS if each.item else ast.Name):
                    assert each.value is not None
                    parts.append(each.value)
        return next((found for found in map(ask, parts) if found is not None), None)

    def is_decorated(self, node: Definition) -> bool:
        """Tell whether the submission decorates a function or a class of the tests."""
        return any(map(self.runs_submission, node.decorator_list))

    def runs_submission(self, func: ast.expr) -> bool:
        """Tell whether a call may be of the submission's, or of something that came from it."""
        return self._runs.of(func)

    def _find_runs(self, item: Item) -> bool:
        """Answer `runs_submission`; of bindings, for any value."""
        if isinstance(item, list):
            values = [each.value for each in item if each.value is not None and not each.item]
            return any(map(self._runs.of, values))
        assert isinstance(item, ast.expr)
        if self.is_submission(item) or self._kinds.of(item) == "object":
            return True
        bindings = self._bindings(item)
        if bindings is not None and self._runs.of(bindings):
            return True
        if isinstance(item, ast.Call):
            return self._runs.of(item.func)
        return isinstance(item, ast.Attribute | ast.Subscript) and self._runs.of(item.value)

    def sources_of(self, node: ast.expr) -> list[ast.expr]:
        """Return the expressions assigned to a variable or to an attribute of `self`."""
        if isinstance(node, ast.Call):
            return [node]
        bindings = self._bindings(node)
        if bindings is None:
            return []
        if id(bindings) not in self._sources:
            values = [each.value for each in bindings if each.value and not each.item]
            self._sources[id(bindings)] = values
        return self._sources[id(bindings)]

    def is_class(self, node: ast.AST) -> bool:
        """Tell whether an expression names a class of the submission."""
        return self._origins.of(node) == _CLASS

    def _find_origin(self, item: Item) -> int:
        """Return the kind of the submission's names that a name may stand for, or _OTHER.

        A name that is bound to itself, as a parameter that a recursive function passes on, adds
        nothing.
        """
        if isinstance(item, list):
            found = _NO_ORIGIN
            for each in item:
                if not isinstance(each.value, ast.Name) or each.item:
                    return _OTHER
                found = max(found, self._origins.of(each.value))
            return found
        if not isinstance(item, ast.Name):
            return _OTHER
        if id(item) in self._candidates:
            return _CLASS if self._entry_is_class else _NAME
        bindings = self._bindings(item)
        if bindings is not None:
            return self._origins.of(bindings)
        if item.id not in self.names.submission:
            return _OTHER
        return _CLASS if item.id in self.names.classes else _NAME

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
        if id(function) not in self._parameters:
            self._parameters[id(function)] = dict.fromkeys(parameters_of(function))
        parameters = self._parameters[id(function)]
        for parameter, argument in zip(parameters, call.args, strict=False):
            self._bind_in(function, parameter, Binding(argument))
        for keyword in call.keywords:
            if keyword.arg in parameters:
                self._bind_in(function, keyword.arg, Binding(keyword.value))

    def _bind_in(self, function: Function, name: str, binding: Binding) -> None:
        body = function.body
        scope = self._scope_of[id(body[0] if isinstance(body, list) else body)]
        known = scope.bindings.setdefault(name, [])
        if id(known) not in self._passed:
            self._passed.add(id(known))
            known[:] = [each for each in known if each.value is not None]
        known.append(binding)

    def _find_factories(self, suite: Suite) -> Iterator[str]:
        """Yield functions with a result used as an object: `make` in `c = make(); c.step()`."""
        seen: set[int] = set()
        for nodes in suite.nodes:
            for node in nodes:
                if isinstance(node, ast.Attribute) and node.attr not in DATA_ATTRIBUTES:
                    bindings = self._bindings(node.value)
                    if bindings is not None and id(bindings) in seen:
                        continue
                    seen.add(id(bindings))
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

    def _find_kind(self, node: Item, *, sure: bool) -> Kind | None:
        if isinstance(node, list):
            return self._kind_of_bindings(node, sure)
        assert isinstance(node, ast.expr)
        ask = self._sure_kinds.of if sure else self._kinds.of
        if isinstance(node, ast.Call):
            return self._kind_of_call(node, sure)
        bindings = self._bindings(node)
        if bindings is not None:
            return ask(bindings)
        if isinstance(node, ast.Attribute):  # Colour.RED
            return None if sure or not self.is_class(node.value) else "object"
        if isinstance(node, ast.Await | ast.NamedExpr | ast.Starred):
            return ask(node.value)
        if isinstance(node, ast.Subscript):
            whole = ask(node.value)
            inner: Kind = "collection" if isinstance(node.slice, ast.Slice) else "object"
            return inner if whole == "collection" else None
        if sure:
            return None
        if isinstance(node, _DISPLAYS):
            return "collection" if any(map(self._kinds.of, node.elts)) else None
        if isinstance(node, ast.Dict):
            parts = [*filter(None, node.keys), *node.values]
            return "collection" if any(map(self._kinds.of, parts)) else None
        if isinstance(node, _COMPREHENSIONS):
            return "collection" if self._kinds.of(node.elt) else None
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
        return next(filter(None, map(self._kinds.of, parts)), None)

    def _kind_of_call(self, node: ast.Call, sure: bool) -> Kind | None:
        if self.is_class(node.func) or (sure and self.makes_object(node)):
            return "object"
        if not isinstance(node.func, ast.Name):
            return None
        function = self._functions.get(node.func.id)
        if function is not None:
            if function.name not in self._returned:
                values = [each.value for each in ast.walk(function) if isinstance(each, ast.Return)]
                self._returned[function.name] = [Binding(each) for each in values if each]
            returned = self._returned[function.name]
            return self._sure_kinds.of(returned) if sure else self._kinds.of(returned)
        if node.func.id in _PASSES_ON and len(node.args) == 1 and not sure:
            return "collection" if self._kinds.of(node.args[0]) == "collection" else None
        return None

    def _kind_of_bindings(self, bindings: list[Binding], sure: bool) -> Kind | None:
        kinds: list[Kind | None] = []
        for each in bindings:
            if isinstance(each.value, ast.Constant) and each.value.value is None:
                continue
            if each.value is None or each.item:
                kind = None
            else:
                kind = (self._sure_kinds if sure else self._kinds).of(each.value)
            if sure and each.definition is not None and self.is_decorated(each.definition):
                kind = "object"  # tests expect data from a function, and no data from a decorator
            if each.item and each.value is not None and self._kinds.of(each.value) == "collection":
                kind = "object"
            kinds.append(kind)
        if sure:
            return kinds[0] if kinds and kinds[0] and all(k == kinds[0] for k in kinds) else None
        return next((kind for kind in kinds if kind), None)


def _is_text(node: ast.expr) -> bool:
    return isinstance(node, ast.Constant) and isinstance(node.value, str)
