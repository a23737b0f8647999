"""Comparison of a program's output with the expected output.

`tokens`: the words between whitespace. `lines`: line by line, without trailing whitespace and
trailing blank lines. `exact`: every character. With a tolerance, a number may differ by
`tolerance * max(1, |expected|)` if the expected number is a decimal fraction. If the expected
number is an integer, a different integer is wrong, and a fraction may differ by `tolerance` alone:
relative to a large integer, even a small tolerance would accept a wrong integer. `exact` ignores
the tolerance.

A model may read the text of a difference. The text therefore quotes the program's own output, and
the expected output only with `reveal`. All functions take time linear in the two texts.
"""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from fractions import Fraction
from itertools import zip_longest
from typing import Literal

Compare = Literal["tokens", "lines", "exact"]

_NUMBER = re.compile(
    r"[+-]?(?:\d+(?:\.\d*)?|\.\d+)(?:e[+-]?\d+)?|[+-]?inf(?:inity)?|nan", re.I | re.A
)
_INTEGER = re.compile(r"[+-]?\d+", re.A)
_NUMBER_CHARACTERS = 400  # a float has fewer digits in its whole range
_QUOTED_CHARACTERS = 80
_SPACES = re.compile(r"(\s+)")


def same_output(actual: str, expected: str, compare: Compare, tolerance: float) -> bool:
    """Tell whether `actual` counts as `expected`."""
    if actual == expected:
        return True
    ours, theirs = _parts(actual, compare), _parts(expected, compare)
    if ours == theirs:
        return True
    if not tolerance or compare == "exact" or len(ours) != len(theirs):
        return False
    return all(map(_same, ours, theirs, [tolerance] * len(ours)))


def first_difference(
    actual: str, expected: str, compare: Compare, tolerance: float, *, reveal: bool = False
) -> str:
    """Describe the first difference from `expected`; empty if the texts count as equal."""
    if same_output(actual, expected, compare, tolerance):
        return ""
    ours, theirs = _parts(actual, compare), _parts(expected, compare)
    allowed = 0.0 if compare == "exact" else tolerance
    for number, (got, wanted) in enumerate(zip_longest(ours, theirs), 1):
        if got is not None and wanted is not None and _same(got, wanted, allowed):
            continue
        place = _place(actual, number, compare)
        said = _say(place, got, wanted, "token" if compare == "tokens" else "line")
        return f"{said}, expected {_quote(wanted)}" if reveal and wanted is not None else said
    raise AssertionError("outputs that differ have a difference")


def near(got: float, wanted: float, tolerance: float) -> bool:
    """Tell whether two numbers differ by at most `tolerance * max(1, |wanted|)`.

    NaN is near NaN, and an infinity near itself; neither is near anything else. Only the
    expected value sets the scale, so a huge answer cannot widen its own tolerance.
    """
    if math.isnan(got) or math.isnan(wanted):
        return math.isnan(got) and math.isnan(wanted)
    if math.isinf(got) or math.isinf(wanted):
        return got == wanted
    return abs(got - wanted) <= tolerance * max(1.0, abs(wanted))


def _parts(text: str, compare: Compare) -> Sequence[str]:
    if compare == "tokens":
        return text.split()
    if compare == "lines":
        return [line.rstrip() for line in text.rstrip().split("\n")]
    return text.split("\n")


def _same(got: str, wanted: str, tolerance: float) -> bool:
    if got == wanted:
        return True
    if not tolerance:
        return False
    ours, theirs = _SPACES.split(got), _SPACES.split(wanted)
    if len(ours) != len(theirs):
        return False
    return all(
        one == other or _same_number(one, other, tolerance)
        for one, other in zip(ours, theirs, strict=True)
    )


def _same_number(got: str, wanted: str, tolerance: float) -> bool:
    if max(len(got), len(wanted)) > _NUMBER_CHARACTERS:
        return False
    if not (_NUMBER.fullmatch(got) and _NUMBER.fullmatch(wanted)):
        return False
    if _INTEGER.fullmatch(wanted):
        return _near_integer(got, int(wanted), tolerance)
    one, other = float(got), float(wanted)
    if _overflowed(got, one) or _overflowed(wanted, other):
        return False
    return near(one, other, tolerance)


def _near_integer(got: str, wanted: int, tolerance: float) -> bool:
    if _INTEGER.fullmatch(got):
        return int(got) == wanted
    one = float(got)
    return math.isfinite(one) and abs(Fraction(one) - wanted) <= tolerance


def _overflowed(token: str, value: float) -> bool:
    """Tell whether a number is infinite only because a float cannot hold the number."""
    return math.isinf(value) and "inf" not in token.lower()


def _place(actual: str, number: int, compare: Compare) -> str:
    """Return the part's position, counted from 1; a token's position includes its line."""
    if compare != "tokens":
        return f"line {number}"
    for at, match in enumerate(re.finditer(r"\S+", actual), 1):
        if at == number:
            return f"token {number} (line {actual.count(chr(10), 0, match.start()) + 1})"
    return f"token {number}"


def _say(place: str, got: str | None, wanted: str | None, unit: str) -> str:
    if got is None:
        before = int(place.split()[1]) - 1
        if not before:
            return "nothing was printed"
        return f"the output ends too early, after {before} {unit}{'s' * (before > 1)}"
    if wanted is None:
        return f"the output should have ended before {place}: got {_quote(got)}"
    return f"{place} differs: got {_quote(got)}"


def _quote(part: str) -> str:
    if len(part) > _QUOTED_CHARACTERS:
        return f"{part[:_QUOTED_CHARACTERS]!r}…"
    return repr(part)
