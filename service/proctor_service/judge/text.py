"""Comparison of a program's output with the expected output.

`tokens`: the words between ASCII white space. `lines`: line by line, without trailing white space and
trailing blank lines. `trimmed`: line by line, without white space at both ends of a line and without
blank lines; with a closeness, any white space between the numbers of a line is the same. `exact`: every
character, regardless of the closeness. Two integers are equal or different, and equal integers have the
same digits: `0011` is another text than `11`. Any other pair of numbers may differ as far as the
`Closeness` says.

A model may read the text of a difference. The text therefore quotes the program's own output, and the
expected output only with `reveal`. All functions take time linear in the two texts.
"""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from dataclasses import dataclass
from decimal import Decimal, InvalidOperation
from fractions import Fraction
from itertools import zip_longest
from typing import Literal

from proctor_client.wire import Tolerance

Compare = Literal["tokens", "lines", "trimmed", "exact"]

_NUMBER = re.compile(
    r"[+-]?(?:\d+(?:\.\d*)?|\.\d+)(?:e[+-]?\d+)?|[+-]?inf(?:inity)?|nan", re.I | re.A
)
"""Numbers as programs print them: `-1`, `.5`, `1.`, `1e-9`, `NaN`; not `0x10` or `1_0`."""
_INTEGER = re.compile(r"[+-]?\d+", re.A)  # `-12`, `007`
_NUMBER_CHARACTERS = 400  # a float has fewer digits in its whole range
_QUOTED_CHARACTERS = 80
_BLANKS = " \t\n\r\v\f"
_SPACES = re.compile(r"(\s+)", re.A)
"""White space between words: two spaces in `a  b`; not the no-break space in `1\xa0000`."""
_WORD = re.compile(r"\S+", re.A)  # `a` and `b` in `a  b`


@dataclass(frozen=True, slots=True)
class Closeness:
    """Largest difference from an expected number: `absolute + relative * max(least_scale, |expected|)`."""

    absolute: float = 0.0
    relative: float = 0.0
    least_scale: float = 0.0

    @classmethod
    def of(cls, tolerance: float | Tolerance) -> Closeness:
        """Return the closeness of a grader's tolerance; a number `t` allows `t * max(1, |expected|)`."""
        if isinstance(tolerance, Tolerance):
            return cls(tolerance.absolute, tolerance.relative)
        return cls(relative=tolerance, least_scale=1.0)

    @property
    def is_exact(self) -> bool:
        """Tell whether only equal numbers are close."""
        return not (self.absolute or self.relative)

    def accepts(self, got: float, wanted: float) -> bool:
        """Tell whether a number is close to the expected number.

        NaN is close to NaN, and an infinity to itself, and to nothing else. Only the expected number sets
        the scale, so a huge answer cannot widen its own tolerance.
        """
        if math.isnan(got) or math.isnan(wanted):
            return math.isnan(got) and math.isnan(wanted)
        if math.isinf(got) or math.isinf(wanted):
            return got == wanted
        bound = self.absolute + self.relative * max(self.least_scale, abs(wanted))
        return abs(got - wanted) <= bound

    def accepts_for_integer(self, got: float, wanted: int) -> bool:
        """Tell whether a printed fraction is close to an expected integer, of any length.

        A tolerance with a least scale of its own is not scaled up by the integer: relative to a large
        integer, even a small tolerance would accept its neighbours.
        """
        if not math.isfinite(got):
            return False
        scale = Fraction(self.least_scale) or abs(wanted)
        return (
            abs(Fraction(got) - wanted) <= Fraction(self.absolute) + Fraction(self.relative) * scale
        )


EXACT = Closeness()


