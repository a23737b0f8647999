"""Clear expectations of tests in languages with a tree-sitter grammar: JavaScript, TypeScript,
Java, Go, Rust.

An expression is a list of neighbouring nodes: in Rust's macros there are only tokens.
"""

from __future__ import annotations

import bisect
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from proctor_service.features.languages.grammar_names import (
    Binding,
    Key,
    Words,
    is_only_compared,
    key_of,
    walked,
)
from proctor_service.features.languages.grammar_reach import (
    blocks,
    callee_of,
    is_failure,
    text_of,
)
from proctor_service.features.languages.grammar_tables import GRAMMARS, Grammar
from proctor_service.judge.control.expectations import (
    EXACT,
    Draw,
    Expectation,
    Literal,
    Scalar,
    Tolerance,
)

if TYPE_CHECKING:
    from tree_sitter import Node, Tree

_NUMBER = re.compile(  # "1_000", "2.5f" and "4u8", not "0x1F"
    r"(?!0[xXbBoO])(\d[\d_]*(?:\.[\d_]+)?(?:[eE][+-]?\d+)?)([A-Za-z]\w*)?"
)
_FRACTION = re.compile(r"[.eE]")  # "2.5" and "1e9"
_SMALL_PRIMES = (37, 41, 43, 47, 53)  # within eight bits, also beside a small number
_LARGE_PRIMES = (1_234_567_007, 1_357_911_403, 1_731_206_453, 1_962_487_223)
_LETTERS = "bcdfghjklmnpqrstvwxz"
_MOST_NODES = 200_000
_OF_FORMS = frozenset(
    ["assert", "expect", "assertEquals", "assertTrue", "fail", "panic", "assert_eq"]
)
_EXACT_INTEGERS = 1 << 50  # in a double

Expression = Sequence["Node"]


@dataclass(frozen=True, slots=True)
class Comparison:
    """Two expressions compared for certain."""

    one: Expression
    other: Expression
    tolerance: Tolerance = EXACT


@dataclass(frozen=True, slots=True)
class Text:
    """A text of tests and its tree; places of nodes are bytes of the encoded text.

    `wide`: the first byte of each character of several bytes; `surplus`: the bytes up to and including
    this character, above the number of characters.
    """

    part: str
    text: str
    tree: Tree
    wide: Sequence[int]
    surplus: Sequence[int]

    @classmethod
    def of(cls, part: str, text: str, language: str) -> Text | None:
        """Parse a text; None if the text is invalid or too large, or the grammar is missing."""
        try:
            from tree_sitter_language_pack import get_parser
        except ImportError:
            return None
        tree = get_parser(language).parse(text.encode())  # type: ignore[arg-type]
        root = tree.root_node
        if root.has_error or root.descendant_count > _MOST_NODES:
            return None
        wide: list[int] = []
        surplus: list[int] = []
        byte = 0
        for character in "" if text.isascii() else text:
            size = len(character.encode())
            if size > 1:
                wide.append(byte)
                surplus.append((surplus[-1] if surplus else 0) + size - 1)
            byte += size
        return cls(part, text, tree, wide, surplus)

    def place(self, byte: int) -> int:
        """Return the place of a byte in characters."""
        at = bisect.bisect_left(self.wide, byte)
        return byte - (self.surplus[at - 1] if at else 0)


def is_known(language: str) -> bool:
    """Tell whether tests in a language may have clear expectations."""
    return language in GRAMMARS


def parses(text: str, language: str) -> bool:
    """Tell whether a text is free of syntax errors."""
    return Text.of("", text, language) is not None


def expectations(
    texts: Sequence[Text], beside: Sequence[Text], language: str, runner: str | None
) -> list[Expectation]:
    """Return the clear expectations of texts of tests, each place once.

    `beside`: texts with the same names as the tests.
    """
    grammar = GRAMMARS[language]
    roots = [each.tree.root_node for each in (*texts, *beside)]
    if any(word in grammar.doubtful for root in roots for word in _words(root)):
        return []
    if any(word in _OF_FORMS for each in beside for word in _words(each.tree.root_node)):
        return []
    found: dict[tuple[str, int], Expectation] = {}
    for text in texts:
        for each in _of_text(text, grammar, language, runner):
            found.setdefault((text.part, each.literal.begin), each)
    return list(found.values())


