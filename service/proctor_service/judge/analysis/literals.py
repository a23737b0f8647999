"""Bounded evaluation of constant expressions in test code: `3 * 19`, `set()`, `list(range(5))`.

Python's own `ast.literal_eval` accepts displays only. This module evaluates without running code of the
tests, and limits all values to a million items or characters.

`OPERATORS`: the operators of Python, by the names of their classes in `ast`.
"""

from __future__ import annotations

import ast
import math
import operator
from collections.abc import Callable, Iterator, Sequence
from typing import Any, Protocol

OPERATORS: dict[str, Callable[[Any, Any], Any]] = {
    "Add": operator.add, "Sub": operator.sub, "Mult": operator.mul, "Div": operator.truediv,
    "FloorDiv": operator.floordiv, "Mod": operator.mod, "BitAnd": operator.and_,
    "BitOr": operator.or_, "BitXor": operator.xor, "RShift": operator.rshift,
}  # fmt: skip


_MOST_ITEMS = 100_000
_MOST_CHARACTERS = 1 << 20
_MOST_BITS = 100_000
_MOST_NODES = 200_000
_MOST_WEIGHT = 1_000_000  # of one value
_MOST_TOTAL_WEIGHT = 4_000_000  # of all values made for a suite, beyond the length of its text
_MOST_DIGITS = 10_000  # of `round`: more are an integer of as many digits

_SIMPLE = ("Add", "Sub", "Div", "FloorDiv", "Mod", "BitAnd", "BitOr", "BitXor", "RShift")
_UNARY: dict[type[ast.unaryop], Callable[[Any], Any]] = {
    ast.USub: operator.neg,
    ast.UAdd: operator.pos,
    ast.Invert: operator.invert,
    ast.Not: operator.not_,
}
_CALLS: dict[str, Callable[..., Any]] = {
    **{call.__name__: call for call in (set, frozenset, list, tuple, dict, sorted, len, sum)},
    **{call.__name__: call for call in (min, max, abs, round, float, int, str, bool, complex)},
    **{call.__name__: call for call in (bytes, bytearray, chr, ord, reversed, zip, enumerate)},
    "range": range,
}
TYPES: dict[str, type] = {
    kind.__name__: kind
    for kind in (bool, int, float, complex, str, bytes, list, tuple, dict, set, frozenset, object)
}
_ITERATORS = (reversed, zip, enumerate)
_CONSTANTS = {"math": {name: getattr(math, name) for name in ("pi", "e", "tau", "inf", "nan")}}
_ORDERED = (list, tuple, dict, sum, min, max, zip, enumerate, bytes, bytearray)
_ENCODINGS = frozenset(["utf-8", "utf8", "UTF-8", "ascii", "latin-1", "latin1"])
"""Other encodings may be slow: the time of punycode grows with the square of the length."""
_TEXT_METHODS = frozenset(["lower", "upper", "strip", "split", "title", "join", "encode"])
_NUMBERS = (int, float, complex, bool)
_LIGHT = frozenset([float, complex, bool, type(None)])
# Tuples: each `str | bytes` in a function would make a new object at each call.
_TEXTS = (str, bytes, bytearray)
_CONTAINERS = (list, tuple, set, frozenset, dict)
_SIZED = (*_TEXTS, *_CONTAINERS)
_MUTABLE = (list, dict, set, bytearray)


class Variables(Protocol):
    """Variables with possibly constant values; reading a variable may raise NotConstant."""

    def __contains__(self, name: object, /) -> bool: ...

    def __getitem__(self, name: str, /) -> Any: ...


class NotConstant(Exception):
    """The expression varies, or is beyond the bounds."""


class Weights:
    """The expanded size of containers: items and characters, counted again at each reference.

    A few nested products make a value of gigabytes as text, and minutes to hash. A long text may make
    many slow values, so their sum is bounded, too; the bound of an honest suite, which writes most of its
    values out, grows with the text.
    """

    def __init__(self, characters: int = 0) -> None:
        self._sizes: dict[int, tuple[Any, int]] = {}  # by id, with the container to keep it alive
        self._mutable: dict[int, bool] = {}
        self._nodes_left = _MOST_NODES + 4 * characters
        self._left = self._most = _MOST_TOTAL_WEIGHT + 4 * characters

    @property
    def spent(self) -> int:
        """The items and characters of all values so far."""
        return self._most - self._left

    def count_node(self) -> None:
        """Count the evaluation of an expression. Raises NotConstant."""
        self._nodes_left -= 1
        if self._nodes_left < 0:
            raise NotConstant("too large")

    def checked(self, value: Any) -> Any:
        """Count a value, and return the value. Raises NotConstant."""
        if type(value) in _LIGHT:
            return value
        if type(value) is int:
            self.spend(value.bit_length() >> 3)
            return value
        if self.of(value) > _MOST_WEIGHT:
            raise NotConstant("too large")
        if isinstance(value, _SIZED):
            self.spend(len(value))
        return value

    def spend(self, weight: int) -> None:
        """Count a value made or read. Raises NotConstant."""
        self._left -= weight
        if self._left < 0:
            raise NotConstant("too large")

    def is_mutable(self, value: Any) -> bool:
        """Tell whether a constant is a mutable container, or a tuple with a mutable container."""
        if not isinstance(value, tuple):
            return isinstance(value, _MUTABLE)
        found = self._mutable.get(id(value))
        if found is None:
            self.of(value)  # keeps it alive
            found = self._mutable[id(value)] = any(map(self.is_mutable, value))
        return found

    def of(self, value: Any) -> int:
        """Return the weight of a value."""
        if type(value) in _LIGHT or type(value) is int:
            return 1
        if isinstance(value, _TEXTS):
            return 1 + len(value)
        if not isinstance(value, _CONTAINERS):
            return 1
        found = self._sizes.get(id(value))
        if found is None:
            parts = [*value, *value.values()] if isinstance(value, dict) else value
            found = value, 1 + sum(map(self.of, parts))
            self._sizes[id(value)] = found
        return found[1]


