"""Shared data: mutable containers with a copy at each endpoint, kept in sync.

A list passed to a function is copied, but the function may sort the list in place. Each endpoint
stores the contents as of the last message. The next message carries the changes, and the receiver
updates its copy in place. The tests' endpoint can hold changes until a comparison is over, so that
the other operand sees the argument as before the call.
"""

from __future__ import annotations

import array
import collections
import operator
import sys
from collections.abc import Iterable
from typing import Any

from ...codec.limits import Malformed

_is = operator.is_
_references = sys.getrefcount
_whole = slice(None)
_deque, _ordered = collections.deque, collections.OrderedDict
_DICTS = (dict, _ordered, collections.Counter, collections.defaultdict)
_FLAT = (bytearray, array.array)
MUTABLE = (list, set, _deque, *_DICTS, *_FLAT)
# A message with more containers shares none.
_MOST_SHARED = 50_000
_MOST_DETACHED = 1_000_000


def _is_array(kind: Any) -> bool:
    """Tell whether a class is numpy's array class; False before numpy is loaded."""
    numpy: Any = sys.modules.get("numpy")
    return numpy is not None and kind is getattr(numpy, "ndarray", None)


def contents(value: Any) -> Any:
    """Return a container's contents: bytes for flat arrays, a copy for numpy, else a flat list."""
    base = type(value)
    if base is list:
        return list.__getitem__(value, _whole)
    if base is set:
        return [*set.__iter__(value)]
    if base in _FLAT:
        return bytes(value) if base is bytearray else value.tobytes()
    if base is _deque:
        return [*_deque.__iter__(value)]
    if base in _DICTS:
        pairs = _ordered.items(value) if base is _ordered else dict.items(value)
        return [part for pair in pairs for part in pair]
    return value.copy()


def replace(value: Any, content: Any) -> None:
    """Replace the contents of a mutable container in place."""
    base = type(value)
    if base is list:
        list.__setitem__(value, _whole, content)
    elif base is set:
        set.clear(value)
        set.update(value, content)
    elif base is bytearray:
        bytearray.__setitem__(value, _whole, content)
    elif base is array.array:
        del value[:]
        value.frombytes(content)
    elif base is _deque:
        _deque.clear(value)
        _deque.extend(value, content)
    elif base in _DICTS:
        owner: Any = _ordered if base is _ordered else dict
        owner.clear(value)
        for key, part in zip(content[::2], content[1::2]):
            owner.__setitem__(value, key, part)
    else:
        value[...] = content


def wire_content(value: Any) -> Any:
    """Return the contents in the form for the wire: lists become tuples."""
    content = contents(value)
    return tuple(content) if type(content) is list else content


def _same(value: Any, before: Any) -> bool:
    if type(value) in _FLAT:
        return bool(contents(value) == before)
    if type(before) is not list:
        return bool(value.shape == before.shape and value.tobytes() == before.tobytes())
    now = contents(value)
    return len(now) == len(before) and all(map(_is, now, before))


class Entry:
    """A container with its key and its contents as of the last message."""

    __slots__ = ("key", "snapshot", "value")

    def __init__(self, key: int, value: Any) -> None:
        self.key = key
        self.value = value
        self.snapshot = contents(value)


class Shared:
    """Table of an endpoint's shared containers.

    ``first`` is 1 for the submission's endpoint and 2 for the tests', so keys never clash.
    """

    def __init__(self, first: int) -> None:
        self._next_key = first
        self._parity = first % 2
        self._entries: dict[int, Entry] = {}
        self._keys: dict[int, Entry] = {}

    def key(self, value: Any) -> int | None:
        """Return the key of a shared container, else None."""
        entry = self._entries.get(id(value))
        return None if entry is None else entry.key

    def value(self, key: Any) -> Any:
        """Return the container for a key. Raises ``KeyError`` if unknown."""
        return self._keys[key].value

    def changed(self) -> list[Entry]:
        """Return the containers that changed since the last message."""
        return [each for each in self._entries.values() if not _same(each.value, each.snapshot)]

    def update_contents(self, entries: Iterable[Entry]) -> None:
        """Record the current contents as sent."""
        for entry in entries:
            entry.snapshot = contents(entry.value)

    def offer(self, kept: list[Any]) -> tuple[int, list[int]]:
        """Choose containers to share from a message: the first key and positions in ``kept``."""
        places = [place for place, value in enumerate(kept) if self._may_share(value)]
        return self._next_key, places if len(places) <= _MOST_SHARED else []

    def share(self, kept: list[Any], places: list[int]) -> None:
        """Share the offered containers."""
        for place in places:
            self._add(self._next_key, kept[place])
            self._next_key += 2

    def accept(self, kept: list[Any], first: Any, places: Any) -> None:
        """Share containers of an incoming message. Raises ``Malformed`` for invalid data."""
        if type(first) is not int or first % 2 == self._parity or type(places) is not list:
            raise Malformed("not shared containers")
        for place in places:
            if type(place) is not int or not 0 <= place < len(kept) or first in self._keys:
                raise Malformed("not a shared container")
            value = kept[place]
            if not self._may_share(value):
                raise Malformed("not a mutable container")
            self._add(first, value)
            first += 2

    def _may_share(self, value: Any) -> bool:
        kind = type(value)
        mutable = kind in MUTABLE or (_is_array(kind) and value.dtype.kind != "O")
        return mutable and id(value) not in self._entries

    def _add(self, key: int, value: Any) -> None:
        entry = Entry(key, value)
        self._entries[id(value)] = self._keys[key] = entry

    def apply(self, value: Any, content: Any) -> None:
        """Replace a container's contents by the received contents. Raises ``Malformed``."""
        entry = self._entries.get(id(value))
        if entry is None:
            raise Malformed("not a shared container")
        _check_content(value, content)
        replace(value, content)
        entry.snapshot = contents(value)

    def forget(self, keys: Iterable[Any]) -> None:
        """Drop the containers with these keys."""
        for key in keys:
            entry = self._keys.pop(key, None)
            if entry is not None:
                self._entries.pop(id(entry.value), None)

    def unused(self) -> list[int]:
        """Drop containers without other references here and return their keys."""
        # The entry holds the first reference, the argument the second.
        unused = [key for key, entry in self._keys.items() if _references(entry.value) <= 2]
        self.forget(unused)
        return unused


