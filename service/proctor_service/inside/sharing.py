"""Containers that both interpreters hold a copy of, kept alike.

A list that crosses is copied, yet both sides go on using it: a function sorts the list that a test
passed to it, or a test appends to ``node.children``. Each side remembers the contents at the last
message; what changed since then goes along with the next one, and is put into the other side's copy
in place. So identity and mutation look as if there was one list. A copy that nothing but this table
refers to is forgotten.
"""

import collections
import operator
import sys
from collections.abc import Iterable
from typing import Any

_is = operator.is_
_references = sys.getrefcount
_whole = slice(None)
_deque, _ordered = collections.deque, collections.OrderedDict

DICTS: tuple[type, ...] = (dict, _ordered, collections.Counter, collections.defaultdict)
# A message with more containers than this shares none of them.
_MOST = 50_000
MUTABLE: tuple[type, ...] = (list, set, bytearray, _deque, *DICTS)


def contents(base: type, value: Any) -> Any:
    """What a mutable container holds: bytes for a bytearray, else a flat list."""
    if base is list:
        return list.__getitem__(value, _whole)
    if base is set:
        return [*set.__iter__(value)]
    if base is bytearray:
        return bytes(bytearray.__getitem__(value, _whole))
    if base is _deque:
        return [*_deque.__iter__(value)]
    pairs = _ordered.items(value) if base is _ordered else dict.items(value)
    return [part for pair in pairs for part in pair]


def replace(base: type, value: Any, content: Any) -> None:
    """Give a mutable container new contents, in place."""
    if base is bytearray:
        bytearray.__setitem__(value, _whole, content)
    elif base is list:
        list.__setitem__(value, _whole, content)
    elif base is set:
        set.clear(value)
        set.update(value, content)
    elif base is _deque:
        _deque.clear(value)
        _deque.extend(value, content)
    else:
        owner: Any = _ordered if base is _ordered else dict
        owner.clear(value)
        for key, part in zip(content[::2], content[1::2], strict=True):
            owner.__setitem__(value, key, part)


class Entry:
    """One container: how messages name it, and what it held when the last one went."""

    __slots__ = ("base", "snapshot", "token", "value")

    def __init__(self, token: Any, base: type, value: Any) -> None:
        self.token = token
        self.base = base
        self.value = value
        self.snapshot = contents(base, value)

    def changed(self) -> bool:
        """Whether the contents differ, by identity, from those at the last message."""
        now, before = contents(self.base, self.value), self.snapshot
        if self.base is bytearray:
            return bool(now != before)
        return len(now) != len(before) or not all(map(_is, now, before))


class Shared:
    """The table of one side. ``first`` is 1 for one side, 2 for the other: keys never clash."""

    def __init__(self, first: int, forgets: bool) -> None:
        self.next_key = first
        self._parity = first % 2
        self._forgets = forgets
        self._entries: dict[int, Entry] = {}
        self._values: dict[int, Any] = {}

    def token(self, value: Any) -> Any:
        """How a message names a shared container; None if it isn't shared by key."""
        entry = self._entries.get(id(value))
        return entry.token if entry is not None and entry.token[0] == "m" else None

    def value(self, key: Any) -> Any:
        """The container of a key; ``KeyError`` if there is none."""
        return self._entries[self._values[key]].value

    def base(self, value: Any) -> type | None:
        """The built-in type as which a container is shared; None if it isn't."""
        entry = self._entries.get(id(value))
        return None if entry is None else entry.base

    def changed(self) -> list[Entry]:
        """The containers whose contents the other side doesn't have."""
        return [entry for entry in self._entries.values() if entry.changed()]

    def settle(self, entries: Iterable[Entry]) -> None:
        """The other side is being told what these hold now."""
        for entry in entries:
            entry.snapshot = contents(entry.base, entry.value)

    def offer(self, kept: Iterable[Any]) -> None:
        """Share the containers of an outgoing message, from ``next_key`` on."""
        for value in _shareable(kept):
            self._add(self.next_key, value)
            self.next_key += 2

    def accept(self, kept: Iterable[Any], first: int) -> None:
        """Share the containers of an incoming message; ``ValueError`` if its keys make no sense."""
        if type(first) is not int or first % 2 == self._parity:
            raise ValueError("not a key")
        for value in _shareable(kept):
            if first in self._values:
                raise ValueError("a key twice")
            self._add(first, value)
            first += 2

    def _add(self, key: int, value: Any) -> None:
        self._entries[id(value)] = Entry(["m", key], type(value), value)
        self._values[key] = id(value)

    def track(self, token: Any, base: type, value: Any) -> None:
        """Keep an instance of a subclass of a mutable container alike, too."""
        if id(value) not in self._entries:
            self._entries[id(value)] = Entry(token, base, value)

    def untrack(self, value: Any) -> None:
        """The other side has no more use for it."""
        self._entries.pop(id(value), None)

    def apply(self, value: Any, content: Any) -> None:
        """Take over what a container holds on the other side."""
        entry = self._entries[id(value)]
        if entry.base is bytearray and type(content) is not bytes:
            raise ValueError("not bytes")
        replace(entry.base, value, content)
        entry.snapshot = contents(entry.base, value)

    def forget(self, keys: Iterable[Any]) -> None:
        """The other side dropped these."""
        for key in keys:
            self._entries.pop(self._values.pop(key, 0), None)

    def unused(self) -> list[int]:
        """Keys of containers that nobody here refers to any more; they are dropped."""
        if not self._forgets:
            return []
        dropped = []
        for key, number in [*self._values.items()]:
            # One reference is the entry's, one the argument's.
            if _references(self._entries[number].value) <= 2:
                dropped.append(key)
        self.forget(dropped)
        return dropped


def _shareable(kept: Iterable[Any]) -> list[Any]:
    """The mutable ones; none when there are so many that keeping them alike would cost too much."""
    found = [value for value in kept if type(value) in MUTABLE]
    return found if len(found) <= _MOST else []
