"""Transfer of a set's iteration order to another interpreter with the same hash seed.

A set is an open-addressing table (Objects/setobject.c of CPython 3.8 to 3.14): an item lies in the
first free slot of its probe sequence, and iteration goes by slots. The sequence begins at ``hash &
mask``; each slot is followed by ``LINEAR_PROBES`` more if the table has enough slots, and the next
start mixes in ``perturb``, the higher bits of the hash. So the order depends on the size of the
table, on the order of insertion, and on removed items, since their slots stay taken until the next
resize.

The sender first rebuilds the set from the iteration order. If the rebuilt set iterates differently,
the sender reads the table with ctypes and sends a *layout*: ``[slots of the table, steps]``. A step
is the index of an item to insert, or ``-1 - slot`` for a removed item. The receiver executes the
steps, with fillers for the removed items. A layout is hostile data: a layout can change the order
of iteration, but never the content. Without ctypes, or with other threads, the sender sends no
layout.
"""

from __future__ import annotations

import _thread
import operator
from typing import TYPE_CHECKING, Any

from .limits import Malformed
from .tables import fill_set

if TYPE_CHECKING:
    from collections.abc import Iterator

try:
    import ctypes
except ImportError:  # a Python build without ctypes: only the order is lost
    ctypes = None  # type: ignore[assignment]

LINEAR_PROBES = 9
PERTURB_SHIFT = 5
_MAX_SLOTS = 1 << 20
_SMALL_SLOTS = 8
_SLOT_BYTES = 16
_WORD = 8
_SECONDS_EACH = 1e-5
# After the header of an object: fill, used, mask, and the address of the table.
_FIELDS = 4

_type, _id, _len, _hash, _list, _sorted, _range = type, id, len, hash, list, sorted, range
_set, _frozenset, _tuple, _dict = set, frozenset, tuple, dict
_threads, _is = _thread._count, operator.is_
_PLAIN = frozenset(map(id, (int, str, float, bool, bytes, complex, type(None))))
_NESTED = frozenset(map(id, (tuple, frozenset)))


def layout_of(value: Any) -> list[Any] | None:
    """Return the layout of a set, or None if the order of the items suffices.

    None also if the table is unreadable, or if an item is of another type than a built-in type,
    because hashing the item would run its code.
    """
    items = _list(value)
    if _len(items) < 2 or not _is_plain(items):
        return None
    rebuilt = _set(items) if _type(value) is _set else _frozenset(_set(items))
    if _same(rebuilt, items):
        return None
    slots = _slots(value)
    if slots is None:
        return None
    numbers = {_id(item): index for index, item in enumerate(items)}
    return [_len(slots), _steps(slots, numbers, value)]


def cost(layout: list[Any]) -> int:
    """Return the expanded size of a layout in bytes."""
    return _SLOT_BYTES * int(layout[0]) + _WORD * _len(layout[1])


def check(layout: Any, count: int) -> None:
    """Check that a layout is valid for ``count`` items. Raises ``Malformed``."""
    if _type(layout) is not list or _len(layout) != 2:
        raise Malformed("not a layout")
    size, steps = layout
    if _type(size) is not int or _type(steps) is not list:
        raise Malformed("not a layout")
    if not _SMALL_SLOTS <= size <= _MAX_SLOTS or size & (size - 1) or _len(steps) >= size:
        raise Malformed("not the size of a table")
    if not all(_type(step) is int and -size <= step < count for step in steps):
        raise Malformed("not a step")
    placed = [step for step in steps if step >= 0]
    if _len(placed) != count or _len({*steps}) != _len(steps):
        raise Malformed("not each item once")


def place(target: set[Any], items: list[Any], layout: list[Any], weight: int) -> None:
    """Fill an empty set by a checked layout, in the sender's order if possible.

    ``weight`` bounds the cost of comparing all items, in parts. Raises ``Malformed`` for too many
    hash collisions.
    """
    size, steps = layout
    fillers = {step: _Filler(-1 - step) for step in steps if step < 0}
    sequence = [items[step] if step >= 0 else fillers[step] for step in steps]
    if sequence and size > _SMALL_SLOTS:
        _reserve(target, sequence[0], size)
    fill_set(target, sequence, weight + _len(fillers), _SECONDS_EACH)
    for filler in fillers.values():  # in a loop, because `difference_update` would shrink the table
        target.discard(filler)
    if _len(target) != _len(items):
        fill_set(target, items, weight, _SECONDS_EACH)


