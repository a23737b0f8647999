"""Python values to JSON, by exact built-in type.

Decisions are made by ``type(x)``, and content is taken with the built-in types' own methods: an
object may lie in ``__class__``, ``__eq__``, ``__iter__`` or ``__len__``, and none of these is
asked. ``None``, booleans, strings, floats and integers below 2**63 stand for themselves; everything
else is a list that begins with a tag. A container met again is ``["r", n]``, n being its place in
the order of first visits, so that shared parts stay shared.
"""

import builtins
import collections
from collections.abc import Callable, Iterable
from typing import Any

from .library import library_encoder
from .refusals import MAX_BYTES, MAX_DEPTH, MAX_NODES, ValueTooDeep, ValueTooLarge

# References of our own: a submission may put its own functions under these names.
_type, _id, _len, _hex, _str = type, id, len, hex, str
_list, _tuple, _dict, _set = list, tuple, dict, set
_all = slice(None)

_type_mro = type.__dict__["__mro__"].__get__
_type_dict = type.__dict__["__dict__"].__get__
_type_name = type.__dict__["__qualname__"].__get__
_type_module = type.__dict__["__module__"].__get__
_deque_maxlen = collections.deque.__dict__["maxlen"].__get__
_default_factory = collections.defaultdict.__dict__["default_factory"].__get__
_real = complex.__dict__["real"].__get__
_imag = complex.__dict__["imag"].__get__
_range_start = range.__dict__["start"].__get__
_range_stop = range.__dict__["stop"].__get__
_range_step = range.__dict__["step"].__get__
_is_ascii = str.isascii
_float_of, _int_of, _str_of = float.__float__, int.__int__, str.__str__

BUILTIN_TYPES: dict[str, type] = {
    **{name: item for name, item in vars(builtins).items() if type(item) is type},
    "NoneType": type(None),
    "ellipsis": type(...),
    "NotImplementedType": type(NotImplemented),
}
_TYPE_NAMES = {id(item): name for name, item in BUILTIN_TYPES.items()}

MakeHandle = Callable[[Any], Any]


def class_name(cls: type) -> str:
    """``module.qualname`` of a class, whatever its metaclass says."""
    try:
        module, name = _type_module(cls), _type_name(cls)
    except AttributeError:
        return "?"
    name = name if _type(name) is _str else "?"
    if _type(module) is not _str or module == "builtins":
        return name[:200]
    return f"{module}.{name}"[:200]


def class_mro(cls: type) -> tuple[type, ...]:
    """The real method resolution order, whatever the metaclass says."""
    mro = _type_mro(cls)
    return mro if _type(mro) is _tuple else (cls, object)


def derives(cls: type, *bases: type) -> bool:
    """``issubclass`` without asking a class: its metaclass may say that it equals any other."""
    for each in class_mro(cls):
        for base in bases:
            if each is base:
                return True
    return False