def _of_text(
    text: Text, grammar: Grammar, language: str, runner: str | None
) -> Iterator[Expectation]:
    names: dict[tuple[Key, int], tuple[Binding, list[tuple[Node, Tolerance]]]] = {}
    words = Words()
    for body in blocks(text.tree.root_node, language, runner):
        for statement, bindings in walked(body, {}, words, grammar):
            for each in _comparisons(statement, grammar):
                for expected, answer in ((each.one, each.other), (each.other, each.one)):
                    if _literal(answer, grammar, text) is not None:
                        continue
                    literal = _literal(expected, grammar, text)
                    if literal is not None:
                        yield Expectation(text.part, literal, each.tolerance)
                    named = key_of(expected)
                    if named is not None and named[0] in bindings:
                        binding = bindings[named[0]]
                        uses = names.setdefault((named[0], binding.leaf.id), (binding, []))[1]
                        uses.append((named[1], each.tolerance))
    for (key, _), (binding, uses) in names.items():
        if is_only_compared(key, binding, {leaf.id for leaf, _ in uses}, words, grammar):
            tolerance = EXACT
            for _, more in uses:
                tolerance |= more
            for value in binding.values:
                literal = _literal([value], grammar, text)
                if literal is not None:
                    yield Expectation(text.part, literal, tolerance)


def _words(root: Node) -> Iterator[str]:
    todo = [root]
    while todo:
        node = todo.pop()
        if node.child_count == 0:
            yield from re.findall(r"\w+", text_of(node))  # "skip" in "'skip it'"
        todo += node.children


def _comparisons(statement: Node, grammar: Grammar) -> Iterator[Comparison]:
    """Yield the comparisons of a statement, whenever the tests pass."""
    if statement.type == "expression_statement" and statement.named_children:
        yield from _of_call(statement.named_children[0], grammar)
    elif statement.type == "macro_invocation":
        yield from _of_call(statement, grammar)
    elif statement.type == "assert_statement":
        yield from _of_condition(statement.named_children[:1], grammar, "==")
    elif is_failure(statement, grammar):
        condition = statement.child_by_field_name("condition")
        if condition is not None:
            yield from _of_condition([condition], grammar, "!=")


def _of_call(node: Node, grammar: Grammar) -> Iterator[Comparison]:
    if node.type == "await_expression":
        return
    name, arguments = callee_of(node)
    if name in grammar.compares and len(arguments) >= 2:
        tolerance = _tolerance(name, arguments, grammar)
        if tolerance is not None:
            yield Comparison(arguments[0], arguments[1], tolerance)
    elif name in grammar.holds and arguments:
        yield from _of_condition(arguments[0], grammar, "==")


def _tolerance(name: str, arguments: Sequence[Expression], grammar: Grammar) -> Tolerance | None:
    """Return the tolerance of a call; None for other expressions."""
    if name.endswith("toBeCloseTo"):
        digits = 2.0 if len(arguments) < 3 else _number(arguments[2])
        return None if digits is None else Tolerance(absolute=10.0 ** -min(digits, 300.0))
    place = grammar.compares[name]
    if place is None or len(arguments) <= place:
        return EXACT
    (last, *rest) = arguments[place]
    if not rest and grammar.literals.get(last.type) == "string":
        return EXACT  # a message
    number = _number(arguments[place])
    return None if number is None else Tolerance(absolute=number)


