"""Scales of charts with few round ticks, and places of the points of a series on such a scale."""

from __future__ import annotations

import itertools
import math
import statistics
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, Literal

Row = Mapping[str, Any]
By = Literal["step", "time"]
Ticks = tuple[tuple[float, str], ...]
WIDTH, RIGHT = 480, 12.0
"""Width of a picture, and of its right margin."""
CHARACTER = 10.2
"""Width of a character in the units of a chart, at the font size of a narrow page."""
LARGEST = 1e300
_SMALLEST = 1e-290
MOST_APART = 40
"""Points with a mark each, and bars with a space between them; more would run into each other."""
_SPACE = 0.12
_LEAST_WIDTH = 1.2
_HOLE = 4
"""Points this many usual distances apart have a hole between them."""
_DAY = 86_400
_LAST_SECOND = 253_402_300_799.0
_TIME_STEPS: tuple[float, ...] = (
    1, 2, 5, 10, 15, 30, 60, 120, 300, 600, 900, 1800, 3600, 7200, 10_800, 21_600, 43_200, _DAY,
    2 * _DAY, 5 * _DAY, 10 * _DAY, 20 * _DAY, 50 * _DAY, 100 * _DAY, 200 * _DAY, 400 * _DAY,
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class Scale:
    """Linear map of the values from `low` to `high` to positions, with ticks as (value, label)."""

    low: float
    high: float
    begin: float
    end: float
    ticks: Ticks

    def at(self, value: float) -> float:
        """Return the position of a value; values beyond the scale lie at its ends."""
        inner = min(max(value, self.low), self.high)
        share = (inner - self.low) / (self.high - self.low)
        return self.begin + share * (self.end - self.begin)


def finite(value: float | None) -> float | None:
    """Return a number within the range of scales; None for NaN, infinity and None."""
    if value is None or not math.isfinite(value):
        return None
    return 0.0 if abs(value) < _SMALLEST else min(max(float(value), -LARGEST), LARGEST)


def bounds(values: Iterable[float]) -> tuple[float, float]:
    """Return the bounds of an axis with these values and 0; they differ."""
    low, high = 0.0, 0.0
    for value in values:
        low, high = min(low, value), max(high, value)
    return (low, high) if low < high else (0.0, 1.0)


def rounded(
    low: float, high: float, begin: float, end: float, *, most: int = 5, is_whole: bool = False
) -> Scale:
    """Return a scale from its first to its last tick. `is_whole`: ticks are integers."""
    step = next(_round_steps((high - low) / most))
    step = max(1.0, step) if is_whole else step
    first, last = math.floor(low / step + 1e-9), math.ceil(high / step - 1e-9)
    ticks = [index * step for index in range(first, max(last, first + 1) + 1)]
    return Scale(ticks[0], ticks[-1], begin, end, _numbers(ticks, step))


def integers(low: float, high: float, begin: float, end: float) -> Scale:
    """Return a scale for integers, with ticks between its ends and room for their labels."""
    least = max(1.0, 1e-9 * max(abs(low), abs(high)))  # no two large floats differ by less
    low, high = _apart(low, high, least)
    steps = _round_steps(max((high - low) / 6, 1.0))
    return _fitted(low, high, begin, end, steps, _numbers)


def times(low: float, high: float, begin: float, end: float) -> Scale:
    """Return a scale for times of `moment_of`, with ticks at round times in UTC."""
    low, high = _apart(low, high, 2.0)
    steps = itertools.chain(_TIME_STEPS, _round_steps(_TIME_STEPS[-1]))
    return _fitted(low, high, begin, end, steps, _times)


def moment_of(seconds: float) -> float:
    """Return a time in seconds since the epoch, on the calendar: from 1970 to 9999."""
    return min(max(float(seconds), 0.0), _LAST_SECOND)


def dates(low: float, high: float) -> str:
    """Return the days of a time axis in words: `2026-03-01`, or `2026-03-01 to 2026-03-04`."""
    days = [f"{_moment(each):%Y-%m-%d}" for each in (low, high)]
    return days[0] if days[0] == days[1] else " to ".join(days)


def moment(seconds: float) -> str:
    """Return a time in seconds since the epoch as a text in UTC."""
    return f"{_moment(seconds):%Y-%m-%d %H:%M:%S}"


@dataclass(frozen=True, slots=True)
class Place:
    """A point on the axis: its middle, the edges of its bar, and the usual distance of points."""

    row: Row
    label: str
    begin: float
    middle: float
    end: float
    usual: float

    def is_before(self, other: Place) -> bool:
        """Return whether another point follows this point without a hole."""
        return other.middle - self.middle <= _HOLE * self.usual


def with_position(points: Sequence[Row], by: By) -> list[Row]:
    """Return the points with a step or a time, in its order."""
    key = "step" if by == "step" else "at"
    found = [point for point in points if finite(point.get(key)) is not None]
    return sorted(found, key=lambda point: float(point[key]))


def placed(points: Sequence[Row], by: By, left: float) -> tuple[Scale, str, list[Place]]:
    """Return the axis, its title, and the places of points in its order.

    A bar is as wide as points are usually apart, and ends halfway to a nearer point.
    """
    right = WIDTH - RIGHT
    if by == "step":
        values = [(point["step"] + _last(point)) / 2 for point in points]
        labels = [_steps(point) for point in points]
        gap = _usual_gap(values, 1.0)
        x = integers(values[0] - gap / 2, values[-1] + gap / 2, left, right)
        title = "step"
    else:
        values = [moment_of(point["at"]) for point in points]
        labels = [f"{moment(value)} UTC" for value in values]
        gap = _usual_gap(values, 60.0)
        x = times(values[0] - gap / 2, values[-1] + gap / 2, left, right)
        title = f"time in UTC, {dates(values[0], values[-1])}"
    middles = [x.at(value) for value in values]
    usual = gap / (x.high - x.low) * (right - left)
    space = _SPACE * usual if len(points) <= MOST_APART else 0.0
    befores = [middles[0] - usual, *middles[:-1]]
    afters = [*middles[1:], middles[-1] + usual]
    places: list[Place] = []
    for index, middle in enumerate(middles):
        to_begin = min(usual, middle - befores[index]) / 2 - space
        to_end = min(usual, afters[index] - middle) / 2 - space
        begin = middle - max(to_begin, _LEAST_WIDTH / 2)
        begin = max(begin, places[-1].end) if places else begin
        end = middle + max(to_end, _LEAST_WIDTH / 2)
        places.append(Place(points[index], labels[index], begin, middle, end, usual))
    return x, title, places


def _round_steps(least: float) -> Iterator[float]:
    """Yield 1, 2 and 5 times powers of ten, from `least` on."""
    power = 10.0 ** math.floor(math.log10(least))
    while True:
        for step in (power, 2 * power, 5 * power):
            if step >= least * (1 - 1e-9):
                yield step
        power *= 10


def _apart(low: float, high: float, least: float) -> tuple[float, float]:
    """Return the two values, moved apart to a distance of at least `least`."""
    return (low, high) if high - low >= least else (low - least / 2, high + least / 2)


def _fitted(
    low: float,
    high: float,
    begin: float,
    end: float,
    steps: Iterable[float],
    labelled: Callable[[list[float], float], Ticks],
) -> Scale:
    """Return the scale with the first step of fitting labels."""
    for step in steps:
        first, last = math.ceil(low / step), math.floor(high / step)
        if last - first > 100:
            continue
        ticks = labelled([float(index * step) for index in range(first, last + 1)], step)
        widest = max((len(label) for _, label in ticks), default=0)
        if len(ticks) <= 1 or (widest + 2) * CHARACTER * len(ticks) <= end - begin:
            return Scale(low, high, begin, end, ticks)
    raise AssertionError("the steps have no end")


def _numbers(ticks: list[float], step: float) -> Ticks:
    largest = max((abs(each) for each in ticks), default=0.0)
    if largest >= 1e6 or step < 1e-4:
        digits = max(0, math.floor(math.log10(largest or 1)) - math.floor(math.log10(step)))
        texts = [f"{each:.{digits}e}" for each in ticks]
        return tuple(zip(ticks, map(_short, texts), strict=True))
    decimals = max(0, -math.floor(math.log10(step) + 1e-9))
    return tuple((each, f"{each + 0.0:,.{decimals}f}") for each in ticks)


def _short(text: str) -> str:
    """Return `2.50e+06` as `2.5e6`, and zero as `0`."""
    digits, _, exponent = text.partition("e")
    digits = digits.rstrip("0").rstrip(".") if "." in digits else digits
    return "0" if digits in ("0", "-0") else f"{digits}e{int(exponent)}"


def _times(ticks: list[float], step: float) -> Ticks:
    return tuple((each, _time(each, step)) for each in ticks)


def _time(seconds: float, step: float) -> str:
    at = _moment(seconds)
    if step > 60 * _DAY:
        return f"{at:%Y-%m}"
    if seconds % _DAY == 0 or step >= _DAY:
        return f"{at:%b} {at.day}"
    return f"{at:%H:%M:%S}" if step < 60 else f"{at:%H:%M}"


def _moment(seconds: float) -> datetime:
    return datetime.fromtimestamp(moment_of(seconds), UTC)


def _usual_gap(values: Sequence[float], only: float) -> float:
    """Return the median distance of neighbours; `only`: a single value's."""
    gaps = [after - before for before, after in itertools.pairwise(values) if after > before]
    return statistics.median(gaps) if gaps else only


def _last(point: Row) -> int:
    last = point.get("last_step")
    return int(point["step"] if last is None else last)


def _steps(point: Row) -> str:
    first, last = point["step"], _last(point)
    return f"step {first:,}" if first == last else f"steps {first:,} to {last:,}"
