"""Evaluation of test conditions on results from a sandbox, with Python's operators.

The values are hostile data. The size of the expected value bounds how much of a result is parsed: a
far longer encoding can never be equal and stays unparsed. Other values larger than a megabyte are
left to a test sandbox (NotDecidable), because parsing them would block this process.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from proctor_service.codec import values
from proctor_service.codec.safe_repr import show
from proctor_service.judge.analysis.formulas import Check, NotDecidable

# Largest ratio between encodings of equal items: Fraction(1, 1) against 1, with brackets.
_LONGER_AT_MOST = 24
_SPARE_BYTES = 4096
_TRUTH_BYTES = 65_536
_LARGEST_PARSED_BYTES = 1 << 20
_SHOWN = 200


def holds(check: Check, answers: Sequence[bytes]) -> bool:
    """Return True if a condition holds for the encoded results of all calls.

    Raises NotDecidable, Malformed for a forged encoding, and any exception of a formula.
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
    """Return a short text of the value; "a value" if the value is not plain data.

    Of a large value the text only gives the number of bytes.
    """
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
        return not line.startswith(b'["h"')  # an empty or zero value has a shorter encoding
    value = _plain(values.loads(line))
    if isinstance(value, values.Opaque):
        return value.truth is True  # None: a class with its own truth; the tests expect data
    # NotImplemented is true; `bool` of it would warn, and some settings turn warnings into errors.
    return value is NotImplemented or bool(value)


def _plain(wire: Any) -> Any:
    """Return the value of a wire form. Raises NotDecidable for a numpy array at any depth."""
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
