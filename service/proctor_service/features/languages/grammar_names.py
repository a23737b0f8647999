"""Names of literals, in the languages of tree-sitter: constants, and columns of tables.

A name counts only if tests use the name for comparisons and for texts of failures alone.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from proctor_service.features.languages.grammar_reach import (
    Body,
    callee_of,
    certain,
    is_failure,
    statements_of,
    text_of,
)
from proctor_service.features.languages.grammar_tables import Grammar

if TYPE_CHECKING:
    from tree_sitter import Node

Key = tuple[str, str | None]
"""A name, and its field in use (`c.want` in Go), or None."""
_DECLARATIONS = {
    # node type: fields of the name and of the value
    "variable_declarator": ("name", "value"),
    "short_var_declaration": ("left", "right"),
    "let_declaration": ("pattern", "value"),
}
_LOOPS = ("for_in_statement", "for_statement", "for_expression")
_INSERTED = re.compile(r"\{(\w+)")  # "want" in Rust's "not {want:?}"
_JUMPS = re.compile(r"\b(?:break|continue)\b")  # "if n == 2 { continue }"


@dataclass(frozen=True, slots=True)
class Binding:
    """A name in its scope: its binding leaf, and the expressions of its values."""

    scope: Node
    leaf: Node
    values: tuple[Node, ...]


Bindings = Mapping[Key, Binding]


def walked(
    body: Body, bindings: Bindings, words: Words, grammar: Grammar
) -> Iterator[tuple[Node, Bindings]]:
    """Yield the certain statements of a body and of its loops over literal tables."""
    bound = dict(bindings)
    for statement in certain(body, grammar):
        bound.update(_constant(statement))
        yield statement, bound
        inner, columns = _loop(statement, bound, words)
        if inner:
            yield from walked(inner, {**bound, **columns}, words, grammar)
        name, arguments = callee_of(_inner(statement))
        if name == "t.Run" and len(arguments) == 2 and arguments[1][0].type == "func_literal":
            function = arguments[1][0].child_by_field_name("body")
            yield from walked(statements_of(function), bound, words, grammar)


def key_of(expression: Sequence[Node]) -> tuple[Key, Node] | None:
    """Return the name of a name expression, and its leaf; of `*w` in Rust, too."""
    nodes = [each for each in expression if text_of(each) not in ("*", "&")]
    if len(nodes) != 1:
        return None
    node = nodes[0]
    if node.type == "unary_expression" and text_of(node.children[0]) in ("*", "&"):
        node = node.children[-1]
    if node.type == "identifier":
        return (text_of(node), None), node
    if node.type == "selector_expression":
        owner, field = node.child_by_field_name("operand"), node.child_by_field_name("field")
        if owner is not None and field is not None and owner.type == "identifier":
            return (text_of(owner), text_of(field)), owner
    return None


class Words:
    """The leaves of scopes by the words in them; made once for each scope."""

    def __init__(self) -> None:
        self._bindings: dict[int, dict[str, list[Node]]] = {}

    def leaves(self, scope: Node, word: str) -> Sequence[Node]:
        """Return the leaves of a scope which are a word, or insert a word in a text as `{want}`."""
        found = self._bindings.get(scope.id)
        if found is None:
            found = self._bindings[scope.id] = {}
            todo = [scope]
            while todo:
                node = todo.pop()
                todo += node.children
                if node.child_count == 0:
                    written = text_of(node)
                    for each in {written, *_INSERTED.findall(written)}:
                        found.setdefault(each, []).append(node)
        return found.get(word, ())


def is_only_compared(
    key: Key, binding: Binding, uses: set[int], words: Words, grammar: Grammar
) -> bool:
    """Return True if a name is read only in these leaves, and in texts of failures."""
    name, field = key
    for node in words.leaves(binding.scope, name):
        if node.id == binding.leaf.id or node.id in uses or _is_in_failure(node, grammar):
            continue
        parent = node.parent
        if field is None or parent is None or parent.type != "selector_expression":
            return False
        read = parent.child_by_field_name("field")
        if read is None or text_of(read) == field:
            return False
    return True


def _is_in_failure(node: Node, grammar: Grammar) -> bool:
    """Tell whether a node is evaluated for a failed test alone, or is the message of an assertion."""
    child, parent = node, node.parent
    while parent is not None:
        if is_failure(parent, grammar) and child == parent.child_by_field_name("consequence"):
            return True
        name, arguments = callee_of(parent)
        if name in grammar.compares and not name.startswith("expect"):
            return any(child in each for each in arguments[2:]) or any(
                each.start_byte <= node.start_byte < each.end_byte
                for argument in arguments[2:]
                for each in argument
            )
        child, parent = parent, parent.parent
    return False


def _inner(statement: Node) -> Node:
    if statement.type == "expression_statement" and statement.named_children:
        return statement.named_children[0]
    return statement


def _constant(statement: Node) -> dict[Key, Binding]:
    """Return the name bound to an expression by a statement."""
    declarators = [statement, *statement.named_children]
    found = [each for each in declarators if each.type in _DECLARATIONS]
    scope = statement.parent
    if len(found) != 1 or scope is None or scope.parent is None:  # not at the top level
        return {}
    name_field, value_field = _DECLARATIONS[found[0].type]
    leaf, value = (found[0].child_by_field_name(each) for each in (name_field, value_field))
    if leaf is not None and leaf.type == "expression_list" and value is not None:
        if len(leaf.named_children) != 1 or len(value.named_children) != 1:
            return {}
        leaf, value = leaf.named_children[0], value.named_children[0]
    if leaf is None or value is None or leaf.type != "identifier":
        return {}
    return {(text_of(leaf), None): Binding(scope, leaf, (value,))}


def _loop(statement: Node, bound: Bindings, words: Words) -> tuple[Body, Bindings]:
    """Return the body of a loop over a literal table, and its names."""
    loop = _inner(statement)
    if loop.type not in _LOOPS or _JUMPS.search(text_of(loop)):
        return (), {}
    clause = next((each for each in loop.children if each.type == "range_clause"), loop)
    target = clause.child_by_field_name("left") or clause.child_by_field_name("pattern")
    rows = clause.child_by_field_name("right") or clause.child_by_field_name("value")
    body = loop.child_by_field_name("body")
    operator = loop.child_by_field_name("operator")
    if target is None or rows is None or body is None:
        return (), {}
    if operator is not None and text_of(operator) != "of":
        return (), {}
    key = key_of([rows])
    named = None if key is None else bound.get(key[0])
    if key is not None and named is not None and len(named.values) == 1:
        is_once = len(words.leaves(named.scope, key[0][0])) == 2  # bound, and read here
        rows = named.values[0] if is_once else rows
    table = _rows(rows)
    if not table:
        return (), {}
    blocks = ("block", "statement_block")
    inner = statements_of(body) if body.type in blocks else [body]
    return inner, bound_columns(loop, target, table)


def _rows(rows: Node) -> list[Node]:
    """Return the rows of a literal table; an empty list for another expression."""
    while rows.type in ("reference_expression", "call_expression"):
        function = rows.child_by_field_name("function")
        if function is not None and text_of(function).endswith((".iter", ".into_iter")):
            value = function.child_by_field_name("value")
        else:
            value = rows.child_by_field_name("value")
        if value is None:
            return []
        rows = value
    if rows.type == "composite_literal":
        kind, body = rows.child_by_field_name("type"), rows.child_by_field_name("body")
        if body is None or kind is None or kind.type not in ("slice_type", "array_type"):
            return []
        return [
            each.named_children[0]
            for each in body.named_children
            if each.type == "literal_element" and each.named_children
        ]
    return list(rows.named_children) if rows.type in ("array", "array_expression") else []


def bound_columns(scope: Node, target: Node, rows: Sequence[Node]) -> dict[Key, Binding]:
    """Return the names bound by a pattern, each with its column."""
    if target.type == "expression_list":  # of Go: the index, and the row
        return _fields(scope, target.named_children[-1], rows) if target.named_children else {}
    names = [each for each in target.children if each.is_named]
    if target.type == "identifier":
        return {(text_of(target), None): Binding(scope, target, tuple(rows))}
    found: dict[Key, Binding] = {}
    for number, leaf in enumerate(names):
        items = [_items(row) for row in rows]
        if leaf.type == "identifier" and all(len(each) == len(names) for each in items):
            values = tuple(each[number] for each in items)
            found[text_of(leaf), None] = Binding(scope, leaf, values)
    return found


def _items(row: Node) -> list[Node]:
    return list(row.named_children) if row.type in ("array", "tuple_expression") else []


def _fields(scope: Node, leaf: Node, rows: Sequence[Node]) -> dict[Key, Binding]:
    """Return the fields of the rows of a table in Go; the rows themselves, unless structs."""
    if not all(row.type == "literal_value" for row in rows):
        return {(text_of(leaf), None): Binding(scope, leaf, tuple(rows))}
    order = _field_names(rows[0])
    columns: dict[str, list[Node]] = {}
    for row in rows:
        for number, element in enumerate(row.named_children):
            if element.type == "keyed_element":
                key, *_, value = element.children
                columns.setdefault(text_of(key), []).append(value)
            elif number < len(order):
                columns.setdefault(order[number], []).append(element)
    name = text_of(leaf)
    return {(name, field): Binding(scope, leaf, tuple(column)) for field, column in columns.items()}


def _field_names(row: Node) -> list[str]:
    """Return the names of the fields of a row with a struct declared beside the rows."""
    node = row.parent
    while node is not None and node.type != "composite_literal":
        node = node.parent
    kind = None if node is None else node.child_by_field_name("type")
    element = None if kind is None else kind.child_by_field_name("element")
    if element is None or element.type != "struct_type":
        return []
    return [
        text_of(name)
        for fields in element.named_children
        for declaration in fields.named_children
        for name in declaration.children_by_field_name("name")
    ]
