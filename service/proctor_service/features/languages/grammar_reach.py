"""Statements of tests with a certain run, in the languages of tree-sitter.

As in Python (`python_reach.py`): statements directly in a function with a run in every passing
run of the tests, before the first possible exit of the function.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from types import MappingProxyType
from typing import TYPE_CHECKING

from proctor_service.features.languages.grammar_tables import Grammar

if TYPE_CHECKING:
    from tree_sitter import Node

Body = Sequence["Node"]
_TESTS = ("test", "it")


def text_of(node: Node) -> str:
    """Return the text of a node."""
    return (node.text or b"").decode("utf-8", "replace")


def callee_of(node: Node) -> tuple[str, list[Sequence[Node]]]:
    """Return the dotted name of a node's callee, and the arguments; an empty name for other nodes.

    Of `expect(a).toBe(b)` the name is `expect.toBe`, and `a` the first argument.
    """
    if node.type == "macro_invocation":
        macro = node.child_by_field_name("macro")
        tree = node.children[-1]
        return (f"{text_of(macro)}!" if macro else ""), _split(tree.children[1:-1])
    arguments = node.child_by_field_name("arguments")
    if arguments is None:
        return "", []
    listed = _split(arguments.children[1:-1])
    if node.type == "method_invocation":
        owner, name = node.child_by_field_name("object"), node.child_by_field_name("name")
        return ".".join(text_of(each) for each in (owner, name) if each), listed
    function = node.child_by_field_name("function")
    if node.type != "call_expression" or function is None:
        return "", []
    owner = function.child_by_field_name("object")
    if owner is not None and owner.type == "call_expression":
        outer, checked = callee_of(owner)
        last = function.child_by_field_name("property")
        if outer == "expect" and len(checked) == 1 and last is not None:
            return f"expect.{text_of(last)}", [checked[0], *listed]
        return "", []
    return text_of(function), listed


def _split(nodes: Sequence[Node]) -> list[Sequence[Node]]:
    """Return the arguments between commas."""
    found: list[list[Node]] = [[]]
    for node in nodes:
        if node.type == ",":
            found.append([])
        elif "comment" not in node.type:
            found[-1].append(node)
    return [each for each in found if each]


def certain(body: Body, grammar: Grammar) -> Iterator[Node]:
    """Yield the statements before the first possible exit of the function."""
    for statement in body:
        fails = is_failure(statement, grammar)
        if statement.type in grammar.leaves or (not fails and _has(statement, grammar)):
            return
        yield statement.named_children[0] if _is_wrapped_if(statement) else statement


def _is_wrapped_if(statement: Node) -> bool:
    """Tell whether a statement is Rust's `if`, which is an expression."""
    inner = statement.named_children
    return (
        statement.type == "expression_statement"
        and bool(inner)
        and inner[0].type == "if_expression"
    )


def _has(statement: Node, grammar: Grammar) -> bool:
    todo = [statement]
    while todo:
        node = todo.pop()
        if node.type in grammar.leaves or (node.child_count == 0 and text_of(node) == "return"):
            return True
        if node.type not in grammar.functions:
            todo += node.children
    return False


def is_failure(statement: Node, grammar: Grammar) -> bool:
    """Return True for an `if` without an `else` which fails the test first of all."""
    if _is_wrapped_if(statement):
        statement = statement.named_children[0]
    if statement.type not in ("if_statement", "if_expression"):
        return False
    if statement.child_by_field_name("alternative") is not None:
        return False
    body = statement.child_by_field_name("consequence")
    while body is not None and body.type in ("block", "statement_block", "statement_list"):
        inner = [each for each in body.named_children if "comment" not in each.type]
        body = inner[0] if inner else None
    if body is None:
        return False
    if body.type == "throw_statement":
        return "throw" in grammar.fails
    call = body.named_children[0] if body.type == "expression_statement" else body
    name, arguments = callee_of(call)
    if name == "os.Exit" and [text_of(each[0]) for each in arguments] == ["0"]:
        return False
    return name in grammar.fails


def blocks(root: Node, language: str, runner: str | None) -> Iterator[Body]:
    """Yield the bodies sure to run in passing tests."""
    yield from _BLOCKS[language](root, runner)


def statements_of(body: Node | None) -> Body:
    """Return the statements of a block."""
    if body is None:
        return ()
    inner = [each for each in body.named_children if "comment" not in each.type]
    if len(inner) == 1 and inner[0].type == "statement_list":
        return statements_of(inner[0])
    return inner


def _names(root: Node, kinds: Sequence[str]) -> Counter[str]:
    """Return how often nodes of these kinds bind each name."""
    found: Counter[str] = Counter()
    todo = [root]
    while todo:
        node = todo.pop()
        name = node.child_by_field_name("name") or node.child_by_field_name("pattern")
        if node.type in kinds and name is not None:
            found[text_of(name)] += 1
        todo += node.children
    return found


