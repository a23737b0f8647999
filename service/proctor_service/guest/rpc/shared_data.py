"""Mutable containers that both sides hold a copy of, kept alike.

A list that a test passes to a function is copied, yet a function may sort it in place. Each side
remembers the contents at the last message; what changed since then goes along with the next one, and is
put into the other side's copy in place. The side of the tests may hold changes back until a comparison
is over, so that its other operand sees the argument as it was before the call.
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
# A message with more containers than this shares none of them.
_MOST_SHARED = 50_000
_MOST_DETACHED = 1_000_000


def _is_array(kind: Any) -> bool:
    """Tell whether a class is numpy's array, where numpy is loaded."""
    numpy: Any = sys.modules.get("numpy")
    return numpy is not None and kind is getattr(numpy, "ndarray", None)


def contents(value: Any) -> Any:
    """What a mutable container holds: bytes for an array, else a flat list."""
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
    """Give a mutable container new contents, in place."""
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
        for key, part in zip(content[::2], content[1::2]):  # noqa: B905 - Python 3.8
            owner.__setitem__(value, key, part)
    else:
        value[...] = content


def wire_content(value: Any) -> Any:
    """The contents as they cross."""
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
    """One container: its key, and what it held when the last message went."""

    __slots__ = ("key", "snapshot", "value")

    def __init__(self, key: int, value: Any) -> None:
        self.key = key
        self.value = value
        self.snapshot = contents(value)


class Shared:
    """The table of one side. ``first`` is 1 for one side, 2 for the other: keys never clash."""

    def __init__(self, first: int) -> None:
        self._next_key = first
        self._parity = first % 2
        self._entries: dict[int, Entry] = {}
        self._keys: dict[int, Entry] = {}

    def key(self, value: Any) -> int | None:
        """The key of a shared container; None if it isn't shared."""
        entry = self._entries.get(id(value))
        return None if entry is None else entry.key

    def value(self, key: Any) -> Any:
        """The container of a key. Raises ``KeyError`` if there is none."""
        return self._keys[key].value

    def changed(self) -> list[Entry]:
        """The containers whose contents the other side doesn't have."""
        return [each for each in self._entries.values() if not _same(each.value, each.snapshot)]

    def update_contents(self, entries: Iterable[Entry]) -> None:
        """Note that the other side is being told what these hold now."""
        for entry in entries:
            entry.snapshot = contents(entry.value)

    def offer(self, kept: list[Any]) -> tuple[int, list[int]]:
        """Choose what to share of an outgoing message: the first key, and places in ``kept``."""
        places = [place for place, value in enumerate(kept) if self._may_share(value)]
        return self._next_key, places if len(places) <= _MOST_SHARED else []

    def share(self, kept: list[Any], places: list[int]) -> None:
        """Share what was offered."""
        for place in places:
            self._add(self._next_key, kept[place])
            self._next_key += 2

    def accept(self, kept: list[Any], first: Any, places: Any) -> None:
        """Share containers of an incoming message. Raises ``Malformed`` if that makes no sense."""
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
        """Take over what a container holds on the other side. Raises ``Malformed``."""
        entry = self._entries.get(id(value))
        if entry is None:
            raise Malformed("not a shared container")
        _check_content(value, content)
        replace(value, content)
        entry.snapshot = contents(value)

    def forget(self, keys: Iterable[Any]) -> None:
        """Drop what the other side dropped."""
        for key in keys:
            entry = self._keys.pop(key, None)
            if entry is not None:
                self._entries.pop(id(entry.value), None)

    def unused(self) -> list[int]:
        """Drop the containers that nobody here refers to any more; answers their keys."""
        # One reference is the entry's, one the argument's.
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
    """The changes that answers brought while a comparison is under way."""

    def __init__(self, shared: Shared) -> None:
        self._shared = shared
        self._depth = 0
        self._changes: dict[int, tuple[Any, Any]] = {}

    @property
    def active(self) -> bool:
        """Tell whether changes are to be held back."""
        return self._depth > 0

    def begin(self) -> None:
        """Hold changes back from now on."""
        self._depth += 1

    def end(self) -> None:
        """Apply what was held back; with the outermost comparison, hold nothing any more."""
        self._depth = max(self._depth - 1, 0)
        self.apply()

    def pause(self) -> int:
        """Hold nothing back while the tests' own code is called; answers what to resume with."""
        depth, self._depth = self._depth, 0
        return depth

    def resume(self, depth: int) -> None:
        """Hold changes back again, as before ``pause``."""
        self._depth = depth

    def show(self) -> list[tuple[Any, Any]]:
        """Put what is held back in place while the tests' own code is called; answers what to hide."""
        changes, self._changes = self._changes, {}
        shown = []
        for value, content in changes.values():
            if self._shared.key(value) is not None:
                shown.append((value, wire_content(value)))
                self._shared.apply(value, content)
        return shown

    def hide(self, shown: list[tuple[Any, Any]]) -> None:
        """Hold back again what was shown, as it is now."""
        for value, before in shown:
            if self._shared.key(value) is not None:
                self._changes[id(value)] = value, wire_content(value)
                self._shared.apply(value, before)

    def reset(self) -> None:
        """Hold nothing any more: an exception ended the comparison."""
        self._depth = 0
        self.apply()

    def apply(self) -> None:
        """Apply what was held back."""
        changes, self._changes = self._changes, {}
        for value, content in changes.values():
            if self._shared.key(value) is not None:
                self._shared.apply(value, content)

    def add(self, value: Any, content: Any) -> None:
        """Hold a change of a shared container back. Raises ``Malformed``."""
        _check_content(value, content)
        self._changes[id(value)] = value, content

    def detached(self, value: Any) -> Any:
        """A value with copies in place of the shared containers, these with the new contents."""
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
    """A value in containers of its own, which later changes do not reach."""
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