@dataclass(frozen=True, slots=True)
class Comparison:
    """Rules for the equality of an output and the expected output."""

    compare: Compare = "tokens"
    closeness: Closeness = EXACT
    ignore_case: bool = False

    def is_same(self, actual: str, expected: str) -> bool:
        """Tell whether `actual` counts as `expected`."""
        if actual == expected:
            return True
        if self.ignore_case:
            actual, expected = actual.casefold(), expected.casefold()
        ours, theirs = self._parts(actual), self._parts(expected)
        if ours == theirs:
            return True
        if self.closeness.is_exact or self.compare == "exact" or len(ours) != len(theirs):
            return False
        return all(map(self._is_same_part, ours, theirs))

    def first_difference(self, actual: str, expected: str, *, reveal: bool = False) -> str:
        """Describe the first difference from `expected`; empty if the texts count as equal."""
        if self.is_same(actual, expected):
            return ""
        ours, theirs = self._parts(actual), self._parts(expected)
        for number, (got, wanted) in enumerate(zip_longest(ours, theirs), 1):
            if got is not None and wanted is not None and self._is_same_part(got, wanted):
                continue
            place = _place(actual, number, self.compare)
            difference = _say(place, got, wanted, "token" if self.compare == "tokens" else "line")
            return (
                f"{difference}, expected {_quote(wanted)}"
                if reveal and wanted is not None
                else difference
            )
        raise AssertionError("outputs that differ have a difference")

    def _parts(self, text: str) -> Sequence[str]:
        if self.compare == "tokens":
            # The words of bytes lie between ASCII white space.
            words = text.encode("utf-8", "surrogatepass").split()
            return [word.decode("utf-8", "surrogatepass") for word in words]
        if self.compare == "lines":
            return [line.rstrip(_BLANKS) for line in text.rstrip(_BLANKS).split("\n")]
        if self.compare == "trimmed":
            return [line for each in text.split("\n") if (line := each.strip(_BLANKS))]
        return text.split("\n")

    def _is_same_part(self, got: str, wanted: str) -> bool:
        if self.ignore_case:
            got, wanted = got.casefold(), wanted.casefold()
        if got == wanted:
            return True
        if self.closeness.is_exact or self.compare == "exact":
            return False
        ours, theirs = _SPACES.split(got), _SPACES.split(wanted)
        if len(ours) != len(theirs):
            return False
        if self.compare == "trimmed" and all(map(_NUMBER.fullmatch, theirs[::2])):
            ours, theirs = ours[::2], theirs[::2]  # without what is between the words
        return all(
            one == other or self._is_close(one, other)
            for one, other in zip(ours, theirs, strict=True)
        )

    def _is_close(self, got: str, wanted: str) -> bool:
        if max(len(got), len(wanted)) > _NUMBER_CHARACTERS:
            return False
        if not (_NUMBER.fullmatch(got) and _NUMBER.fullmatch(wanted)):
            return False
        if _INTEGER.fullmatch(wanted):
            if _INTEGER.fullmatch(got):
                return int(got) == int(wanted) and got.lstrip("+-") == wanted.lstrip("+-")
            close = self.closeness.accepts_for_integer(float(got), int(wanted))
            return close or _is_decimal_of(got, int(wanted))
        one, other = float(got), float(wanted)
        if _overflowed(got, one) or _overflowed(wanted, other):
            return False
        return self.closeness.accepts(one, other)


def _is_decimal_of(token: str, wanted: int) -> bool:
    """Return True for a longer form of an integer, for example `5.0` for 5.

    A float lacks the last digits of a long integer.
    """
    try:
        return Decimal(token) == wanted
    except InvalidOperation:  # an exponent beyond the range of decimals
        return False


def _overflowed(token: str, value: float) -> bool:
    """Tell whether a number is infinite only because a float cannot hold the number."""
    return math.isinf(value) and "inf" not in token.lower()


def _place(actual: str, number: int, compare: Compare) -> str:
    """Return the part's position, counted from 1; a token's position includes its line."""
    if compare != "tokens":
        return f"line {number}"
    for at, match in enumerate(_WORD.finditer(actual), 1):
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