def _of_condition(condition: Expression, grammar: Grammar, equal: str) -> Iterator[Comparison]:
    """Yield the comparisons of a condition which holds (`equal` is `==`), or fails (`!=`)."""
    condition = _bare(condition)
    if len(condition) == 1 and condition[0].type == "binary_expression":
        condition = condition[0].children
    operators = [n for n, each in enumerate(condition) if _operator(each)]
    if len(operators) == 1:
        at = operators[0]
        sign, left, right = text_of(condition[at]), condition[:at], condition[at + 1 :]
        if sign in (equal, f"{equal}=") and left and right:
            yield Comparison(left, right)
        elif sign in ((">", ">=") if equal == "!=" else ("<", "<=")) and len(left) == 1:
            yield from _of_difference(left[0], _number(right), grammar)
        return
    wanted = condition
    if equal == "!=":
        if len(condition) != 1 or condition[0].type != "unary_expression":
            return
        sign_node, *wanted = condition[0].children
        if text_of(sign_node) != "!":
            return
    if len(wanted) == 1:
        yield from _of_equality(_bare(wanted)[0], grammar)


def _of_equality(node: Node, grammar: Grammar) -> Iterator[Comparison]:
    """Yield the comparison of a call such as `reflect.DeepEqual(a, b)` or `a.equals(b)`."""
    name, arguments = callee_of(node)
    if name in grammar.equals and len(arguments) == 2:
        yield Comparison(arguments[0], arguments[1])
    owner = node.child_by_field_name("object")
    is_method = name.endswith(".equals") and ".equals" in grammar.equals
    if is_method and owner is not None and len(arguments) == 1:
        yield Comparison([owner], arguments[0])


def _of_difference(node: Node, bound: float | None, grammar: Grammar) -> Iterator[Comparison]:
    """Yield the comparison of `abs(a - b)` with a bound."""
    name, arguments = callee_of(node)
    if name not in grammar.absolute or bound is None or len(arguments) != 1:
        return
    parts = arguments[0]
    if len(parts) == 1 and parts[0].type == "binary_expression":
        left, sign, right = parts[0].children
        if text_of(sign) == "-":
            yield Comparison([left], [right], Tolerance(absolute=bound))


def _operator(node: Node) -> bool:
    return node.child_count == 0 and text_of(node) in (
        "==", "!=", "===", "!==", "<", "<=", ">", ">=", "&&", "||", "=",
    )  # fmt: skip


def _bare(expression: Expression) -> Expression:
    """Return an expression without its outer parentheses."""
    while len(expression) == 1 and expression[0].type == "parenthesized_expression":
        expression = expression[0].children[1:-1]
    return expression


def _literal(expression: Expression, grammar: Grammar, text: Text) -> Literal | None:
    """Return the value of a literal expression; None for an expression without scalars."""
    nodes: list[Node] = []
    if not expression or not all(_collect(each, grammar, nodes) for each in expression):
        return None
    scalars = tuple(filter(None, (_scalar(node, grammar, text) for node in nodes)))
    if not scalars:
        return None
    begin, end = text.place(expression[0].start_byte), text.place(expression[-1].end_byte)
    shape, at = [], begin
    for scalar in scalars:
        shape += [text.text[at : scalar.begin], scalar.kind]
        at = scalar.end
    shape.append(text.text[at:end])
    values = tuple((scalar.kind, scalar.value) for scalar in scalars)
    whole = text.text[begin:end]
    return Literal(
        begin,
        end,
        "".join("".join(shape).split()),
        values,
        scalars,
        None,
        whole if "\n" not in whole else None,
    )


def _collect(node: Node, grammar: Grammar, found: list[Node]) -> bool:
    """Add the scalars of a literal; return False for other nodes."""
    if node.type in grammar.literals:
        found.append(node)
        return True
    if node.type in grammar.transparent:
        return True
    if node.type == "keyed_element":  # of Go: the name of a field is no value
        key, *_, value = node.children
        names = [each.type for each in key.children] == ["identifier"]
        return (names or _collect(key, grammar, found)) and _collect(value, grammar, found)
    if node.child_count == 0:
        return text_of(node) in grammar.words
    return all(_collect(each, grammar, found) for each in node.children)


