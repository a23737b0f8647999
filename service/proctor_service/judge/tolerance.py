"""Equality of values with a tolerance for floats."""

from __future__ import annotations

import math


def near(got: float, wanted: float, tolerance: float) -> bool:
    """Return True if two numbers differ by at most `tolerance * max(1, |wanted|)`.

    NaN is near NaN only, and an infinity near itself only. Only the expected value sets the scale,
    so a huge answer cannot widen its own tolerance.
    """
    if math.isnan(got) or math.isnan(wanted):
        return math.isnan(got) and math.isnan(wanted)
    if math.isinf(got) or math.isinf(wanted):
        return got == wanted
    return abs(got - wanted) <= tolerance * max(1.0, abs(wanted))


def close(got: object, wanted: object, tolerance: float) -> bool:
    """Return True if `got` equals `wanted`; floats may differ by `tolerance`, relative and
    absolute.

    `wanted` is JSON: None, bool, int, float, str, lists, and dicts with strings as keys. The walk
    follows `wanted`, so a cyclic or huge `got` ends with it. Two integers are compared exactly, and
    True is 1. A tuple counts as a list, since JSON has no tuples. All other values use Python's
    `==`.
    """
    pairs = [(got, wanted)]
    while pairs:
        one, other = pairs.pop()
        if isinstance(other, list):
            if not isinstance(one, list | tuple) or len(one) != len(other):
                return False
            pairs.extend(zip(one, other, strict=True))
        elif isinstance(other, dict):
            if not isinstance(one, dict) or one.keys() != other.keys():
                return False
            pairs.extend((one[key], other[key]) for key in other)
        elif not _same_leaf(one, other, tolerance):
            return False
    return True


def _same_leaf(got: object, wanted: object, tolerance: float) -> bool:
    if isinstance(got, int | float) and isinstance(wanted, int | float):
        if isinstance(got, int) and isinstance(wanted, int):
            return got == wanted
        try:
            return near(float(got), float(wanted), tolerance)
        except OverflowError:  # an int beyond the range of floats
            return False
    return bool(got == wanted)
