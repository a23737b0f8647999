"""Places of the points of a series on a horizontal axis of steps or of times."""

from __future__ import annotations

import itertools
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from proctor_service.features.journal.pages import drawing, scales
from proctor_service.features.journal.pages.scales import Scale

Row = Mapping[str, Any]
By = Literal["step", "time"]
MOST_APART = 40
"""Points with a mark each, and bars with a space between them; more would run into each other."""
_SPACE = 0.12
_LEAST_WIDTH = 1.2
_HOLE = 4
"""Points this many usual distances apart have a hole between them."""


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
        """Return whether another point follows this one without a hole."""
        return other.middle - self.middle <= _HOLE * self.usual


def with_position(points: Sequence[Row], by: By) -> list[Row]:
    """Return the points that have a step or a time, in its order."""
    key = "step" if by == "step" else "at"
    found = [point for point in points if scales.finite(point.get(key)) is not None]
    return sorted(found, key=lambda point: float(point[key]))


def placed(points: Sequence[Row], by: By, left: float) -> tuple[Scale, str, list[Place]]:
    """Return the axis, its title, and the places of points that are in its order.

    A bar is as wide as points are usually apart, and ends halfway to a nearer point.
    """
    right = drawing.WIDTH - drawing.RIGHT
    if by == "step":
        values = [(point["step"] + _last(point)) / 2 for point in points]
        labels = [_steps(point) for point in points]
        gap = _usual_gap(values, 1.0)
        x = scales.integers(values[0] - gap / 2, values[-1] + gap / 2, left, right)
        title = "step"
    else:
        values = [scales.moment_of(point["at"]) for point in points]
        labels = [f"{scales.moment(value)} UTC" for value in values]
        gap = _usual_gap(values, 60.0)
        x = scales.times(values[0] - gap / 2, values[-1] + gap / 2, left, right)
        title = f"time in UTC, {scales.dates(values[0], values[-1])}"
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


def _usual_gap(values: Sequence[float], only: float) -> float:
    """Return the median distance of neighbours; `only`: that of a single value."""
    gaps = [after - before for before, after in itertools.pairwise(values) if after > before]
    return statistics.median(gaps) if gaps else only


def _last(point: Row) -> int:
    last = point.get("last_step")
    return int(point["step"] if last is None else last)


def _steps(point: Row) -> str:
    first, last = point["step"], _last(point)
    return f"step {first:,}" if first == last else f"steps {first:,} to {last:,}"
