"""Scales of charts: linear maps from values to positions, with few round ticks."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from datetime import UTC, datetime

CHARACTER = 10.2
"""Width of a character in the units of a chart, at the font size of a narrow page."""
LARGEST = 1e300
_SMALLEST = 1e-290
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
    ticks: tuple[tuple[float, str], ...]

    def at(self, value: float) -> float:
        """Return the position of a value; one beyond the scale lies at its end."""
        inner = min(max(value, self.low), self.high)
        share = (inner - self.low) / (self.high - self.low)
        return self.begin + share * (self.end - self.begin)


def finite(value: float | None) -> float | None:
    """Return a number that a scale can hold; None for NaN, infinity and None."""
    if value is None or not math.isfinite(value):
        return None
    return 0.0 if abs(value) < _SMALLEST else min(max(float(value), -LARGEST), LARGEST)


def bounds(values: Iterable[float]) -> tuple[float, float]:
    """Return the bounds of an axis that holds these values and 0; they differ."""
    low, high = 0.0, 0.0
    for value in values:
        low, high = min(low, value), max(high, value)
    return (low, high) if low < high else (0.0, 1.0)


def rounded(
    low: float, high: float, begin: float, end: float, *, most: int = 5, is_whole: bool = False
) -> Scale:
    """Return a scale whose ends are its first and last tick. `is_whole`: ticks are integers."""
    step = _step(high - low, most, is_whole)
    first, last = math.floor(low / step + 1e-9), math.ceil(high / step - 1e-9)
    last = max(last, first + 1)
    ticks = [index * step for index in range(first, last + 1)]
    return Scale(ticks[0], ticks[-1], begin, end, _labelled(ticks, step))


def integers(low: float, high: float, begin: float, end: float) -> Scale:
    """Return a scale for integers, with ticks between its ends that leave room for their labels."""
    if high - low < 1:
        low, high = low - 0.5, high + 0.5
    if high - low <= 1e-12 * max(abs(low), abs(high)):  # no two floats there differ by as little
        low, high = low - 1e-9 * abs(low), high + 1e-9 * abs(high)
    for most in range(6, 0, -1):
        step = _step(high - low, most, is_whole=True)
        indices = range(math.ceil(low / step), math.floor(high / step) + 1)
        labelled = _labelled([index * step for index in indices], step)
        widest = max((len(label) for _, label in labelled), default=0)
        if len(labelled) <= 1 or (widest + 2) * CHARACTER * len(labelled) <= end - begin:
            break
    return Scale(low, high, begin, end, labelled)


def times(low: float, high: float, begin: float, end: float) -> Scale:
    """Return a scale for times of `moment_of`, with ticks at round times in UTC."""
    if high - low < 2:
        low, high = low - 1, high + 1
    for step in _TIME_STEPS:
        indices = range(math.ceil(low / step), math.floor(high / step) + 1)
        width = (7 if step < 60 else 5) + 2
        if len(indices) * width * CHARACTER <= end - begin:
            break
    else:
        step = _step(high - low, 4, is_whole=True)
        indices = range(math.ceil(low / step), math.floor(high / step) + 1)
    ticks = [float(index * step) for index in indices]
    return Scale(low, high, begin, end, tuple((each, _time(each, step)) for each in ticks))


def moment_of(seconds: float) -> float:
    """Return a time in seconds since the epoch that a calendar has: from 1970 to 9999."""
    return min(max(float(seconds), 0.0), _LAST_SECOND)


def dates(low: float, high: float) -> str:
    """Return the days of a time axis in words: `2026-03-01`, or `2026-03-01 to 2026-03-04`."""
    days = [f"{_moment(each):%Y-%m-%d}" for each in (low, high)]
    return days[0] if days[0] == days[1] else " to ".join(days)


def moment(seconds: float) -> str:
    """Return a time in seconds since the epoch as a text in UTC."""
    return f"{_moment(seconds):%Y-%m-%d %H:%M:%S}"


def _step(span: float, most: int, is_whole: bool) -> float:
    """Return 1, 2 or 5 times a power of ten, so that a span has at most `most` of them."""
    power = 10.0 ** math.floor(math.log10(span / most))
    step = next(each for each in _steps(power) if span <= each * most * (1 + 1e-9))
    return max(1.0, step) if is_whole else step


def _steps(power: float) -> Iterator[float]:
    yield from (power, 2 * power, 5 * power, 10 * power, 20 * power)


def _labelled(ticks: list[float], step: float) -> tuple[tuple[float, str], ...]:
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


def _time(seconds: float, step: float) -> str:
    at = _moment(seconds)
    if step > 60 * _DAY:
        return f"{at:%Y-%m}"
    if seconds % _DAY == 0 or step >= _DAY:
        return f"{at:%b} {at.day}"
    return f"{at:%H:%M:%S}" if step < 60 else f"{at:%H:%M}"


def _moment(seconds: float) -> datetime:
    return datetime.fromtimestamp(moment_of(seconds), UTC)
