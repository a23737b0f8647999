"""What a mutable container holds, taken and put back in place, without running code of its class.

An interpreter that keeps a container alike with a copy in another takes a ``snapshot`` at each
message, asks at the next whether the container ``differs`` from it, and sends its encoding if so;
the other side lets its copy ``take_over`` what was decoded. Subclasses are read and written as their
built-in base.
"""

from __future__ import annotations

import collections
import operator
from typing import Any

from . import set_order
from .class_names import class_mro
from .library import loaded
from .refusals import Malformed

_type, _len, _is = type, len, operator.is_
_whole = slice(None)
_set = set
_deque, _ordered = collections.deque, collections.OrderedDict
_maxlen = collections.deque.__dict__["maxlen"].__get__
_default_factory: Any = collections.defaultdict.__dict__["default_factory"]

DICTS: tuple[type, ...] = (_ordered, collections.Counter, collections.defaultdict, dict)
_BUILTIN: tuple[type, ...] = (list, *DICTS, set, bytearray, _deque)


class Snapshot:
    """What a container held: its parts, by identity, or its bytes; compare by ``differs``."""

    __slots__ = ("base", "content", "head")

    def __init__(self, base: type, head: Any, content: Any) -> None:
        self.base = base
        # What is compared by value: the bytes of an array, a type of items, a default factory.
        self.head = head
        self.content = content


def mutable_base(cls: type) -> type | None:
    """The built-in type as which instances of a class are kept alike; None if they are not.

    Of numpy and ``array`` exactly the base classes; of the others, subclasses, too.
    """
    known: bool = cls is loaded("array", "array") or cls is loaded("numpy", "ndarray")
    if known:
        return cls
    for each in class_mro(cls):
        for base in _BUILTIN:
            if each is base:
                return base
    return None


def snapshot(value: Any) -> Snapshot:
    """What a container holds now. Raises ``TypeError`` for anything else."""
    base = mutable_base(_type(value))
    if base is None:
        raise TypeError("not a container that can change")
    head, content = _content(base, value)
    if _type(value) is set:
        head = set_order.layout_of(value)
    return Snapshot(base, head, content)


def differs(value: Any, before: Snapshot) -> bool:
    """Whether a container holds other parts, by identity and in their order, than it did."""
    head, now = _content(before.base, value)
    return (
        bool(before.base is not set and head != before.head)
        or _len(now) != _len(before.content)
        or not all(map(_is, now, before.content))
    )


def restore(value: Any, before: Snapshot) -> None:
    """Give a container, in place, what a snapshot holds.

    A set gets the order of iteration, too. Raises ``Malformed`` for a snapshot of another kind of
    container, or of an array of another shape or type of items.
    """
    base = before.base
    if mutable_base(_type(value)) is not base:
        raise Malformed("a snapshot of another kind of container")
    if base in DICTS:
        _restore_dict(base, value, before)
    elif base is list:
        list.__setitem__(value, _whole, before.content)
    elif base is set:
        _restore_set(value, before)
    elif base is bytearray:
        bytearray.__setitem__(value, _whole, before.head)
    elif base is _deque:
        if _maxlen(value) != before.head:
            raise Malformed("a deque of another length")
        _deque.clear(value)
        _deque.extend(value, before.content)
    elif base is loaded("array", "array"):
        _restore_array(value, before)
    else:
        _restore_numpy(value, before)


def take_over(value: Any, other: Any) -> None:
    """Give a container, in place, what another of its kind holds. Raises ``Malformed``."""
    base = mutable_base(_type(other))
    if base is None or mutable_base(_type(value)) is not base:
        raise Malformed("another kind of container")
    restore(value, snapshot(other))


def _content(base: type, value: Any) -> tuple[Any, Any]:
    """What is compared by value, and what by identity."""
    if base is list:
        return None, list.__getitem__(value, _whole)
    if base is set:
        return None, [*set.__iter__(value)]
    if base is bytearray:
        return bytes(bytearray.__getitem__(value, _whole)), ()
    if base is _deque:
        return _maxlen(value), [*_deque.__iter__(value)]
    if base in DICTS:
        pairs = _ordered.items(value) if base is _ordered else dict.items(value)
        factory = _default_factory.__get__(value) if base is collections.defaultdict else None
        return _Same(factory), [part for pair in pairs for part in pair]
    if base is loaded("array", "array"):
        return (value.typecode, value.tobytes()), ()
    form = (value.dtype.str, value.dtype.descr, value.shape)
    if value.dtype.char == "O":
        return form, value.ravel().tolist()
    if value.dtype.hasobject:
        raise TypeError("an array of records that hold objects")
    return (*form, value.tobytes()), ()


class _Same:
    """Something that is compared by identity only."""

    __slots__ = ("value",)

    def __init__(self, value: Any) -> None:
        self.value = value

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Same) and self.value is other.value

    __hash__ = None  # type: ignore[assignment]


def _restore_dict(base: type, value: Any, before: Snapshot) -> None:
    owner: Any = _ordered if base is _ordered else dict
    if base is collections.defaultdict:
        _default_factory.__set__(value, before.head.value)
    owner.clear(value)
    parts = iter(before.content)
    for key, part in zip(parts, parts):  # noqa: B905  # Python 3.8 has no `strict`
        owner.__setitem__(value, key, part)


def _restore_set(value: Any, before: Snapshot) -> None:
    set.clear(value)
    layout = before.head
    if layout is None:
        set.update(value, before.content)
    else:
        set_order.place(value, before.content, layout, _len(before.content))


def _restore_array(value: Any, before: Snapshot) -> None:
    typecode, content = before.head
    if value.typecode != typecode:
        raise Malformed("an array of another type of items")
    del value[:]
    value.frombytes(content)


def _restore_numpy(value: Any, before: Snapshot) -> None:
    if (value.dtype.str, value.dtype.descr, value.shape) != before.head[:3]:
        raise Malformed("an array of another shape or type of items")
    if not value.flags.writeable:
        raise Malformed("an array that cannot be written")
    if value.dtype.char == "O":
        flat = loaded("numpy", "empty")(_len(before.content), dtype=value.dtype)
        for index, item in enumerate(before.content):
            flat[index] = item
        value[...] = flat.reshape(value.shape)
        return
    source = loaded("numpy", "frombuffer")(before.head[3], dtype=value.dtype)
    value[...] = source.reshape(value.shape)
