"""Literals of Python: read by the positions of the syntax tree, written as source."""

from __future__ import annotations

import ast
import math
import re
from dataclasses import dataclass

from proctor_service.judge.control.expectations import (
    EXACT,
    Draw,
    Kind,
    Literal,
    Scalar,
    Tolerance,
)

# Of no contest, no hash and no power of two: what is equal modulo something else stays unequal.
_PRIMES = (1_234_567_007, 1_357_911_403, 1_731_206_453, 1_962_487_223, 2_015_113_619)
_LETTERS = "bcdfghjklmnpqrstvwxz"
_KINDS: dict[type, Kind] = {
    bool: "boolean",
    int: "integer",
    float: "float",
    complex: "complex",
    str: "string",
    bytes: "bytes",
    type(None): "null",
}
_CONTAINERS = (ast.List, ast.Tuple, ast.Set, ast.Dict)
_LINE = re.compile(r"\r\n|\r|\n")  # as the tokenizer counts lines: a form feed ends none
_MOST_PARTS = 2000  # of a literal
_OF_ONE = frozenset(
    (
        *("builtins.set", "builtins.frozenset", "builtins.tuple", "builtins.list", "builtins.dict"),
        *("collections.deque", "collections.Counter", "collections.OrderedDict"),
    )
)
"""Constructors of containers; each element of the argument changes the container's value."""


@dataclass(frozen=True, slots=True)
class Positions:
    """Places of a text's nodes in characters."""

    text: str
    starts: tuple[int, ...]
    is_ascii: bool

    @classmethod
    def of(cls, text: str) -> Positions:
        """Return the positions of a text."""
        starts = (0, *(found.end() for found in _LINE.finditer(text)))
        return cls(text, starts, text.isascii())

    def span(self, node: ast.expr) -> tuple[int, int]:
        """Return begin and end of a node."""
        assert node.end_lineno is not None
        assert node.end_col_offset is not None
        return (
            self._place(node.lineno, node.col_offset),
            self._place(node.end_lineno, node.end_col_offset),
        )

    def _place(self, line: int, column_bytes: int) -> int:
        start = self.starts[line - 1]
        if self.is_ascii:
            return start + column_bytes
        beginning = self.text[start : start + column_bytes]
        if beginning.isascii():
            return start + column_bytes
        encoded = beginning.encode("utf-8", "surrogatepass")[:column_bytes]
        return start + len(encoded.decode("utf-8", "surrogatepass"))


def is_literal(node: ast.expr) -> bool:
    """Return True for a literal, also a nested literal."""
    match node:
        case ast.Constant(value=value):
            return type(value) in _KINDS
        case ast.UnaryOp(op=ast.UAdd() | ast.USub(), operand=ast.Constant(value=value)):
            return type(value) in (int, float, complex)
        case ast.List(elts=parts) | ast.Tuple(elts=parts) | ast.Set(elts=parts):
            return all(map(is_literal, parts))
        case ast.Dict(keys=keys, values=values):
            return all(key is not None and is_literal(key) for key in keys) and all(
                map(is_literal, values)
            )
    return False


def literal_of(node: ast.expr, positions: Positions) -> Literal | None:
    """Return the literal of an expression, if any. Calls are calls of constructors."""
    if isinstance(node, ast.Call):
        return _constructed(node, positions)
    if not is_literal(node):
        return None
    begin, end = positions.span(node)
    text = positions.text[begin:end]
    try:
        value = ast.literal_eval(node)
        if ast.literal_eval(text) != value and value == value:
            return None
    except (ValueError, TypeError, SyntaxError, MemoryError, RecursionError):
        return None
    parts = list(_scalars(node))
    if len(parts) > _MOST_PARTS:
        return None
    scalars = tuple(_scalar(each, positions) for each in parts)
    gap = None if scalars else _gap(node, positions)
    is_plain = "\n" not in text and "\r" not in text
    return Literal(
        begin, end, _type(node), value, scalars, gap, _movable(node, text) if is_plain else None
    )


def is_constructor(call: ast.Call, name: str) -> bool:
    """Tell whether a call of a function with this full name makes a value of literals."""
    if call.keywords or not call.args or not all(map(is_literal, call.args)):
        return False
    first = call.args[0]
    if name in _OF_ONE:
        is_numeric = isinstance(first, ast.Constant) and not isinstance(first.value, str)
        return len(call.args) == 1 and not is_numeric
    if name == "decimal.Decimal":
        return len(call.args) == 1 and _decimal(first) is not None
    is_integral = all(_type(each) == "integer" for each in call.args)
    return name == "fractions.Fraction" and len(call.args) < 3 and is_integral


def _constructed(call: ast.Call, positions: Positions) -> Literal | None:
    """Return the value of a constructor: its first argument changes."""
    begin, end = positions.span(call)
    inner = literal_of(call.args[0], positions)
    if inner is None:
        return None
    text = positions.text[begin:end]
    function = ast.unparse(call.func)
    values = tuple(repr(ast.literal_eval(each)) for each in call.args)
    scalars, divisor = inner.scalars, 1.0
    number = _decimal(call.args[0])
    if function.endswith("Decimal") and number is not None:
        first = scalars[0]
        scalars = (Scalar(first.begin, first.end, "decimal", number),)
    elif len(call.args) > 1:
        divisor = float(abs(ast.literal_eval(call.args[1])))
    is_plain = not _LINE.search(text)
    return Literal(
        begin, end, function, values, scalars, inner.gap, text if is_plain else None, divisor
    )


