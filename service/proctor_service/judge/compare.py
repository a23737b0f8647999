"""Compares what came out of a sandbox with what a test expects, here, with Python's own `==`.

The value is hostile data. How much of it is read is bounded by how large the expected value is: an
encoding that is far longer cannot be of an equal value, and is not parsed.
"""

from __future__ import annotations

from typing import Any

from proctor_service.inside import values
from proctor_service.inside.showing import show
from proctor_service.judge.separation import Expectation

# One item in the longest form that can equal it in the shortest: 1 and Fraction(1, 1), with brackets.
_LONGER_AT_MOST = 24
_SPARE_BYTES = 4096
_TRUTH_BYTES = 65_536
_SHOWN = 200


class NeedsRooms(Exception):
    """The value is an object of the submission's own: only the general path can say."""


def holds(line: bytes, wanted: Expectation) -> bool:
    """Whether an encoded value is as wanted. Raises NeedsRooms, or Malformed for a forged encoding."""
    if wanted.compare is None:
        return _truth(line) is not wanted.negated
    if len(line) > wanted.wire_bytes * _LONGER_AT_MOST + _SPARE_BYTES:
        if line.startswith(b'["h"'):
            raise NeedsRooms
        if wanted.symbol in ("==", "is"):
            return False
        if wanted.symbol in ("!=", "is not"):
            return True
        raise NeedsRooms
    wire = values.loads(line)
    if wanted.symbol == "==" and wire == wanted.wire:
        return True
    value = values.decode(wire)
    _refuse_objects(wire)
    left, right = (wanted.expected, value) if wanted.reflected else (value, wanted.expected)
    try:
        return bool(wanted.compare(left, right))
    except (TypeError, RecursionError, ArithmeticError):
        return False


def shown(line: bytes) -> str:
    """The value for a message, cut short; nothing when it is too large or no plain value."""
    if len(line) > _SPARE_BYTES:
        return f"a value of {len(line)} bytes"
    try:
        wire = values.loads(line)
        _refuse_objects(wire)
        return show(values.decode(wire), _SHOWN)
    except NeedsRooms:
        return "an object"
    except (ValueError, RecursionError):
        return "a value"


def _truth(line: bytes) -> bool:
    if len(line) > _TRUTH_BYTES:
        if line.startswith(b'["h"'):
            raise NeedsRooms
        return True  # nothing empty or zero is that long
    wire = values.loads(line)
    _refuse_objects(wire)
    value = values.decode(wire)
    # It is true, and asking it is a warning, which some settings make an error of.
    return value is NotImplemented or bool(value)


def _refuse_objects(wire: Any) -> None:
    """Raises NeedsRooms when there is a handle, or a numpy array, anywhere in an encoded value."""
    todo = [wire]
    while todo:
        item = todo.pop()
        if isinstance(item, list):
            if item and item[0] in ("h", "nd"):
                raise NeedsRooms
            todo += item
        elif isinstance(item, dict):
            todo += item.values()
