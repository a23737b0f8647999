"""Encoders for built-in types and the types of ``collections``, by ``id`` of the type.

The function of a leaf returns the wire form. The function of a container returns the head of the
wire form, and a snapshot of the parts, because encoding a part may run code that changes the
container.
"""

from __future__ import annotations

import builtins
import collections
import math
import re
from typing import TYPE_CHECKING, Any

from . import set_order
from .introspection import content_of as _of
from .introspection import loaded

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    Leaf = Callable[[Any, Any], Any]
    Opener = Callable[[Any, Any], tuple[list[Any], Sequence[Any]]]

_type, _len, _hex = type, len, hex
_list, _tuple, _dict, _set, _frozenset = list, tuple, dict, set, frozenset
_all = slice(None)
_Deque, _OrderedDict = collections.deque, collections.OrderedDict

_deque_maxlen = collections.deque.__dict__["maxlen"].__get__
_default_factory = collections.defaultdict.__dict__["default_factory"].__get__
_real = complex.__dict__["real"].__get__
_imag = complex.__dict__["imag"].__get__
_range_start = range.__dict__["start"].__get__
_range_stop = range.__dict__["stop"].__get__
_range_step = range.__dict__["step"].__get__
_is_ascii = str.isascii
_float_of, _int_of, _str_of = float.__float__, int.__int__, str.__str__
_encode_text, _bytes_hex = str.encode, bytes.hex
_nan = math.nan
# A JSON parser would merge this surrogate pair into one character.
_surrogate_pair = re.compile("[\ud800-\udbff][\udc00-\udfff]").search  # "\ud83d\ude00"

BUILTIN_TYPES: dict[str, type] = {
    **{name: item for name, item in vars(builtins).items() if type(item) is type},
    "NoneType": type(None),
    "ellipsis": type(...),
    "NotImplementedType": type(NotImplemented),
}


def _int(encoder: Any, value: Any) -> Any:
    number = _int_of(_of(value))
    if -0x8000000000000000 < number < 0x8000000000000000:
        return number
    text = _hex(number)
    encoder.spend(_len(text))
    return ["i", text]


def _float(encoder: Any, value: Any) -> Any:
    number = _float_of(_of(value))
    if number == number or value is _nan:
        return number
    # Containers compare NaN by identity, so the encoding keeps the identity of each NaN.
    if number is value:
        return ["npnan"] if value is loaded("numpy", "nan") else encoder.numbered(value, ["nan"])
    return number


def _text(encoder: Any, value: Any) -> Any:
    text = _str_of(_of(value))
    if _is_ascii(text):
        encoder.spend(_len(text))
        return text
    encoder.spend(6 * _len(text))
    if _surrogate_pair(text) is None:
        return text
    return ["u", _bytes_hex(_encode_text(text, "utf-8", "surrogatepass"))]


def _bytes(encoder: Any, value: Any) -> Any:
    value = bytes.__getitem__(_of(value), _all)
    encoder.spend(2 * _len(value))
    return ["b", _bytes_hex(value)]


def _bytearray(encoder: Any, value: Any) -> Any:
    content = bytearray.__getitem__(_of(value), _all)
    encoder.spend(2 * _len(content))
    return encoder.numbered(value, ["ba", bytearray.hex(content)])


def _complex(encoder: Any, value: Any) -> Any:
    return ["c", _real(_of(value)), _imag(_of(value))]


def _flat(pairs: Any) -> list[Any]:
    return [part for pair in pairs for part in pair]


def _default_dict(encoder: Any, value: Any) -> Any:
    source = _of(value)
    factory = encoder.visit(_default_factory(source))
    return ["dd", factory], _flat(_dict.items(source))


def _deque(encoder: Any, value: Any) -> Any:
    source = _of(value)
    return ["dq", _deque_maxlen(source)], _list(_Deque.__iter__(source))


def _range(encoder: Any, value: Any) -> Any:
    return ["range"], [_range_start(value), _range_stop(value), _range_step(value)]


def _slice(encoder: Any, value: Any) -> Any:
    return ["slice"], [value.start, value.stop, value.step]


def _view(tag: str) -> Opener:
    return lambda encoder, value: ([tag], _list(value))


def _items_view(encoder: Any, value: Any) -> Any:
    return ["di"], _flat(value)


def _as_leaf(opener: Opener) -> Leaf:
    def encode(encoder: Any, value: Any) -> Any:
        head, parts = opener(encoder, value)
        return encoder.numbered(value, head, parts)

    return encode


def _close_set(encoder: Any, value: Any, out: list[Any]) -> None:
    """Add the table layout to a set if the order of the items alone cannot restore the order."""
    if not encoder.ordered_sets:
        return
    kind = _type(value)
    layout = set_order.layout_of(value) if kind is _set or kind is _frozenset else None
    if layout is not None and encoder.affords(set_order.cost(layout)):
        out[0] = "so" if kind is _set else "fso"
        out[1:1] = [layout]


_BASE_LEAVES: dict[int, Leaf] = {
    id(int): _int,
    id(float): _float,
    id(str): _text,
    id(complex): _complex,
    id(bytes): _bytes,
    id(bytearray): _bytearray,
}
_BASE_CONTAINERS: dict[int, Opener] = {
    id(list): lambda encoder, value: (["l"], _list.__getitem__(_of(value), _all)),
    id(tuple): lambda encoder, value: (["t"], _tuple.__getitem__(_of(value), _all)),
    id(set): lambda encoder, value: (["s"], _list(_set.__iter__(_of(value)))),
    id(frozenset): lambda encoder, value: (["fs"], _list(_frozenset.__iter__(_of(value)))),
    id(_OrderedDict): lambda encoder, value: (["od"], _flat(_OrderedDict.items(_of(value)))),
    id(collections.Counter): lambda encoder, value: (["cn"], _flat(_dict.items(_of(value)))),
    id(collections.defaultdict): _default_dict,
    id(dict): lambda encoder, value: (["d"], _flat(_dict.items(_of(value)))),
    id(collections.deque): _deque,
}
# A subclass is encoded as the first of these types in its method resolution order.
BASES: dict[int, Leaf] = {
    **_BASE_LEAVES,
    **{key: _as_leaf(opener) for key, opener in _BASE_CONTAINERS.items()},
}
LEAVES: dict[int, Leaf] = {
    **_BASE_LEAVES,
    id(type(...)): lambda encoder, value: ["..."],
    id(type(NotImplemented)): lambda encoder, value: ["ni"],
}
CONTAINERS: dict[int, Opener] = {
    **_BASE_CONTAINERS,
    id(range): _range,
    id(slice): _slice,
    id(type({}.keys())): _view("dk"),
    id(type({}.values())): _view("dv"),
    id(type({}.items())): _items_view,
    id(type(_OrderedDict().keys())): _view("dk"),
    id(type(_OrderedDict().values())): _view("dv"),
    id(type(_OrderedDict().items())): _items_view,
}
CLOSING: dict[str, Callable[[Any, Any, list[Any]], None]] = {"s": _close_set, "fs": _close_set}
# A container of these types may hold a reference to itself.
FILLED_LATER = frozenset(
    map(id, (list, dict, set, _OrderedDict, collections.Counter, collections.defaultdict, _Deque))
)
