"""Series of a job by step or by time, from its points (`counts.py`): bounded, however many there are."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Literal

from sqlalchemy import ColumnElement, Connection, case, cast, func, literal, select

from proctor_service.features.journal.counts import NO_STEP, SLOT_SECONDS
from proctor_service.features.journal.rows import clean
from proctor_service.features.journal.schema import points

Row = dict[str, Any]
By = Literal["step", "time"]
MOST_STEPS, MOST_TIMES = 500, 120
"""Bounds on the points of a series by step, without that of no step, and by time."""
WIDTHS_SECONDS = (10, 30, 60, 300, 900, 3600, 21_600, 86_400)
_SUMMED = ("count", "judged", "rewards", "squares")


def series(connection: Connection, tenant: str | None, job: str, by: By) -> Row:
    """Return `series`, a point for each step or time, and `width_seconds` of the times.

    A point has `count`, `judged`, `rewards` (their sum), `squares` (theirs), and counts by
    `verdicts`. By step it has `step` and `last_step`, several steps where there are too many, and None
    for evaluations without a step; by time it has `at`, where it begins, in seconds since the epoch.
    """
    of_job = [points.c.job == clean(job)]
    if tenant is not None:
        of_job.append(points.c.tenant == clean(tenant))
    if by == "time":
        return _by_time(connection, of_job)
    return _by_step(connection, of_job)


def finished(point: Row) -> Row:
    """Return a point with mean and standard deviation (`spread`) of its rewards, not their sums."""
    rest = dict(point)
    mean, spread = moments(rest["judged"], rest.pop("rewards"), rest.pop("squares"))
    return {**rest, "mean_reward": mean, "spread": spread}


def moments(count: int, total: float, squares: float) -> tuple[float | None, float | None]:
    """Return mean and standard deviation, or None twice for no values."""
    if not count:
        return None, None
    mean = total / count
    return mean, max(squares / count - mean * mean, 0.0) ** 0.5


def _by_step(connection: Connection, of_job: list[ColumnElement[bool]]) -> Row:
    step = points.c.step
    count = connection.execute(select(func.count(step.distinct())).where(*of_job)).scalar_one()
    together = -(-count // MOST_STEPS)
    rank = func.dense_rank().over(partition_by=step == NO_STEP, order_by=step).label("rank")
    ranked = (
        select(step, points.c.verdict, *_sums(points.c), rank)
        .where(*of_job)
        .group_by(step, points.c.verdict)
        .subquery()
    ).c
    place = case((ranked.step == NO_STEP, NO_STEP), else_=(ranked.rank - 1) // max(together, 1))
    query = (
        select(
            place.label("place"),
            func.min(ranked.step).label("step"),
            func.max(ranked.step).label("last_step"),
            ranked.verdict,
            *_sums(ranked),
        )
        .group_by(place, ranked.verdict)
        .order_by(place)
    )
    found: dict[int, Row] = {}
    for row in connection.execute(query):
        point = _added(
            found.setdefault(row.place, {"step": row.step, "last_step": row.last_step}), row
        )
        point["step"] = min(point["step"], row.step)
        point["last_step"] = max(point["last_step"], row.last_step)
    if NO_STEP in found:
        found[NO_STEP] |= {"step": None, "last_step": None}
    return {"series": list(found.values())}


def _by_time(connection: Connection, of_job: list[ColumnElement[bool]]) -> Row:
    slot = points.c.slot
    ends = select(func.min(slot), func.max(slot)).where(*of_job)
    first, last = connection.execute(ends).one()
    if first is None:
        return {"series": []}
    width = _width(first * SLOT_SECONDS, last * SLOT_SECONDS)
    place = (slot // literal(width // SLOT_SECONDS)).label("place")
    query = (
        select(place, points.c.verdict, *_sums(points.c))
        .where(*of_job)
        .group_by(place, points.c.verdict)
        .order_by(place)
    )
    found: dict[int, Row] = {}
    for row in connection.execute(query):
        _added(found.setdefault(row.place, {"at": float(row.place * width)}), row)
    return {"series": list(found.values()), "width_seconds": width}


def _width(first: int, last: int) -> int:
    """Return the width of the times from the first to the last second, a round one."""
    days = WIDTHS_SECONDS[-1]
    for width in WIDTHS_SECONDS:
        if last // width - first // width < MOST_TIMES:
            return width
    return days * -(-(last // days - first // days + 1) // (MOST_TIMES - 1))


def _sums(columns: Any) -> Iterator[ColumnElement[Any]]:
    """Yield the sums of columns, each of the column's type: PostgreSQL would have its own."""
    for name in _SUMMED:
        column = columns[name]
        yield cast(func.sum(column), column.type).label(name)


def _added(point: Row, row: Any) -> Row:
    """Add the sums of a verdict to a point."""
    for name in _SUMMED:
        point[name] = point.get(name, 0) + row._mapping[name]
    verdicts = point.setdefault("verdicts", {})
    verdicts[row.verdict] = verdicts.get(row.verdict, 0) + row._mapping["count"]
    return point
