"""Expected values in the text of tests, and the choice of replacements.

The rules here hold for every language; `Dialect` writes the values of a language.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal as OneOf
from typing import Protocol

from proctor_client.wire import Grader

Kind = OneOf["integer", "float", "complex", "string", "bytes", "boolean", "null", "decimal"]
_NUMBERS = ("integer", "float", "decimal")
_NARROW = 2  # times; a tolerance may count from either value
_MOST_TRIED = 64  # other values for an expectation
_WIDEST_RELATIVE = 0.45  # above, no number is certain to be far away


@dataclass(frozen=True, slots=True)
class Tolerance:
    """Largest accepted difference, as a share of a value and as a number; their sum is the bound."""

    relative: float = 0.0
    absolute: float = 0.0

    def __or__(self, other: Tolerance) -> Tolerance:
        """Return a tolerance for every value of either tolerance."""
        return Tolerance(max(self.relative, other.relative), max(self.absolute, other.absolute))

    def bears(self) -> bool:
        """Tell whether some number is certain to be outside."""
        return 0 <= self.relative <= _WIDEST_RELATIVE and 0 <= self.absolute < 1e100

    def separates(self, one: float, other: float) -> bool:
        """Return True if every answer is too far from either number."""
        bound = self.relative * (abs(one) + abs(other)) + self.absolute
        return one != other and not abs(one - other) <= _NARROW * bound


EXACT = Tolerance()


@dataclass(frozen=True, slots=True)
class Scalar:
    """A number, string, truth value or null in a text; `begin` and `end` count characters."""

    begin: int
    end: int
    kind: Kind
    value: object


@dataclass(frozen=True, slots=True)
class Literal:
    """A literal in a text: a scalar, or a container of literals.

    `type`: values of the same type may replace each other. `value`: equal for literals of possible
    equality in tests. `gap`: place for an element in a container without scalars. `text` is the literal
    as written, if the text may stand elsewhere, too. `divisor`: of the scalars, for tolerances (3 in
    1/3).
    """

    begin: int
    end: int
    type: str
    value: object
    scalars: tuple[Scalar, ...]
    gap: int | None = None
    text: str | None = None
    divisor: float = 1.0


@dataclass(frozen=True, slots=True)
class Expectation:
    """An expected value with a certain comparison. `part`: name of its text.

    `only_far`: other expected values of the suite may count as equal in this comparison.
    """

    part: str
    literal: Literal
    tolerance: Tolerance = EXACT
    only_far: bool = False


@dataclass(frozen=True, slots=True)
class Edit:
    """A replacement of the characters from `begin` to `end`."""

    begin: int
    end: int
    text: str


class Draw:
    """A source of choices which follow from a seed and the place of each choice alone."""

    def __init__(self, seed: bytes) -> None:
        self._seed = seed

    def below(self, bound: int, *place: Hashable) -> int:
        """Return a number from 0 to `bound` - 1 for a place."""
        text = repr(place).encode("utf-8", "surrogatepass")
        digest = hashlib.blake2b(text, digest_size=8, key=self._seed[:64]).digest()
        return int.from_bytes(digest, "big") % bound


class Dialect(Protocol):
    """The literals of a language."""

    def far(self, scalar: Scalar, tolerance: Tolerance, draw: Draw) -> str | None:
        """Return a value far beyond the tolerance as text, if the language has any."""

    def element(self, literal: Literal, draw: Draw) -> str | None:
        """Return the text of an element for an empty container, if any."""

    def fitted(self, text: str, replaced: str) -> str:
        """Return a literal in a form with the place, and the number of lines, of the replaced literal."""


def changed(
    texts: Mapping[str, str],
    expectations: Sequence[Expectation],
    seed: bytes,
    dialects: Mapping[str, Dialect],
) -> dict[str, str] | None:
    """Return the texts with other expected values, if any expectation is clear.

    `dialects`: of each text.

    One expectation, and by an even coin each further expectation, becomes another value: some draws find
    a program with a cheat in a part of the tests. The other value is, by an even coin, an expected value
    from elsewhere in the suite, or a value far away; at least one value is far away, since some
    right answers equal several of the suite's values (7 modulo 5).
    """
    draw = Draw(seed)
    usable = clear(texts, expectations, dialects, draw)
    if not usable:
        return None
    surely_far = draw.below(len(usable), "far")
    by_type: dict[str, list[Expectation]] = {}
    for each in usable:
        by_type.setdefault(each.literal.type, []).append(each)
    found: dict[str, list[Edit]] = {}
    for index, each in enumerate(usable):
        edit = None
        if index != surely_far:
            if draw.below(2, "left", index):
                continue
            if draw.below(2, "coin", index):
                alike = by_type[each.literal.type]
                edit = _other(each, alike, texts[each.part], draw, dialects[each.part])
        edit = edit or _far(each, texts[each.part], draw, dialects[each.part])
        if edit is not None:
            found.setdefault(each.part, []).append(edit)
    return {**texts, **{part: edited(texts[part], edits) for part, edits in found.items()}}


def clear(
    texts: Mapping[str, str],
    expectations: Sequence[Expectation],
    dialects: Mapping[str, Dialect],
    draw: Draw,
) -> list[Expectation]:
    """Return the expectations with a value far away, outside the tolerance."""
    return [
        each
        for each in expectations
        if each.tolerance.bears() and _far(each, texts[each.part], draw, dialects[each.part])
    ]


def edited(text: str, edits: Sequence[Edit]) -> str:
    """Return a text after edits of different places."""
    parts, at = [], 0
    for edit in sorted(edits, key=lambda each: each.begin):
        parts += [text[at : edit.begin], edit.text]
        at = edit.end
    return "".join([*parts, text[at:]])


def _other(
    of: Expectation, alike: Sequence[Expectation], text: str, draw: Draw, dialect: Dialect
) -> Edit | None:
    """Return the replacement by another near expected value of the same type, if any."""
    literal = of.literal
    if of.only_far:
        return None
    begin = draw.below(len(alike), "other", of.part, literal.begin)
    for number in range(min(len(alike), _MOST_TRIED)):
        other = alike[(begin + number) % len(alike)].literal
        if other.text is not None and not _alike(other, literal, of.tolerance):
            replaced = text[literal.begin : literal.end]
            return Edit(literal.begin, literal.end, dialect.fitted(other.text, replaced))
    return None


def _alike(one: Literal, other: Literal, tolerance: Tolerance) -> bool:
    """Tell whether an answer may be equal to both literals."""
    if one.value == other.value:
        return True
    if tolerance == EXACT:
        return False
    numbers = [
        each.scalars[0].value
        for each in (one, other)
        if len(each.scalars) == 1 and each.scalars[0].kind == each.type
    ]
    match numbers:
        case [int() | float() as first, int() | float() as second]:
            return not _separates(tolerance, first, second)
    return True


def _separates(tolerance: Tolerance, one: float, other: float) -> bool:
    try:
        return tolerance.separates(one, other)
    except OverflowError:  # an integer above all floats
        return False


def _far(of: Expectation, text: str, draw: Draw, dialect: Dialect) -> Edit | None:
    """Return the replacement of a scalar by a value far away, if any."""
    literal = of.literal
    scalars = literal.scalars
    if of.tolerance != EXACT:
        scalars = tuple(each for each in scalars if each.kind in _NUMBERS)
    else:
        scalars = tuple(s for s in scalars if s.kind not in ("boolean", "null")) or scalars
    if scalars:
        scalar = scalars[draw.below(len(scalars), "scalar", of.part, literal.begin)]
        new = dialect.far(scalar, of.tolerance, draw)
        if new is None:
            return None
        return Edit(scalar.begin, scalar.end, dialect.fitted(new, text[scalar.begin : scalar.end]))
    if literal.gap is None or of.tolerance != EXACT:
        return None
    element = dialect.element(literal, draw)
    return None if element is None else Edit(literal.gap, literal.gap, element)


@dataclass(frozen=True, slots=True)
class Tests:
    """Texts of a grader's tests, their clear expectations, and how other texts make a grader.

    `made`: returns None for texts with errors of syntax.
    """

    texts: Mapping[str, str]
    expectations: Sequence[Expectation]
    dialects: Mapping[str, Dialect]
    made: Callable[[dict[str, str]], Grader | None]
