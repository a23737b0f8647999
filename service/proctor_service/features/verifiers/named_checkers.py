"""Ready checkers by name: comparisons of an output with the answer.

`unordered_lines`: the same lines in any order. `unordered_tokens`: the same words in any order. `one_of`:
the output is one of the answer's lines. `permutation`: each line has the words of the answer's line, in
any order. `float_lists`: line by line as many words, and each number close to the expected number. All
checkers take time linear in the two texts, but for a sort.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from proctor_client.wire import CheckerName
from proctor_service.judge.graders.stdio import Compares
from proctor_service.judge.text import Closeness, Comparison

_CLOSE = Closeness(absolute=1e-6, relative=1e-6)
_TIMES_LINE = 3  # a letter has up to three in another case
_MOST_OF_NUMBER = 400  # characters of a number that counts as close


@dataclass(frozen=True, slots=True)
class _Unordered:
    """Compares the parts of two texts in any order; each part by a comparison of its text."""

    name: CheckerName
    ignore_case: bool

    def is_same(self, actual: str, expected: str) -> bool:
        """Tell whether `actual` has the same parts as `expected`."""
        if self.ignore_case:
            actual, expected = actual.casefold(), expected.casefold()
        return self._parts(actual) == self._parts(expected)

    def first_difference(self, actual: str, expected: str, *, reveal: bool = False) -> str:
        """Describe the difference of the texts; "" for equal texts."""
        return "" if self.is_same(actual, expected) else _differs(self.name, expected, reveal)

    def _parts(self, text: str) -> Sequence[object]:
        lines = [line.split() for line in _lines(text)]
        if self.name == "unordered_lines":
            return sorted(lines)
        if self.name == "permutation":
            return [sorted(line) for line in lines]
        return sorted(word for line in lines for word in line)


@dataclass(frozen=True, slots=True)
class _OneOf:
    """Accepts each line of the expected text."""

    comparison: Comparison

    def is_same(self, actual: str, expected: str) -> bool:
        """Tell whether `actual` is a line of `expected`."""
        words = actual.encode("utf-8", "surrogatepass").split()
        ours = _text(b" ".join(words))
        for line in _lines(expected):
            # A long output is compared with a long line alone, or the time would be quadratic.
            most = _TIMES_LINE * len(line) + _MOST_OF_NUMBER * len(words)
            if len(line.split()) != len(words) or len(ours) > most:
                continue
            if self.comparison.is_same(ours, _text(line)):
                return True
        return False

    def first_difference(self, actual: str, expected: str, *, reveal: bool = False) -> str:
        """Describe the difference; "" if the output is among the answer's lines."""
        return "" if self.is_same(actual, expected) else _differs("one_of", expected, reveal)


@dataclass(frozen=True, slots=True)
class _FloatLists:
    """Compares line by line, each by its words."""

    comparison: Comparison

    def is_same(self, actual: str, expected: str) -> bool:
        """Tell whether `actual` has as many lines, each close to the expected line."""
        ours, theirs = _lines(actual), _lines(expected)
        return len(ours) == len(theirs) and all(
            self.comparison.is_same(_text(one), _text(other))
            for one, other in zip(ours, theirs, strict=True)
        )

    def first_difference(self, actual: str, expected: str, *, reveal: bool = False) -> str:
        """Describe the difference of the lists; "" for close lists."""
        return "" if self.is_same(actual, expected) else _differs("float_lists", expected, reveal)


def named_checker(name: CheckerName, closeness: Closeness, *, ignore_case: bool) -> Compares:
    """Return the checker named `name`. `closeness`: of numbers, for `float_lists` and `one_of`."""
    if name == "one_of":
        return _OneOf(Comparison("tokens", closeness, ignore_case))
    if name == "float_lists":
        closeness = _CLOSE if closeness.is_exact else closeness
        return _FloatLists(Comparison("tokens", closeness, ignore_case))
    return _Unordered(name, ignore_case)


def _lines(text: str) -> Sequence[bytes]:
    """Return the lines with words. As bytes, of which ASCII white space alone is between words."""
    lines = text.encode("utf-8", "surrogatepass").split(b"\n")
    return [line for line in lines if line.strip()]


def _text(line: bytes) -> str:
    return line.decode("utf-8", "surrogatepass")


def _differs(name: str, expected: str, reveal: bool) -> str:
    text = f"the output differs from the answer by {name}"
    return f"{text}: {expected[:200]!r}" if reveal else text
