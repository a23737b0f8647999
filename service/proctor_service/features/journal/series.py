"""Counts of the evaluations of each job, and series of a job by step or by time from these counts.

Counts change in the same transaction as the evaluations. A job's series reads its points instead
of its evaluations, of which there may be a million, and has a bounded number of points.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, Literal

from sqlalchemy import (
    Column,
    ColumnElement,
    Connection,
    Table,
    bindparam,
    case,
    cast,
    delete,
    func,
    literal,
    select,
)
from sqlalchemy.dialects import postgresql, sqlite

from proctor_service.features.journal.rows import clean
from proctor_service.features.journal.schema import jobs, points

Row = dict[str, Any]
By = Literal["step", "time"]
SLOT_SECONDS = 10
"""Width of a slot of time in `points`."""
COUNTED = ("tenant", "job", "step", "at", "verdict", "reward")
"""Columns of an evaluation, in the order in which `Changes.add` takes them."""
NO_STEP = -1
NO_VERDICT = "error"
MOST_STEPS, MOST_TIMES = 500, 120
"""Bounds on the points of a series by step, without the point of no step, and by time."""
WIDTHS_SECONDS = (10, 30, 60, 300, 900, 3600, 21_600, 86_400)
_SUMMED = ("count", "judged", "rewards", "squares")


def series(connection: Connection, tenant: str | None, job: str, by: By) -> Row:
    """Return `series`, a point for each step or time, and `width_seconds` of the times.

    A point has `count`, `judged`, `rewards` (their sum), `squares` (theirs), and counts by
    `verdicts`. By step it has `step` and `last_step`, several steps where there are too many, and None
    for evaluations without a step; by time a point has `at`, its begin, in seconds since the epoch.
    """
    of_job = [points.c.job == clean(job)]
    if tenant is not None:
        of_job.append(points.c.tenant == clean(tenant))
    if by == "time":
        return _by_time(connection, of_job)
    return _by_step(connection, of_job)


def finished(point: Row) -> Row:
    """Return a point with mean and standard deviation (`spread`) in place of the rewards' sums."""
    rest = dict(point)
    mean, spread = moments(rest["judged"], rest.pop("rewards"), rest.pop("squares"))
    return {**rest, "mean_reward": mean, "spread": spread}


def moments(count: int, total: float, squares: float) -> tuple[float | None, float | None]:
    """Return mean and standard deviation, or None twice without values."""
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
    """Return the width of the times from the first to the last second, a round number."""
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


class Changes:
    """Changes of the counts, by added and removed evaluations."""

    def __init__(self) -> None:
        self._jobs: dict[tuple[str, str], Row] = {}
        self._points: dict[tuple[str, str, int, int, str], Row] = {}

    def add(self, counted: Sequence[Any], by: int = 1) -> None:
        """Count an evaluation by its `COUNTED` columns; `by`: -1 for a removed evaluation."""
        tenant, job, step, at, verdict, reward = counted
        slot = int(at // SLOT_SECONDS)
        key = (tenant, job, NO_STEP if step is None else step, slot, verdict or NO_VERDICT)
        total = self._jobs.get(key[:2])
        if total is None:
            total = self._jobs[key[:2]] = {
                "tenant": tenant, "job": job, "evaluations": 0, "judged": 0, "rewards": 0.0,
                "last_step": step, "last_at": at,
            }  # fmt: skip
        point = self._points.get(key)
        if point is None:
            point = self._points[key] = {
                "tenant": tenant, "job": job, "step": key[2], "slot": key[3], "verdict": key[4],
                "count": 0, "judged": 0, "rewards": 0.0, "squares": 0.0,
            }  # fmt: skip
        total["evaluations"] += by
        point["count"] += by
        if by > 0:
            total["last_at"] = max(total["last_at"], at)
            if step is not None:
                total["last_step"] = max(step, total["last_step"] or 0)
        if reward is not None:
            for each in (total, point):
                each["judged"] += by
                each["rewards"] += by * reward
            point["squares"] += by * reward * reward

    def write(self, connection: Connection) -> None:
        """Add the changes to the counts; counts of zero are removed.

        Rows are locked in the order of their keys, which rules out deadlocks of two writers.
        """
        in_order = [self._points[key] for key in sorted(self._points)]
        _add(connection, points, in_order, points.c["count"])
        in_order = [self._jobs[key] for key in sorted(self._jobs)]
        _add(connection, jobs, in_order, jobs.c.evaluations)


def _add(connection: Connection, table: Table, rows: list[Row], count: Column[int]) -> None:
    """Add rows of changes to a table; rows with a count of zero are removed."""
    if not rows:
        return
    insert: Any = sqlite.insert if connection.dialect.name == "sqlite" else postgresql.insert
    statement = insert(table)
    key = list(table.primary_key)
    update: dict[str, Any] = {}
    for column in table.c:
        new = statement.excluded[column.name]
        if column.name.startswith("last_"):
            is_later = column.is_(None) | (new > column)
            update[column.name] = case((is_later, new), else_=column)
        elif not column.primary_key:
            update[column.name] = column + new
    connection.execute(statement.on_conflict_do_update(index_elements=key, set_=update), rows)
    gone = [row for row in rows if row[count.name] < 0]
    if gone:
        same = [column == bindparam(f"key_{column.name}") for column in key]
        connection.execute(
            delete(table).where(count <= 0, *same),
            [{f"key_{column.name}": row[column.name] for column in key} for row in gone],
        )
