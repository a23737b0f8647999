"""Decoders for built-in types and the types of ``collections``, by tag of the wire form.

The function of a leaf returns the value. A container has three entries: the index of its first
part in the wire form; a function that makes the empty container, or None if the container is made
from its parts; and a function that finishes the container from the decoded parts, or None for a
list. The last function takes the container's weight: its expanded size, counted in parts. The
weight bounds the cost of comparing all parts.
"""

from __future__ import annotations

import collections
from typing import TYPE_CHECKING, Any

from . import numpy_values, set_order, standard_library
from .builtin_encoders import BUILTIN_TYPES
from .limits import MAX_LINE_BYTES, Malformed
from .tables import fill_dict, fill_set

if TYPE_CHECKING:
    from collections.abc import Callable

    Make = Callable[[Any, list[Any]], Any]
    Finish = Callable[[Any, Any, list[Any], list[Any], int], Any]

PENDING = object()


def _big(decoder: Any, wire: list[Any]) -> int:
    text = _one_text(wire)
    decoder.spend(len(text))
    return int(text, 16)


def _one_text(wire: list[Any]) -> str:
    (text,) = wire[1:]
    if type(text) is not str or len(text) > MAX_LINE_BYTES:
        raise Malformed("not a text")
    return text


def _bytes(decoder: Any, wire: list[Any]) -> bytes:
    text = _one_text(wire)
    decoder.spend(len(text))
    return bytes.fromhex(text)


def _bytearray(decoder: Any, wire: list[Any]) -> bytearray:
    value = bytearray(_bytes(decoder, wire))
    decoder.remember(value, 2 * len(value))
    return value


def _text(decoder: Any, wire: list[Any]) -> str:
    return _bytes(decoder, wire).decode("utf-8", "surrogatepass")


def _nan(decoder: Any, wire: list[Any]) -> float:
    """Return a new NaN object. A later back-reference returns the same object."""
    value = float("nan")
    decoder.remember(value)
    return value


def _numpy_nan(decoder: Any, wire: list[Any]) -> float:
    numpy = numpy_values.numpy_for(decoder)
    return float("nan") if numpy is None else numpy.nan


def _complex(decoder: Any, wire: list[Any]) -> complex:
    real, imag = wire[1:]
    if type(real) is not float or type(imag) is not float:
        raise Malformed("not a complex number")
    return complex(real, imag)


def _builtin_type(decoder: Any, wire: list[Any]) -> type:
    (name,) = wire[1:]
    if type(name) is not str or name not in BUILTIN_TYPES:
        raise Malformed("not a built-in type")
    return BUILTIN_TYPES[name]


def _set(decoder: Any, target: Any, items: list[Any], wire: list[Any], weight: int) -> Any:
    fill_set(target, items, weight, decoder.seconds_each)
    return target


def _placed_set(decoder: Any, target: Any, items: list[Any], wire: list[Any], weight: int) -> Any:
    set_order.check(wire[1], len(items))
    decoder.spend(set_order.cost(wire[1]))
    set_order.place(target, items, wire[1], weight)
    return target


def _frozenset(decoder: Any, target: Any, items: list[Any], wire: list[Any], weight: int) -> Any:
    found: set[Any] = set()
    fill_set(found, items, weight, decoder.seconds_each)
    return frozenset(found)


def _placed_frozenset(
    decoder: Any, target: Any, items: list[Any], wire: list[Any], weight: int
) -> Any:
    set_order.check(wire[1], len(items))
    decoder.spend(set_order.cost(wire[1]))
    return set_order.freeze(items, wire[1], weight)


def _dict(decoder: Any, target: Any, items: list[Any], wire: list[Any], weight: int) -> Any:
    fill_dict(target, items, weight, decoder.seconds_each)
    return target


def _default_dict(decoder: Any, target: Any, items: list[Any], wire: list[Any], weight: int) -> Any:
    factory, *flat = items
    target.default_factory = factory if callable(factory) else None
    return _dict(decoder, target, flat, wire, weight)


def _make_deque(decoder: Any, wire: list[Any]) -> Any:
    length = wire[1]
    if length is not None and type(length) is not int:
        raise Malformed("not a length")
    return collections.deque(maxlen=length)


def _deque(decoder: Any, target: Any, items: list[Any], wire: list[Any], weight: int) -> Any:
    target.extend(items)
    return target


def _keys_view(decoder: Any, target: Any, items: list[Any], wire: list[Any], weight: int) -> Any:
    flat = [part for item in items for part in (item, None)]
    return _dict(decoder, {}, flat, wire, weight).keys()


def _range(decoder: Any, target: Any, items: list[Any], wire: list[Any], weight: int) -> Any:
    start, stop, step = items
    if not type(start) is type(stop) is type(step) is int:
        raise Malformed("not a range")
    return range(start, stop, step)


def _slice(decoder: Any, target: Any, items: list[Any], wire: list[Any], weight: int) -> Any:
    start, stop, step = items
    return slice(start, stop, step)


LEAVES: dict[str, Callable[[Any, list[Any]], Any]] = {
    **standard_library.DECODERS,
    **numpy_values.DECODERS,
    "i": _big,
    "b": _bytes,
    "u": _text,
    "ba": _bytearray,
    "nan": _nan,
    "npnan": _numpy_nan,
    "c": _complex,
    "...": lambda decoder, wire: ...,
    "ni": lambda decoder, wire: NotImplemented,
    "T": _builtin_type,
    "r": lambda decoder, wire: decoder.back(wire),
    "m": lambda decoder, wire: decoder.shared(wire),
    "h": lambda decoder, wire: decoder.handle(wire),
    "n": lambda decoder, wire: decoder.handle(wire),
    "e": lambda decoder, wire: decoder.handle(wire),
    "o": lambda decoder, wire: decoder.shared(wire),
    "p": lambda decoder, wire: decoder.shared(wire),
}
CONTAINERS: dict[str, tuple[int, Make | None, Finish | None]] = {
    **standard_library.CONTAINERS,
    "l": (1, None, None),
    "t": (1, None, lambda decoder, target, items, wire, weight: tuple(items)),
    "s": (1, lambda decoder, wire: set(), _set),
    "so": (2, lambda decoder, wire: set(), _placed_set),
    "fs": (1, None, _frozenset),
    "fso": (2, None, _placed_frozenset),
    "d": (1, lambda decoder, wire: {}, _dict),
    "od": (1, lambda decoder, wire: collections.OrderedDict(), _dict),
    "cn": (1, lambda decoder, wire: collections.Counter(), _dict),
    "dd": (1, lambda decoder, wire: collections.defaultdict(), _default_dict),
    "dq": (2, _make_deque, _deque),
    "dk": (1, None, _keys_view),
    "dv": (1, None, lambda decoder, target, items, wire, weight: dict(enumerate(items)).values()),
    "di": (
        1,
        None,
        lambda decoder, target, items, wire, weight: _dict(
            decoder, {}, items, wire, weight
        ).items(),
    ),
    "range": (1, None, _range),
    "slice": (1, None, _slice),
}
