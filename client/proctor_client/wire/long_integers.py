"""JSON with integers of any length, where Python's own functions take at most 4,300 digits.

Python's limit guards against conversions in quadratic time; these take less. `MOST_DIGITS` bounds the length,
since a text of many long integers still costs about a microsecond for each five digits.
"""

from __future__ import annotations

import decimal
import json
import re
import uuid
from typing import Any

MOST_DIGITS = 100_000
_EASY_DIGITS = 600  # that Python converts under every limit that can be set
_EASY_BITS = 1990  # of an integer with fewer digits than that
_INTEGER = re.compile(r"-?[0-9]+")
"""Integers of JSON: `-12` in `-12]`."""


def loads(text: str | bytes | bytearray) -> Any:
    """Return the value of a JSON text. Raises ValueError, also for more than `MOST_DIGITS` digits."""
    try:
        return json.loads(text)
    except json.JSONDecodeError:
        raise
    except ValueError:
        return json.loads(text, parse_int=integer)


def dumps(value: Any, encoder: json.JSONEncoder = json.JSONEncoder()) -> str:  # noqa: B008
    """Return the JSON text of a value. Raises ValueError as `json.dumps`."""
    try:
        return encoder.encode(value)
    except ValueError:
        mark, found = uuid.uuid4().hex, list[str]()
        text = encoder.encode(_marked(value, mark, found))
        return re.sub(f'"{mark}([0-9]+)"', lambda each: found[int(each[1])], text)


def integer(text: str) -> int:
    """Return the integer of a JSON number. Raises ValueError for more than `MOST_DIGITS` digits."""
    if len(text) <= _EASY_DIGITS:
        return int(text)
    digits = text.removeprefix("-")
    if len(digits) > MOST_DIGITS:
        raise ValueError(f"an integer with more than {MOST_DIGITS:,} digits")
    powers: dict[int, int] = {}

    def of(begin: int, end: int) -> int:
        size = _EASY_DIGITS
        if end - begin <= size:
            return int(digits[begin:end])
        while 2 * size < end - begin:
            size *= 2
        if size not in powers:
            powers[size] = 10**size
        return of(begin, end - size) * powers[size] + of(end - size, end)

    return -of(0, len(digits)) if text[0] == "-" else of(0, len(digits))


def integer_at(text: str, at: int) -> tuple[int, int]:
    """Return the integer at a place of a JSON text, and its end. Raises ValueError."""
    found = _INTEGER.match(text, at)
    if found is None:
        raise ValueError("no integer")
    return integer(found[0]), found.end()


def digits_of(value: int) -> str:
    """Return the decimal digits of an integer, of any length."""
    if value.bit_length() <= _EASY_BITS:
        return str(value)
    exact = decimal.Context(prec=decimal.MAX_PREC, Emax=decimal.MAX_EMAX, Emin=decimal.MIN_EMIN)

    def of(part: int, bits: int) -> decimal.Decimal:
        if bits <= _EASY_BITS:
            return decimal.Decimal(part)
        half = bits // 2
        high = exact.multiply(of(part >> half, bits - half), exact.power(decimal.Decimal(2), half))
        return exact.add(high, of(part & ((1 << half) - 1), half))

    return "-" * (value < 0) + str(of(abs(value), value.bit_length()))


def _marked(value: Any, mark: str, found: list[str]) -> Any:
    """Return the value with a text in place of each long integer; the digits go to `found`."""
    if isinstance(value, dict):
        return {name: _marked(each, mark, found) for name, each in value.items()}
    if isinstance(value, list | tuple):
        return [_marked(each, mark, found) for each in value]
    if type(value) is int and value.bit_length() > _EASY_BITS:
        found.append(digits_of(value))
        return f"{mark}{len(found) - 1}"
    return value
