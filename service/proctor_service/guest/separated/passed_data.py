"""Containers passed from side to side: each side keeps its copy up to date in place.

A list from the tests is copied, but the function may sort the list. While a request is open, the
containers in its operands are known to both sides by their place in this table, and each message
carries their changes.
"""

from __future__ import annotations

import array
import collections
import operator
import sys
from typing import Any

from ...codec.limits import Malformed

_is = operator.is_
_whole = slice(None)
_deque, _ordered = collections.deque, collections.OrderedDict
_DICTS = (dict, _ordered, collections.Counter, collections.defaultdict)
_FLAT = (bytearray, array.array)
_MUTABLE = (list, set, _deque, *_DICTS, *_FLAT)


class Passed:
    """Table of the containers in the operands of all open requests, the outermost first."""

    def __init__(self) -> None:
        self._values: list[Any] = []
        self._before: list[Any] = []
        self._places: dict[int, int] = {}

    def __len__(self) -> int:
        return len(self._values)

    def choose(self, containers: list[Any]) -> list[int]:
        """Return the positions of a message's containers to keep up to date."""
        return [place for place, value in enumerate(containers) if self._is_new(value)]

    def add(self, containers: list[Any], places: Any) -> None:
        """Add the containers at these positions of a message. Raises ``Malformed``."""
        if type(places) is not list:
            raise Malformed("not positions")
        for place in places:
            if (
                type(place) is not int
                or not 0 <= place < len(containers)
                or not self._is_new(containers[place])
            ):
                raise Malformed("not a mutable container")
            value = containers[place]
            self._places[id(value)] = len(self._values)
            self._values.append(value)
            self._before.append(_contents(value))

    def leave(self, length: int) -> None:
        """Forget the containers of the innermost request: all but the first ones."""
        for value in self._values[length:]:
            self._places.pop(id(value), None)
        del self._values[length:], self._before[length:]

    def place(self, value: Any) -> int | None:
        """Return the place of a container, or None."""
        return self._places.get(id(value))

    def value(self, place: Any) -> Any:
        """Return the container at a place. Raises ``Malformed``."""
        if type(place) is not int or not 0 <= place < len(self._values):
            raise Malformed("a reference to nothing")
        return self._values[place]

    def changed(self) -> list[tuple[int, Any]]:
        """Return place and contents of the containers changed since the last message."""
        found = []
        for place, value in enumerate(self._values):
            if not _same(value, self._before[place]):
                content = self._before[place] = _contents(value)
                found.append((place, tuple(content) if type(content) is list else content))
        return found

    def update(self, place: Any, content: Any) -> None:
        """Replace the contents of a container by the other side's. Raises ``Malformed``."""
        value = self.value(place)
        _check(value, content)
        _replace(value, content)
        self._before[place] = _contents(value)

    def _is_new(self, value: Any) -> bool:
        kind = type(value)
        mutable = kind in _MUTABLE or (_is_array(kind) and value.dtype.kind != "O")
        return mutable and id(value) not in self._places


def _is_array(kind: Any) -> bool:
    numpy: Any = sys.modules.get("numpy")
    return numpy is not None and kind is getattr(numpy, "ndarray", None)


def _contents(value: Any) -> Any:
    """Return a container's contents: bytes of a flat container, a copy of an array, else a flat list."""
    kind = type(value)
    if kind is list:
        return list.__getitem__(value, _whole)
    if kind in _FLAT:
        return bytes(value) if kind is bytearray else value.tobytes()
    if kind in _DICTS:
        pairs = _ordered.items(value) if kind is _ordered else dict.items(value)
        return [part for pair in pairs for part in pair]
    if kind is set or kind is _deque:
        return [*kind.__iter__(value)]
    return value.copy()


def _replace(value: Any, content: Any) -> None:
    kind: Any = type(value)
    if kind in _FLAT:
        del value[:]
        value.extend(content) if kind is bytearray else value.frombytes(content)
    elif kind in _DICTS:
        owner: Any = _ordered if kind is _ordered else dict
        owner.clear(value)
        for key, part in zip(content[::2], content[1::2]):
            owner.__setitem__(value, key, part)
    elif kind in _MUTABLE:
        kind.clear(value)
        (kind.update if kind is set else kind.extend)(value, content)
    else:
        value[...] = content


def _same(value: Any, before: Any) -> bool:
    now = _contents(value)
    if type(now) is list:
        return len(now) == len(before) and all(map(_is, now, before))
    if type(now) is bytes:
        return bool(now == before)
    return bool(now.shape == before.shape and now.tobytes() == before.tobytes())


def _check(value: Any, content: Any) -> None:
    kind = type(value)
    if kind in _FLAT:
        good = type(content) is bytes
        if good and kind is array.array:
            good = len(content) % value.itemsize == 0
    elif kind in _MUTABLE:
        good = type(content) is tuple and (kind not in _DICTS or len(content) % 2 == 0)
    else:
        good = (
            type(content) is kind and content.shape == value.shape and content.dtype == value.dtype
        )
    if not good:
        raise Malformed("not the contents of a container")
