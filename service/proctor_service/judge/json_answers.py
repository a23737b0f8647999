"""Equality of a returned value with an expected JSON value.

JSON has no tuples and only text as keys: a tuple or an array may match a list, and dict keys are
compared in their JSON form. The walk follows the expected value, so it ends even if the answer is
cyclic or full of shared parts.
"""

from __future__ import annotations

import array
import json
from typing import Any

from proctor_service.codec import values
from proctor_service.judge.text import near

_SPARE_BYTES = 65_536
_LONGER_AT_MOST = 24
_MAX_KEY_BITS = 4096


def is_answer(line: bytes, expected: Any, tolerance: float = 0.0) -> bool:
    """Return True if an encoded value equals `expected`; floats may differ by `tolerance`.

    An encoding far longer than the expected value can never be equal and stays unparsed.
    """
    spare = len(line) - _SPARE_BYTES
    if spare > 0 and spare > len(json.dumps(expected)) * _LONGER_AT_MOST:
        return False
    try:
        return _is_same(values.decode(values.loads(line)), expected, tolerance)
    except (values.Malformed, ArithmeticError, RecursionError):  # a signalling NaN
        return False


def _is_same(value: Any, expected: Any, tolerance: float) -> bool:
    todo = [(value, expected)]
    while todo:
        got, wanted = todo.pop()
        if isinstance(wanted, list):
            if not isinstance(got, list | tuple | array.array) or len(got) != len(wanted):
                return False
            todo.extend(zip(got, wanted, strict=True))
        elif isinstance(wanted, dict):
            members = _members(got) if isinstance(got, dict) and len(got) == len(wanted) else None
            # Two keys with the same JSON form make the answer wrong: their values are ambiguous.
            if members is None or len(members) != len(got) or members.keys() != wanted.keys():
                return False
            todo.extend((members[key], wanted[key]) for key in wanted)
        elif isinstance(got, list | tuple | dict | set | frozenset) or not (
            _is_near(got, wanted, tolerance) if tolerance else bool(got == wanted)
        ):
            return False
    return True


def _is_near(got: Any, wanted: Any, tolerance: float) -> bool:
    """Compare two integers exactly, other numbers by `near`, and the rest by `==`."""
    numbers = isinstance(got, int | float) and isinstance(wanted, int | float)
    if not numbers or (isinstance(got, int) and isinstance(wanted, int)):
        return bool(got == wanted)
    try:
        return near(float(got), float(wanted), tolerance)
    except OverflowError:  # an int beyond the range of floats
        return False


def _members(value: dict[Any, Any]) -> dict[Any, Any]:
    return {_key(key): item for key, item in value.items()}


def _key(key: Any) -> Any:
    """Return a key in its JSON form; None, unequal to any text, if JSON has no such form."""
    if isinstance(key, int) and key.bit_length() > _MAX_KEY_BITS:
        return None
    if key is None or isinstance(key, bool | int | float):
        return json.dumps(key)
    return key if isinstance(key, str) else None