def _check_content(value: Any, content: Any) -> None:
    if type(value) in _FLAT:
        good = type(content) is bytes
        if good and type(value) is array.array:
            good = len(content) % value.itemsize == 0
    elif type(value) in MUTABLE:
        good = type(content) is tuple and (type(value) not in _DICTS or len(content) % 2 == 0)
    else:
        good = type(content) is type(value) and content.shape == value.shape
        good = good and content.dtype == value.dtype
    if not good:
        raise Malformed("not the contents of a shared container")


class Held:
    """Changes from answers, held while a comparison is under way."""

    def __init__(self, shared: Shared) -> None:
        self._shared = shared
        self._depth = 0
        self._changes: dict[int, tuple[Any, Any]] = {}

    @property
    def active(self) -> bool:
        """Tell whether changes are held."""
        return self._depth > 0

    def begin(self) -> None:
        """Start to hold changes; calls nest."""
        self._depth += 1

    def end(self) -> None:
        """Apply the held changes and leave the innermost comparison."""
        self._depth = max(self._depth - 1, 0)
        self.apply()

    def pause(self) -> int:
        """Stop holding while test code serves a request; return the depth for ``resume``."""
        depth, self._depth = self._depth, 0
        return depth

    def resume(self, depth: int) -> None:
        """Hold changes again at the depth from ``pause``."""
        self._depth = depth

    def show(self) -> list[tuple[Any, Any]]:
        """Apply held changes while test code serves a request; return the argument of ``hide``."""
        changes, self._changes = self._changes, {}
        shown = []
        for value, content in changes.values():
            if self._shared.key(value) is not None:
                shown.append((value, wire_content(value)))
                self._shared.apply(value, content)
        return shown

    def hide(self, shown: list[tuple[Any, Any]]) -> None:
        """Hold the shown changes again, with their current contents."""
        for value, before in shown:
            if self._shared.key(value) is not None:
                self._changes[id(value)] = value, wire_content(value)
                self._shared.apply(value, before)

    def reset(self) -> None:
        """Apply all changes and stop holding, after an exception or at the end of a test."""
        self._depth = 0
        self.apply()

    def apply(self) -> None:
        """Apply the held changes."""
        changes, self._changes = self._changes, {}
        for value, content in changes.values():
            if self._shared.key(value) is not None:
                self._shared.apply(value, content)

    def add(self, value: Any, content: Any) -> None:
        """Hold a change of a shared container. Raises ``Malformed``."""
        _check_content(value, content)
        self._changes[id(value)] = value, content

    def detached(self, value: Any) -> Any:
        """Replace shared containers in a value by copies with the new contents."""
        if not self._changes:
            return value
        return self._detach(value, {}, [_MOST_DETACHED])

    def _detach(self, value: Any, memo: dict[int, Any], left: list[int]) -> Any:
        kind = type(value)
        if id(value) in memo:
            return memo[id(value)]
        left[0] -= 1
        if left[0] < 0:
            raise Malformed("too many parts")
        if kind is tuple or kind is frozenset:
            parts = [self._detach(part, memo, left) for part in value]
            same = all(map(_is, parts, value))
            memo[id(value)] = value if same else kind(parts)
            return memo[id(value)]
        if kind not in MUTABLE and not _is_array(kind):
            return value
        copy = _empty_like(value)
        memo[id(value)] = copy
        content = self._changes[id(value)][1] if id(value) in self._changes else contents(value)
        if type(content) in (list, tuple):
            content = [self._detach(part, memo, left) for part in content]
        replace(copy, content)
        return copy


def copied(value: Any, depth: int = 0) -> Any:
    """Copy a value's containers, so that later changes have no effect."""
    kind = type(value)
    if depth > 100:
        return value
    if kind is tuple:
        return tuple([copied(part, depth + 1) for part in value])
    if kind not in MUTABLE and not _is_array(kind):
        return value
    copy = _empty_like(value)
    content = contents(value)
    if type(content) is list:
        content = [copied(part, depth + 1) for part in content]
    replace(copy, content)
    return copy


def _empty_like(value: Any) -> Any:
    kind: Any = type(value)
    if kind is collections.defaultdict:
        return collections.defaultdict(value.default_factory)
    if kind is _deque:
        return _deque(maxlen=value.maxlen)
    if kind is array.array:
        return value[:0]
    empty: Any = kind() if kind in MUTABLE else value.copy()
    return empty