def evaluate(
    node: ast.expr,
    names: Variables,
    module_of: Callable[[str], str] = lambda name: "",
    weights: Weights | None = None,
    failed: set[int] | None = None,
) -> Any:
    """Return the value of a constant expression.

    `names` are variables with constant values; `module_of` returns the module of a name, or "";
    `weights`: of earlier values. `failed` are the ids of expressions known not to be constants, for the
    same names; newly found ids are added. Each call builds a new value. Raises NotConstant.
    """
    return Evaluator(names, module_of, weights or Weights()).of(node, failed)


class NotPlannable(Exception):
    """The tests need more than calls and formulas."""


class Evaluator:
    """Evaluator of the expressions of a suite; the arguments are as of `evaluate`."""

    def __init__(self, names: Variables, module_of: Callable[[str], str], weights: Weights) -> None:
        self._names = names
        self._module_of = module_of
        self._weights = weights
        self._failed: set[int] = set()

    def of(self, node: ast.expr, failed: set[int] | None = None) -> Any:
        """Return the value of an expression, as `evaluate`. Raises NotConstant."""
        self._failed = set() if failed is None else failed
        try:
            value = self.value(node)
        except (NotConstant, NotPlannable):
            raise
        except Exception as error:  # raised by the expression itself: 1 / 0
            raise NotConstant(f"{type(error).__name__}") from None
        if isinstance(value, _ITERATORS):
            raise NotConstant("an iterator")
        return value

    def value(self, node: ast.expr) -> Any:
        """Return the value of a part. Raises NotConstant, and the expression's own exceptions."""
        self._weights.count_node()
        handler = _HANDLERS.get(type(node))
        if handler is None or id(node) in self._failed:
            raise NotConstant("not a constant")
        try:
            return self._weights.checked(handler(self, node))
        except Exception:
            self._failed.add(id(node))
            raise

    def _name(self, node: ast.Name) -> Any:
        if node.id in self._names:
            return self._names[node.id]
        if node.id not in TYPES:
            raise NotConstant(node.id)
        return TYPES[node.id]

    def _items(self, nodes: list[ast.expr]) -> list[Any]:
        items: list[Any] = []
        for node in nodes:
            if type(node) is ast.Constant:  # a list of literals is the most frequent long value
                items.append(node.value)
            elif type(node) is ast.Starred:
                several = self.value(node.value)
                if is_set(several):
                    raise NotConstant("the order of a set")
                _check_length(several)
                items.extend(several)
            else:
                items.append(self.value(node))
        return items

    def _dict(self, node: ast.Dict) -> Any:
        found: dict[Any, Any] = {}
        for key, value in zip(node.keys, node.values, strict=True):
            if key is None:
                found.update(self.value(value))
            else:
                found[self.value(key)] = self.value(value)
        return found

    def _binary(self, node: ast.BinOp) -> Any:
        left, right = self.value(node.left), self.value(node.right)
        name = type(node.op).__name__
        if name in _SIMPLE:
            if isinstance(node.op, ast.Mod) and not isinstance(left, _NUMBERS):
                raise NotConstant("a formatted text")
            return self._bounded(OPERATORS[name](left, right))
        if isinstance(node.op, ast.Mult):
            _check_product(left, right)
            return left * right
        if isinstance(node.op, ast.Pow) and isinstance(right, int | float):
            if isinstance(left, int) and isinstance(right, int):
                _check_bits(abs(left).bit_length() * max(right, 0))
            return left**right
        if isinstance(node.op, ast.LShift):
            _check_bits(left.bit_length() + right)
            return left << right
        raise NotConstant("not a constant")

    def _bounded(self, value: Any) -> Any:
        if isinstance(value, str | bytes) and len(value) > _MOST_CHARACTERS:
            raise NotConstant("too large")
        if isinstance(value, list | tuple) and len(value) > _MOST_ITEMS:
            raise NotConstant("too large")
        return value

    def _call(self, node: ast.Call) -> Any:
        keywords = {}
        for keyword in node.keywords:
            if keyword.arg is None:
                raise NotConstant("not a constant")
            keywords[keyword.arg] = self.value(keyword.value)
        if isinstance(node.func, ast.Attribute):
            return self._text_method(node.func, self._items(node.args), keywords)
        if not isinstance(node.func, ast.Name) or node.func.id in self._names:
            raise NotConstant("not a constant")
        function = _CALLS.get(node.func.id)
        if function is None:
            raise NotConstant(node.func.id)
        arguments = self._items(node.args)
        for each in arguments:
            _check_length(each)
            if isinstance(each, range):
                self._weights.spend(len(each))
        if depends_on_order(function, arguments):
            raise NotConstant("the order of a set")
        if function in (bytes, bytearray) and arguments and isinstance(arguments[0], int):
            raise NotConstant("not a constant")
        why = why_costly(function, [*arguments[1:], *keywords.values()])
        if why is not None:
            raise NotConstant(why)
        return self._bounded(function(*arguments, **keywords))

    def _text_method(self, func: ast.Attribute, arguments: list[Any], keywords: Any) -> Any:
        target = self.value(func.value)
        if type(target) is not str or func.attr not in _TEXT_METHODS or keywords:
            raise NotConstant("not a constant")
        if len(target) * sum(1 for each in arguments for _ in each or ()) > _MOST_CHARACTERS:
            raise NotConstant("too large")
        if func.attr == "encode" and not _ENCODINGS.issuperset(arguments):
            raise NotConstant("an encoding")
        if any(map(is_set, arguments)):
            raise NotConstant("the order of a set")
        return self._bounded(getattr(target, func.attr)(*arguments))

    def _attribute(self, node: ast.Attribute) -> Any:
        if isinstance(node.value, ast.Name):
            constants = _CONSTANTS.get(self._module_of(node.value.id), {})
            if node.attr in constants:
                return constants[node.attr]
        raise NotConstant("not a constant")

    def _subscript(self, node: ast.Subscript) -> Any:
        whole, index = self.value(node.value), node.slice
        if isinstance(index, ast.Slice):
            parts = (index.lower, index.upper, index.step)
            return whole[slice(*(None if part is None else self.value(part) for part in parts))]
        return whole[self.value(index)]