def _decimal(node: ast.expr) -> float | None:
    """Return the value of a literal argument of `Decimal`, if a number of ordinary size."""
    if isinstance(node, ast.Constant) and isinstance(node.value, str):
        try:
            value = float(node.value)
        except ValueError:
            return None
        return value if math.isfinite(value) else None
    return None


def number_of(node: ast.expr | None) -> float | None:
    """Return the value of a literal number, if finite and at least 0."""
    match node:
        case ast.Call(func=ast.Name(id="Decimal"), args=[text], keywords=[]):
            return _decimal(text)
        case ast.Call(func=ast.Name(id="Fraction"), args=[one, two], keywords=[]):
            above, below = number_of(one), number_of(two)
            return above / below if above is not None and below else None
        case ast.Constant(value=bool()):
            return None
        case ast.Constant(value=int() | float() as value) if abs(value) < 1e300:
            return float(value)
    return None


def has_rows(node: ast.expr) -> bool:
    """Tell whether each list of a literal has two elements or more: an empty array equals anything."""
    if not isinstance(node, ast.List | ast.Tuple) or len(node.elts) < 2:
        return False
    return all(has_rows(each) for each in node.elts if isinstance(each, ast.List | ast.Tuple))


class Python:
    """The dialect of Python."""

    def far(self, scalar: Scalar, tolerance: Tolerance, draw: Draw) -> str | None:
        """Return a value far beyond the tolerance as text, if any."""
        place = (scalar.begin, scalar.kind)
        prime = _PRIMES[draw.below(len(_PRIMES), "prime", *place)]
        match scalar.kind, scalar.value:
            case "boolean", bool(value):
                return repr(not value)
            case "null", _:
                return "..."
            case "decimal", float(value):
                far = _far_number(value, tolerance, prime)
                return None if far is None else repr(far)
            case "string", str(value):
                return repr(value + _letters(draw, *place))
            case "bytes", bytes(value):
                return repr(value + _letters(draw, *place).encode())
            case "complex", complex() as value:
                return _if_other(value + prime * (1 + abs(value)), value)
            case "integer", int(value) if tolerance == EXACT:
                return repr(value - prime if draw.below(2, "sign", *place) else value + prime)
            case (("integer" | "float"), (int() | float() as value)):
                return _far_number(value, tolerance, prime)
        return None

    def element(self, literal: Literal, draw: Draw) -> str | None:
        """Return the text of an element for an empty container."""
        number = _PRIMES[draw.below(len(_PRIMES), "element", literal.begin)]
        return {"dict": f"{number}: {number}", "tuple": f"{number},"}.get(
            literal.type, repr(number)
        )

    def fitted(self, text: str, replaced: str) -> str:
        """Return a literal with as many lines as the replaced literal."""
        lines = len(_LINE.findall(replaced))
        return f"({text}{chr(10) * lines})" if lines else text


PYTHON = Python()


def _far_number(value: float, tolerance: Tolerance, prime: int) -> str | None:
    """Return a number far from another, if any."""
    try:
        size = abs(float(value))
        if math.isinf(size):
            return repr(float(prime)) if tolerance == EXACT else None
        candidates = [(size + tolerance.absolute + 1.0) * (prime % 8191 + 1021)]
        if not tolerance.absolute:
            candidates.append(size / (prime % 8191 + 1021))
    except OverflowError:
        return None
    for each in candidates:
        if math.isfinite(each) and tolerance.separates(value, each):
            return repr(math.ceil(each) if isinstance(value, int) else each)
    return None


def _if_other(new: complex, old: complex) -> str | None:
    is_written = math.isfinite(new.real) and math.isfinite(new.imag)
    return repr(new) if is_written and new != old else None


def _letters(draw: Draw, *place: object) -> str:
    return "".join(_LETTERS[draw.below(len(_LETTERS), "letter", n, *place)] for n in range(6))


def _type(node: ast.expr) -> str:
    match node:
        case ast.Constant(value=value) | ast.UnaryOp(operand=ast.Constant(value=value)):
            return _KINDS[type(value)]
    return type(node).__name__.lower()


def _movable(node: ast.expr, text: str) -> str:
    """Return a literal fit for any place: some tuples' texts lack parentheses."""
    return f"({text})" if isinstance(node, ast.Tuple) else text


def _scalars(node: ast.expr) -> list[ast.expr]:
    """Return the scalars of a literal; of a dictionary its values' types, if any."""
    match node:
        case ast.List(elts=parts) | ast.Tuple(elts=parts) | ast.Set(elts=parts):
            return [each for part in parts for each in _scalars(part)]
        case ast.Dict(keys=keys, values=values):
            found = [each for part in values for each in _scalars(part)]
            return found or [each for key in keys if key is not None for each in _scalars(key)]
    return [node]


def _scalar(node: ast.expr, positions: Positions) -> Scalar:
    value = ast.literal_eval(node)
    return Scalar(*positions.span(node), _KINDS[type(value)], value)


def _gap(node: ast.expr, positions: Positions) -> int | None:
    """Return the place behind the first bracket of the innermost empty container, if any."""
    match node:
        case ast.List(elts=parts) | ast.Tuple(elts=parts):
            if parts:
                return _gap(parts[0], positions)
            return positions.span(node)[0] + 1
        case ast.Dict(keys=[]):
            return positions.span(node)[0] + 1
    return None
