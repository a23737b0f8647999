"""Counts of the evaluations of each job, changed in the transaction that adds or removes these.

A job's series reads its points instead of its evaluations, of which there may be a million.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from sqlalchemy import Column, Connection, Table, bindparam, case, delete
from sqlalchemy.dialects import postgresql, sqlite

from proctor_service.features.journal.schema import jobs, points

Row = dict[str, Any]
SLOT_SECONDS = 10
"""Width of a slot of time in `points`."""
COUNTED = ("tenant", "job", "step", "at", "verdict", "reward")
"""Columns of an evaluation, in the order in which `Changes.add` takes them."""
NO_STEP = -1
NO_VERDICT = "error"


class Changes:
    """Changes of the counts, by evaluations that come or go."""

    def __init__(self) -> None:
        self._jobs: dict[tuple[str, str], Row] = {}
        self._points: dict[tuple[str, str, int, int, str], Row] = {}

    def add(self, counted: Sequence[Any], by: int = 1) -> None:
        """Count an evaluation, of which these are the `COUNTED` columns; `by`: -1 if it goes."""
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
        """Add the changes to the counts; those that come to nothing are removed.

        Rows are locked in the order of their keys, so that two writers never wait for each other.
        """
        in_order = [self._points[key] for key in sorted(self._points)]
        _add(connection, points, in_order, points.c["count"])
        in_order = [self._jobs[key] for key in sorted(self._jobs)]
        _add(connection, jobs, in_order, jobs.c.evaluations)


def _add(connection: Connection, table: Table, rows: list[Row], count: Column[int]) -> None:
    """Add rows of changes to a table; rows whose count comes to nothing are removed."""
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