_HANDLERS: dict[type[ast.expr], Callable[[Evaluator, Any], Any]] = {
    ast.Constant: lambda evaluator, node: node.value,
    ast.Name: Evaluator._name,
    ast.List: lambda evaluator, node: evaluator._items(node.elts),
    ast.Tuple: lambda evaluator, node: tuple(evaluator._items(node.elts)),
    ast.Set: lambda evaluator, node: set(evaluator._weights.checked(evaluator._items(node.elts))),
    ast.Dict: Evaluator._dict,
    ast.UnaryOp: lambda evaluator, node: _UNARY[type(node.op)](evaluator.value(node.operand)),
    ast.BinOp: Evaluator._binary,
    ast.Call: Evaluator._call,
    ast.Attribute: Evaluator._attribute,
    ast.Subscript: Evaluator._subscript,
}


def is_set(value: Any) -> bool:
    """Tell whether a value is a set: the order of a set differs between processes."""
    return isinstance(value, set | frozenset)


def depends_on_order(function: Callable[..., Any], arguments: Sequence[Any]) -> bool:
    """Tell whether a built-in's result depends on the order of a set, for `str` at any depth."""
    if function is not str:
        return function in _ORDERED and any(map(is_set, arguments))
    return any(map(is_set, parts_of(arguments)))


def parts_of(values: Sequence[Any]) -> Iterator[Any]:
    """Yield values, and all inside lists, tuples and dictionaries, without recursion."""
    parts = list(values)
    while parts:
        part = parts.pop()
        yield part
        if isinstance(part, list | tuple | dict):
            parts += part
        if isinstance(part, dict):
            parts += part.values()


def why_costly(function: Callable[..., Any], more: Sequence[Any]) -> str | None:
    """Return the reason why a call of a built-in does much work for few arguments, if any.

    `more`: all arguments after the first.
    """
    if function is sum and not all(isinstance(each, _NUMBERS) for each in more):
        return "a sum of containers"
    if function is round and any(isinstance(n, int) and abs(n) > _MOST_DIGITS for n in more):
        return "many digits"
    return None


def _check_length(value: Any) -> None:
    if isinstance(value, range) and len(value) > _MOST_ITEMS:
        raise NotConstant("too large")
    if isinstance(value, int) and value.bit_length() > _MOST_BITS:
        raise NotConstant("too large")


def _check_product(left: Any, right: Any) -> None:
    for one, count in ((left, right), (right, left)):
        if isinstance(one, str | bytes | list | tuple):
            if not isinstance(count, int) or len(one) * count > _MOST_ITEMS:
                raise NotConstant("too large")
            return
    if isinstance(left, int) and isinstance(right, int):
        _check_bits(left.bit_length() + right.bit_length())


def _check_bits(bits: int) -> None:
    if bits > _MOST_BITS:
        raise NotConstant("too large")