def _of_javascript(root: Node, runner: str | None) -> Iterator[Body]:
    body = statements_of(root)
    kinds = ("function_declaration", "variable_declarator", "class_declaration")
    bound = _names(root, kinds)
    if runner == "jest":
        if not any(bound[name] for name in ("expect", "describe", *_TESTS)):
            yield from _of_jest(body)
        return
    uses_assert = re.search(r"\bassert\b", text_of(root)) is not None  # "assert.equal(1, 1)"
    if bound["assert"] > 1 or (uses_assert and not _is_node_assert(body)):
        return
    yield body
    declared: dict[str, Node] = {}
    for statement in body:
        if statement.type == "function_declaration" and not text_of(statement).startswith("async"):
            name = statement.child_by_field_name("name")
            if name is not None:
                declared[text_of(name)] = statement
        elif statement.type == "expression_statement" and statement.named_children:
            called, _ = callee_of(statement.named_children[0])
            if called in declared and bound[called] == 1:
                yield statements_of(declared.pop(called).child_by_field_name("body"))


_NODE_ASSERT = re.compile(  # "const assert = require('assert')" and "import assert from 'node:assert'"
    r"(?:(?:const|let|var)\s+assert\s*=\s*require\(\s*|import\s+(?:\*\s*as\s+)?assert\s+from\s*)"
    r"[\"'](?:node:)?assert(?:/strict)?[\"']\s*\)?(?:\.strict)?\s*;?"
)


def _is_node_assert(body: Body) -> bool:
    """Return True for a statement which binds `assert` to Node's."""
    return any(_NODE_ASSERT.fullmatch(text_of(statement)) for statement in body)


def _of_jest(body: Body) -> Iterator[Body]:
    """Yield the bodies of tests, also within `describe`."""
    for statement in body:
        if statement.type != "expression_statement" or not statement.named_children:
            continue
        name, arguments = callee_of(statement.named_children[0])
        if name not in ("describe", *_TESTS) or len(arguments) != 2 or len(arguments[1]) != 1:
            continue
        function = arguments[1][0]
        if function.type not in ("arrow_function", "function_expression"):
            continue
        parameters = function.child_by_field_name("parameters")
        inner = function.child_by_field_name("body")
        if parameters is None or parameters.named_children or inner is None:
            continue
        if inner.type != "statement_block":
            continue
        if name == "describe":
            yield from _of_jest(statements_of(inner))
        else:
            yield statements_of(inner)


def _of_java(root: Node, runner: str | None) -> Iterator[Body]:
    bound = _names(root, ("method_declaration",))
    if any(
        bound[name]
        for name in ("assertEquals", "assertArrayEquals", "assertTrue", "fail", "equals")
    ):
        return
    for node in root.named_children:
        if node.type != "class_declaration":
            continue
        modifiers = [text_of(each) for each in node.children if each.type == "modifiers"]
        is_plain = not any("@" in each or "abstract" in each for each in modifiers)
        if runner == "junit" and (node.child_by_field_name("superclass") or not is_plain):
            continue
        for method in statements_of(node.child_by_field_name("body")):
            if method.type == "method_declaration" and _is_run(method, bound, runner):
                yield statements_of(method.child_by_field_name("body"))


def _is_run(method: Node, bound: Mapping[str, int], runner: str | None) -> bool:
    """Tell whether a method of Java is a plain test, or the only main method."""
    name = text_of(method.child_by_field_name("name") or method)
    modifiers = [text_of(each).split() for each in method.children if each.type == "modifiers"]
    words = modifiers[0] if modifiers else []
    if runner == "junit":
        marks = [each for each in words if each.startswith("@")]
        return marks == ["@Test"] and bound[name] == 1 and "static" not in words
    return name == "main" and bound["main"] == 1 and words == ["public", "static"]


def _of_go(root: Node, runner: str | None) -> Iterator[Body]:
    bound = _names(root, ("function_declaration",))
    if bound["panic"]:
        return
    for node in root.named_children:
        if node.type != "function_declaration":
            continue
        name = text_of(node.child_by_field_name("name") or node)
        parameters = "".join(text_of(node.child_by_field_name("parameters") or node).split())
        is_test = name.startswith("Test") and parameters == "(t*testing.T)"
        is_run = is_test if runner == "go_test" else name == "main" and parameters == "()"
        if is_run and bound[name] == 1:
            yield statements_of(node.child_by_field_name("body"))


def _of_rust(root: Node, runner: str | None) -> Iterator[Body]:
    attributes: list[str] = []
    for node in root.named_children:
        if node.type == "attribute_item":
            attributes.append("".join(text_of(node).split()))
            continue
        if node.type == "function_item":
            name = text_of(node.child_by_field_name("name") or node)
            returns = node.child_by_field_name("return_type") is not None
            is_run = attributes == ["#[test]"] if runner else name == "main" and not attributes
            if is_run and not returns:
                yield statements_of(node.child_by_field_name("body"))
        elif node.type == "mod_item" and runner and attributes in ([], ["#[cfg(test)]"]):
            inner = node.child_by_field_name("body")
            if inner is not None:
                yield from _of_rust(inner, runner)
        if "comment" not in node.type:
            attributes = []


_BLOCKS: Mapping[str, Callable[[Node, str | None], Iterator[Body]]] = MappingProxyType(
    {
        "javascript": _of_javascript,
        "typescript": _of_javascript,
        "java": _of_java,
        "go": _of_go,
        "rust": _of_rust,
    }
)
