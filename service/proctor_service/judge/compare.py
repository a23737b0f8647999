"""Decides conditions of tests on what came out of a sandbox, here, with Python's own operators.

The values are hostile data. How much of one is read is bounded by how large the expected value is: an
encoding that is far longer cannot be of an equal value, and is not parsed. What is larger than a
megabyte otherwise is left to a sandbox of the tests (NotDecidable): parsing it in one piece would
keep this process from all else.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from proctor_service.inside import values
from proctor_service.inside.showing import show
from proctor_service.judge.analysis.formulas import Check, NotDecidable

# One item in the longest form that can equal it in the shortest: 1 and Fraction(1, 1), with brackets.
_LONGER_AT_MOST = 24
_SPARE_BYTES = 4096
_TRUTH_BYTES = 65_536
_LARGEST_PARSED_BYTES = 1 << 20
_SHOWN = 200


def holds(check: Check, answers: Sequence[bytes]) -> bool:
    """Tell whether a condition holds of the encoded results of all calls.

    Raises NotDecidable, Malformed for a forged encoding, and for a formula whatever it raises.
    """
    if check.formula is not None:
        known: dict[int, Any] = {}

        def result(number: int) -> Any:
            if number not in known:
                known[number] = _decode(answers[number])
            return known[number]

        return bool(check.formula(result))
    line = answers[check.calls[0]]
    if check.compare is None:
        return _truth(line) is not check.negated
    return _compares(check, line)


def _compares(check: Check, line: bytes) -> bool:
    assert check.compare is not None
    if len(line) > check.wire_bytes * _LONGER_AT_MOST + _SPARE_BYTES:
        if check.symbol in ("==", "is"):
            return False
        if check.symbol in ("!=", "is not"):
            return True
        raise NotDecidable("a large value")
    if len(line) > _LARGEST_PARSED_BYTES:
        raise NotDecidable("a large value")
    wire = values.loads(line)
    if check.symbol == "==" and wire == check.wire:
        return True
    value = _plain(wire)
    left, right = (check.expected, value) if check.reflected else (value, check.expected)
    try:
        return bool(check.compare(left, right))
    except (TypeError, RecursionError, ArithmeticError):
        return False


def shown(line: bytes) -> str:
    """Return the value for a message, cut short; "a value" when it is too large or no plain one."""
    if len(line) > _SPARE_BYTES:
        return f"a value of {len(line)} bytes"
    try:
        return show(_plain(values.loads(line)), _SHOWN)
    except NotDecidable:
        return "an array"
    except (ValueError, RecursionError):
        return "a value"


def _decode(line: bytes) -> Any:
    if len(line) > _LARGEST_PARSED_BYTES:
        raise NotDecidable("a large value")
    return _plain(values.loads(line))


def _truth(line: bytes) -> bool:
    if len(line) > _TRUTH_BYTES:
        return not line.startswith(b'["h"')  # nothing empty or zero is that long
    value = _plain(values.loads(line))
    if isinstance(value, values.Opaque):
        return value.truth is True  # of a class with its own truth, the tests expect data
    # It is true, and asking it is a warning, which some settings make an error of.
    return value is NotImplemented or bool(value)


def _plain(wire: Any) -> Any:
    """Return what a wire form stands for. Raises NotDecidable for a numpy array anywhere in it."""
    value = values.decode(wire)
    todo = [wire]
    while todo:
        item = todo.pop()
        if isinstance(item, list):
            if item and item[0] == "nd":
                raise NotDecidable("an array")
            todo += item
        elif isinstance(item, dict):
            todo += item.values()
    return value