class Encoder:
    """One encoding: the back-references, and the budget that is left.

    ``kept`` holds the containers in the order of their numbers; a peer shares the mutable ones
    afterwards. ``known`` may answer a wire form for a container that the other side already has,
    and ``reopen`` one for an object that is met within its own content.
    """

    def __init__(
        self,
        make_handle: MakeHandle | None = None,
        known: Callable[[Any], Any] | None = None,
    ) -> None:
        self.kept: list[Any] = []
        self._numbers: dict[int, int] = {}
        self._open: set[int] = set()
        self._make_handle = make_handle
        self._known = known
        self.reopen: Callable[[Any], Any] | None = None
        self._nodes = MAX_NODES
        self._bytes = MAX_BYTES
        self._depth = 0

    def encode(self, value: Any) -> Any:
        """The JSON form of a value; may be called again, and numbers then go on."""
        try:
            return self.visit(value)
        except RecursionError:
            raise ValueTooDeep("the value is nested too deep") from None

    def visit(self, value: Any) -> Any:
        """One value and what it holds."""
        self._nodes -= 1
        if self._nodes < 0:
            raise ValueTooLarge("the value has too many parts")
        handler = _ENCODERS.get(_id(_type(value)))
        if handler is not None:
            return handler(self, value)
        return self._rare(value)

    def _rare(self, value: Any) -> Any:
        handler = library_encoder(_type(value))
        if handler is not None:
            return handler(self, value)
        if _type(value) is type and _id(value) in _TYPE_NAMES:
            return ["T", _TYPE_NAMES[_id(value)]]
        return self.handle(value)

    def spend(self, size: int) -> None:
        """Count text against the budget."""
        self._bytes -= size
        if self._bytes < 0:
            raise ValueTooLarge("the value is too large")

    def items(self, tag: str, value: Any, children: Iterable[Any], *head: Any) -> Any:
        """A container of single items."""
        known = self._enter(value)
        if known is not None:
            return known
        out: list[Any] = [tag, *head]
        append, visit = out.append, self.visit
        for child in children:
            append(visit(child))
        self._leave(value)
        return out

    def pairs(self, tag: str, value: Any, children: Iterable[tuple[Any, Any]], *head: Any) -> Any:
        """A container of keys and values."""
        known = self._enter(value)
        if known is not None:
            return known
        out: list[Any] = [tag, *head]
        append, visit = out.append, self.visit
        for key, child in children:
            append([visit(key), visit(child)])
        self._leave(value)
        return out

    def handle(self, value: Any) -> Any:
        """Anything that is not plain: a reference, with the content of its built-in base."""
        known = self._enter(value)
        if known is not None:
            return known
        make_handle = self._make_handle or _describe
        wire: Any = make_handle(value)
        if _type(wire) is _list and _len(wire) == 3 and _type(wire[2]) is _dict:
            base = self._base(value)
            if base is not None:
                wire[2]["base"] = base
        self._leave(value)
        return wire

    def _enter(self, value: Any) -> Any:
        """A reference if the container was met before; else it gets a number, and None."""
        key = _id(value)
        number = self._numbers.get(key)
        if number is not None:
            if key in self._open and _type(value) not in _FILLED_LATER:
                wire = None if self.reopen is None else self.reopen(value)
                if wire is not None:
                    return wire
                raise ValueTooDeep("the value contains itself")
            return ["r", number]
        if self._known is not None:
            wire = self._known(value)
            if wire is not None:
                return wire
        self._depth += 1
        if self._depth > MAX_DEPTH:
            raise ValueTooDeep("the value is nested too deep")
        self._numbers[key] = _len(self.kept)
        self.kept.append(value)
        self._open.add(key)
        return None

    def is_open(self, value: Any) -> bool:
        """Whether the encoding of a value has begun and not ended."""
        return _id(value) in self._open

    def _leave(self, value: Any) -> None:
        self._depth -= 1
        self._open.discard(_id(value))

    def _base(self, value: Any) -> Any:
        for cls in class_mro(_type(value)):
            handler = _BASES.get(_id(cls)) or library_encoder(cls)
            if handler is not None:
                return handler(self, _Content(value))
        return None


class _Content:
    """An instance of a subclass, to be encoded as its built-in base: not numbered a second time."""

    __slots__ = ("value",)

    def __init__(self, value: Any) -> None:
        self.value = value


def _of(value: Any) -> Any:
    return value.value if _type(value) is _Content else value


def encode(value: Any, make_handle: MakeHandle | None = None) -> Any:
    """The JSON form of a value.

    ``make_handle`` is called with whatever is not plain and returns what stands for it. Without one
    that is ``["h", 0, {"type": name, "base": content of a built-in base, "truth": when it needs no
    call}]``. Raises ``ValueTooLarge`` and ``ValueTooDeep``, and whatever ``make_handle`` raises.
    """
    return Encoder(make_handle).encode(value)


def _describe(value: Any) -> Any:
    cls = _type(value)
    info: dict[str, Any] = {"type": class_name(cls)}
    for base in class_mro(cls):
        members = _type_dict(base)
        if "__bool__" in members or "__len__" in members:
            return ["h", 0, info]
    info["truth"] = True
    return ["h", 0, info]


def _int(encoder: Encoder, value: Any) -> Any:
    number = _int_of(_of(value))
    if -0x8000000000000000 < number < 0x8000000000000000:
        return number
    text = _hex(number)
    encoder.spend(_len(text))
    return ["i", text]