def _scalar(node: Node, grammar: Grammar, text: Text) -> Scalar | None:
    kind = grammar.literals[node.type]
    begin, end = text.place(node.start_byte), text.place(node.end_byte)
    written = text_of(node)
    if kind in ("integer", "float"):
        found = _NUMBER.fullmatch(written)
        if found is None:
            return None
        digits = found[1].replace("_", "")
        if not _FRACTION.search(digits):
            return Scalar(begin, end, "integer", int(digits))
        return Scalar(begin, end, "float", float(digits))
    if kind == "boolean":
        return Scalar(begin, end, kind, written == "true")
    if kind == "string":
        is_plain = len(written) >= 2 and written[0] == written[-1] and written[0] in "\"'"
        return Scalar(begin, end, kind, written[1:-1]) if is_plain else None
    if kind == "bytes":
        is_letter = len(written) == 3 and written[1].isascii() and written[1] != "\\"
        return Scalar(begin, end, kind, written[1]) if is_letter else None
    return Scalar(begin, end, kind, None)


def _number(expression: Expression) -> float | None:
    if len(expression) != 1:
        return None
    found = _NUMBER.fullmatch(text_of(expression[0]))
    return None if found is None else float(found[1].replace("_", ""))


class Written:
    """The dialect of a language with a grammar: a scalar is changed within its text."""

    def __init__(self, text: str, grammar: Grammar) -> None:
        self._text = text
        self._is_narrow = grammar.is_narrow

    def far(self, scalar: Scalar, tolerance: Tolerance, draw: Draw) -> str | None:
        """Return a value far beyond the tolerance as text, if any."""
        written = self._text[scalar.begin : scalar.end]
        match scalar.kind, scalar.value:
            case "boolean", bool(value):
                return "false" if value else "true"
            case "string", _:
                return f"{written[:-1]}{_letters(draw, scalar.begin)}{written[-1]}"
            case "bytes", str(value):
                others = [each for each in _LETTERS if each != value.lower()]
                chosen = others[draw.below(len(others), "letter", scalar.begin)]
                return f"{written[0]}{chosen}{written[-1]}"
            case "null", _:
                return str(_LARGE_PRIMES[draw.below(len(_LARGE_PRIMES), "prime", scalar.begin)])
            case "integer", int(value):
                return self._integer(value, written, tolerance, draw, scalar.begin)
            case "float", float(value):
                far = (value + tolerance.absolute + 1.0) * (
                    1021 + draw.below(97, "far", scalar.begin)
                )
                is_far = far < 1e30 and tolerance.separates(value, far)
                return f"{far!r}{_suffix(written)}" if is_far else None
        return None

    def _integer(
        self, value: int, written: str, tolerance: Tolerance, draw: Draw, place: int
    ) -> str | None:
        primes = _SMALL_PRIMES if self._is_narrow else _LARGE_PRIMES
        prime = primes[draw.below(len(primes), "prime", place)]
        if tolerance != EXACT:
            far = int(value + tolerance.absolute + 1) * 1021 + prime
            return f"{far}{_suffix(written)}" if tolerance.separates(value, far) else None
        far = value + prime
        if self._is_narrow and far > 127 and value > prime:
            far = value - prime
        if not self._is_narrow and value > _EXACT_INTEGERS:
            far = value // 3
        return f"{far}{_suffix(written)}"

    def element(self, literal: Literal, draw: Draw) -> str | None:
        """Return None: empty containers lack a clear expectation."""
        return None

    def fitted(self, text: str, replaced: str) -> str:
        """Return a literal with at least as many lines as the replaced literal."""
        lines = replaced.count("\n") - text.count("\n")
        return text + "\n" * max(lines, 0)


def _suffix(written: str) -> str:
    found = _NUMBER.fullmatch(written)
    return (found[2] or "") if found else ""


def _letters(draw: Draw, place: int) -> str:
    return "".join(_LETTERS[draw.below(len(_LETTERS), "letter", n, place)] for n in range(6))