def freeze(items: list[Any], layout: list[Any], weight: int) -> frozenset[Any]:
    """Return a frozenset of the items, in the listed order of iteration if possible."""
    ordered = [items[step] for step in layout[1] if step >= 0]
    found: set[Any] = set()
    fill_set(found, ordered, weight, _SECONDS_EACH)
    # A union with a dict resizes the table for the keys of both before adding a key.
    keys = max(layout[0] // 4, 5)
    added = min(_len(ordered), keys - 1)
    start = _frozenset(ordered[: keys - added])
    value = start.union(_dict.fromkeys(ordered[:added]), ordered[added:])
    if layout[0] == _SMALL_SLOTS:
        value = _frozenset(ordered)
    return value if _same(value, items) else _frozenset(items)


class _Stop(Exception):
    """Raised by a tripwire to end the update of a set."""


class _Filler:
    """Object with a chosen slot. As a tripwire, its comparison raises ``_Stop``."""

    __slots__ = ("slot", "trips")

    def __init__(self, slot: int) -> None:
        self.slot = slot
        self.trips = False

    def __hash__(self) -> int:
        return self.slot

    def __eq__(self, other: object) -> bool:
        if self.trips or (_type(other) is _Filler and other.trips):  # type: ignore[attr-defined]
            raise _Stop
        return self is other


def _reserve(target: set[Any], first: Any, size: int) -> None:
    """Give an empty set its first item, and a table of ``size`` slots.

    An update from a dict resizes the table once, by the number of keys, before inserting the first
    key. The first key is a tripwire: its comparison raises, so only the larger table remains.
    """
    target.add(first)
    tripwire = _Filler(_hash(first))
    found = _dict.fromkeys([tripwire, *_range(max(size // 4, 6) - 2)])
    tripwire.trips = True
    try:
        target.update(found)
    except _Stop:
        return


def _is_plain(items: list[Any]) -> bool:
    todo = [items]
    while todo:
        for item in todo.pop():
            key = _id(_type(item))
            if key in _NESTED:
                todo.append(item)
            elif key not in _PLAIN:
                return False
    return True


def _same(value: Any, items: list[Any]) -> bool:
    """Tell whether a set iterates in the order of the list, by identity."""
    return _len(value) == _len(items) and all(map(_is, value, items))


def _slots(value: Any) -> list[int | None] | None:
    """Return for each slot the id of its item, 0 for a removed item, None for a free slot."""
    if ctypes is None or object.__basicsize__ != 2 * _WORD or _threads() > 0:
        return None
    fields = (ctypes.c_ssize_t * _FIELDS).from_address(_id(value) + object.__basicsize__)
    _, used, mask, table = fields
    size = mask + 1
    if used != _len(value) or not _SMALL_SLOTS <= size <= _MAX_SLOTS or size & mask:
        return None
    sizeof: Any = _type(value).__sizeof__
    if sizeof(value) < size * _SLOT_BYTES and size > _SMALL_SLOTS:
        return None
    words = (ctypes.c_ssize_t * (2 * size)).from_address(table)[:]
    ids = {_id(item) for item in value}
    keys = words[::2]
    return [None if not key else key if key in ids else 0 for key in keys]


def _steps(slots: list[int | None], numbers: dict[int, int], value: Any) -> list[int]:
    """Return an order of insertion that leads to the table: blocking items come first."""
    mask = _len(slots) - 1
    hashes = {_id(item): _hash(item) for item in value}
    steps: list[int] = []
    placed: set[int] = _set()
    for start, key in enumerate(slots):
        todo = [] if key is None else [start]
        waiting: set[int] = _set()
        while todo:
            slot = todo[-1]
            if slot in placed:
                todo.pop()
                continue
            key = slots[slot]
            missing = []
            if key and slot not in waiting:
                waiting.add(slot)
                missing = [each for each in _before(hashes[key], slot, mask) if each not in placed]
            if missing:
                todo += [each for each in missing if slots[each] is not None]
                continue
            todo.pop()
            placed.add(slot)
            steps.append(numbers[key] if key else -1 - slot)
    return steps


def _before(hashed: int, slot: int, mask: int) -> list[int]:
    """Return the slots of an item's probe sequence before its own slot."""
    found: list[int] = []
    for each in _probe_slots(hashed, mask):
        if each == slot or _len(found) > mask:
            break
        found.append(each)
    return found


def _probe_slots(hashed: int, mask: int) -> Iterator[int]:
    perturb = hashed & 0xFFFFFFFFFFFFFFFF
    start = perturb & mask
    while True:
        more = LINEAR_PROBES if start + LINEAR_PROBES <= mask else 0
        yield from _range(start, start + more + 1)
        perturb >>= PERTURB_SHIFT
        start = (start * 5 + 1 + perturb) & mask