def _text(encoder: Encoder, value: Any) -> Any:
    text = _str_of(_of(value))
    encoder.spend(_len(text) if _is_ascii(text) else 6 * _len(text))
    return text


def _bytes(encoder: Encoder, value: Any) -> Any:
    value = bytes.__getitem__(_of(value), _all)
    encoder.spend(2 * _len(value))
    return ["b", bytes.hex(value)]


def _bytearray(encoder: Encoder, value: Any) -> Any:
    content = bytearray.__getitem__(_of(value), _all)
    encoder.spend(2 * _len(content))
    return encoder.items("ba", value, (), bytearray.hex(content))


def _default_dict(encoder: Encoder, value: Any) -> Any:
    source = _of(value)
    factory = encoder.visit(_default_factory(source))
    return encoder.pairs("dd", value, _list(_dict.items(source)), factory)


def _deque(encoder: Encoder, value: Any) -> Any:
    source = _of(value)
    content = _list(collections.deque.__iter__(source))
    return encoder.items("dq", value, content, _deque_maxlen(source))


def _range(encoder: Encoder, value: Any) -> Any:
    parts = (_range_start(value), _range_stop(value), _range_step(value))
    return ["range", *[encoder.visit(part) for part in parts]]


def _slice(encoder: Encoder, value: Any) -> Any:
    return ["slice", *[encoder.visit(part) for part in (value.start, value.stop, value.step)]]


def _view_pairs(encoder: Encoder, value: Any) -> Any:
    return ["di", *[[encoder.visit(key), encoder.visit(item)] for key, item in _list(value)]]


def _view(tag: str) -> Callable[[Encoder, Any], Any]:
    return lambda encoder, value: [tag, *[encoder.visit(item) for item in _list(value)]]


def _plain(encoder: Encoder, value: Any) -> Any:
    return value


# Snapshots (list(...)) are taken because encoding a part may run code that changes the whole.
_BASES: dict[int, Callable[[Encoder, Any], Any]] = {
    id(int): _int,
    id(float): lambda encoder, value: _float_of(_of(value)),
    id(str): _text,
    id(complex): lambda encoder, value: ["c", _real(_of(value)), _imag(_of(value))],
    id(bytes): _bytes,
    id(bytearray): _bytearray,
    id(list): lambda encoder, value: encoder.items("l", value, _list.__getitem__(_of(value), _all)),
    id(tuple): lambda encoder, value: encoder.items(
        "t", value, _tuple.__getitem__(_of(value), _all)
    ),
    id(set): lambda encoder, value: encoder.items("s", value, _list(_set.__iter__(_of(value)))),
    id(frozenset): lambda encoder, value: encoder.items(
        "fs", value, _list(frozenset.__iter__(_of(value)))
    ),
    id(collections.OrderedDict): lambda encoder, value: encoder.pairs(
        "od", value, _list(collections.OrderedDict.items(_of(value)))
    ),
    id(collections.Counter): lambda encoder, value: encoder.pairs(
        "cn", value, _list(_dict.items(_of(value)))
    ),
    id(collections.defaultdict): _default_dict,
    id(dict): lambda encoder, value: encoder.pairs("d", value, _list(_dict.items(_of(value)))),
    id(collections.deque): _deque,
}
_ENCODERS: dict[int, Callable[[Encoder, Any], Any]] = {
    **_BASES,
    id(type(None)): _plain,
    id(bool): _plain,
    id(float): _plain,
    id(range): _range,
    id(slice): _slice,
    id(type(...)): lambda encoder, value: ["..."],
    id(type(NotImplemented)): lambda encoder, value: ["ni"],
    id(type({}.keys())): _view("dk"),
    id(type({}.values())): _view("dv"),
    id(type({}.items())): _view_pairs,
    id(type(collections.OrderedDict().keys())): _view("dk"),
    id(type(collections.OrderedDict().values())): _view("dv"),
    id(type(collections.OrderedDict().items())): _view_pairs,
}
_FILLED_LATER = (
    list,
    dict,
    set,
    collections.OrderedDict,
    collections.Counter,
    collections.defaultdict,
    collections.deque,
)
