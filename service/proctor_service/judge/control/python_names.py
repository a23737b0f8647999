"""Names of literals in Python tests: constants, parameters, and columns of tables.

A name counts only if tests use the name for comparisons and for texts of failures alone.
"""

from __future__ import annotations

import ast
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from proctor_service.judge.control.expectations import EXACT, Tolerance
from proctor_service.judge.control.python_forms import Comparison, Forms
from proctor_service.judge.control.python_reach import Block, Column

_FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef)


@dataclass(slots=True)
class Scope:
    """The nodes of a scope, by name; made once, since many names of a scope are asked for."""

    names: dict[str, list[ast.Name]] = field(default_factory=dict)
    arguments: Counter[str] = field(default_factory=Counter)
    places: dict[int, int] = field(default_factory=dict)
    """The place of each item `name[place]` read, by the id of the name's node."""
    messages: set[int] = field(default_factory=set)
    """Ids of the nodes of texts shown only by a failed assertion."""
    shared: set[str] = field(default_factory=set)
    """Names declared global or nonlocal."""

    @classmethod
    def of(cls, trees: Sequence[ast.AST]) -> Scope:
        """Return the names of trees."""
        scope = cls()
        for tree in trees:
            for node in ast.walk(tree):
                scope._add(node)
        return scope

    def binds(self, name: str) -> bool:
        """Tell whether the scope binds a name, also as a parameter."""
        nodes = self.names.get(name, ())
        return self.arguments[name] > 0 or any(not isinstance(n.ctx, ast.Load) for n in nodes)

    def _add(self, node: ast.AST) -> None:
        match node:
            case ast.Name(id=name):
                self.names.setdefault(name, []).append(node)
            case ast.arg(arg=name):
                self.arguments[name] += 1
            case ast.Subscript(
                value=ast.Name() as item, slice=ast.Constant(value=int(place)), ctx=ast.Load()
            ):
                if place >= 0:
                    self.places[id(item)] = place
            case ast.Assert(msg=ast.expr() as message):
                self.messages.update(map(id, ast.walk(message)))
            case ast.keyword(arg="msg" | "err_msg", value=message):
                self.messages.update(map(id, ast.walk(message)))
            case ast.Global(names=names) | ast.Nonlocal(names=names):
                self.shared.update(names)


@dataclass(frozen=True, slots=True)
class Use:
    """A place where a name is compared, or its item at a place.

    `scope`: the innermost scope which binds the name, or None for the top level.
    """

    node: ast.Name
    place: int | None
    comparison: Comparison
    block: Block
    scope: ast.AST | None

    @property
    def column(self) -> Column | None:
        """The column bound to the name; None if the name is bound elsewhere."""
        for columns in (self.comparison.columns, self.block.columns):
            if self.node.id in columns:
                return columns[self.node.id]
        return None


class Names:
    """The uses of names in modules with the top levels `trees`."""

    def __init__(self, trees: Sequence[ast.AST], foreign: frozenset[str] | None) -> None:
        self._top = Scope.of(trees)
        self._foreign = foreign or frozenset()
        self._scopes: dict[int, Scope] = {}
        self._groups: dict[tuple[int, str, int | None], list[tuple[Forms, ast.Module, Use]]] = {}

    def add(
        self, name: ast.Name, place: int | None, comparison: Comparison, block: Block,
        forms: Forms, tree: ast.Module,
    ) -> None:  # fmt: skip
        """Add a use in a module."""
        scope: ast.AST | None = comparison.scope
        if scope is None or name.id not in comparison.columns:
            scope = block.scope
            if scope is not None and not self._scope(scope).binds(name.id):
                scope = None
        use = Use(name, place, comparison, block, scope)
        self._groups.setdefault((id(scope), name.id, place), []).append((forms, tree, use))

    def values(self) -> Iterator[tuple[ast.Module, ast.expr, Tolerance, bool]]:
        """Yield module, literal, tolerance, and whether the literal's replacement must be far away."""
        for (_, name, place), uses in self._groups.items():
            forms, tree, first = uses[0]
            if name in self._top.shared or (first.scope is None and name in self._foreign):
                continue
            scope = self._scope(first.scope)
            loads = {
                id(node)
                for node in scope.names.get(name, ())
                if isinstance(node.ctx, ast.Load) and id(node) not in self._top.messages
            }
            if place is not None:
                loads = {each for each in loads if scope.places.get(each, place) == place}
            if loads != {id(use.node) for _, _, use in uses}:
                continue
            values = _values(first, scope, tree, forms)
            comparisons = [use.comparison for _, _, use in uses]
            if not all(each.bears(value) for value in values for each in comparisons):
                continue
            tolerance = EXACT
            for each in comparisons:
                tolerance |= each.tolerance
            only_far = any(each.only_far for each in comparisons)
            yield from ((tree, value, tolerance, only_far) for value in values)

    def _scope(self, scope: ast.AST | None) -> Scope:
        if scope is None:
            return self._top
        found = self._scopes.get(id(scope))
        if found is None:
            found = self._scopes[id(scope)] = Scope.of([scope])
        return found


def _values(use: Use, scope: Scope, tree: ast.Module, forms: Forms) -> tuple[ast.expr, ...]:
    """Return the literals bound to a name or its item; empty in doubt."""
    name = use.node.id
    stores = [node for node in scope.names[name] if not isinstance(node.ctx, ast.Load)]
    column = use.column
    if column is not None:
        bound = 0 if use.scope is None else scope.arguments[name]
        if len(stores) + bound != 1:
            return ()
        if use.place is not None:
            column = _items(column, use.place)
        return tuple(each for each in column if forms.is_value(each))
    if len(stores) != 1 or use.place is not None:
        return ()
    body = use.scope.body if isinstance(use.scope, _FUNCTIONS) else tree.body
    for statement in body:
        match statement:
            case ast.Assign(targets=[ast.Name() as target], value=value) if target is stores[0]:
                return (value,) if forms.is_value(value) else ()
    return ()


def _items(column: Column, place: int) -> Column:
    """Return an item of each row; empty if a row lacks the item."""
    found = []
    for row in column:
        if not isinstance(row, ast.Tuple | ast.List) or len(row.elts) <= place:
            return ()
        if any(isinstance(each, ast.Starred) for each in row.elts):
            return ()
        found.append(row.elts[place])
    return tuple(found)
