"""Questions about the journal: lists with filters, one evaluation, one rollout, jobs and their series.

All methods block, so the service calls them in threads. `tenant` limits an answer to its own records;
None stands for all tenants, for the operator's command line.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from sqlalchemy import (
    Column,
    ColumnElement,
    Connection,
    Select,
    and_,
    case,
    func,
    literal_column,
    select,
    text,
)
from sqlalchemy.engine import URL

from proctor_service.journal.figures import figures, series
from proctor_service.journal.rows import clean
from proctor_service.journal.schema import evaluations, labels, rollouts, texts
from proctor_service.journal.store import connect
from proctor_service.journal.texts import unpacked

Row = dict[str, Any]
MOST_LISTED = 500
_LISTED = tuple(
    column
    for column in evaluations.c
    if column.name
    not in ("completion", "source", "source_begin", "source_end", "grader", "conditions", "output")
)


@dataclass(frozen=True, slots=True)
class Filter:
    """Conditions of a list; None admits everything.

    `reward`: exactly this reward. `error`: this reason of an error; `*` stands for any. `words`: all
    of these stand in the completion.
    """

    job: str | None = None
    step: int | None = None
    task: str | None = None
    verdict: str | None = None
    error: str | None = None
    reward: float | None = None
    tag: str | None = None
    signal: str | None = None
    rollout_id: str | None = None
    words: str | None = None


@dataclass(frozen=True, slots=True)
class Page:
    """Evaluations, the newest first. `following`: the number after which the next page begins."""

    rows: Sequence[Row]
    following: int | None


class Reader:
    """Reader of the journal's database."""

    def __init__(self, url: URL) -> None:
        self._engine = connect(url, read_only=True)
        self._is_sqlite = url.get_backend_name() == "sqlite"

    def close(self) -> None:
        """Close all connections."""
        self._engine.dispose()

    def evaluations(
        self, tenant: str | None, wanted: Filter, most: int = 50, before: int | None = None
    ) -> Page:
        """Return the newest evaluations that fit, without texts; those before a number."""
        most = min(most, MOST_LISTED)
        numbers = self._numbers(tenant, wanted, before).limit(most + 1).subquery()
        query = (
            select(*_LISTED)
            .where(evaluations.c.number.in_(select(numbers.c.number)))
            .order_by(evaluations.c.number.desc())
        )
        with self._engine.connect() as connection:
            rows = [_listed(dict(row._mapping)) for row in connection.execute(query)]
        following = rows[most - 1]["number"] if len(rows) > most else None
        return Page(rows[:most], following)

    def evaluation(self, tenant: str | None, id_: str) -> Row | None:
        """Return one evaluation with all that was recorded, or None."""
        query = select(evaluations).where(evaluations.c.id == clean(id_), *_of(tenant))
        with self._engine.connect() as connection:
            rows = _with_texts(connection, connection.execute(query).all())
        return rows[0] if rows else None

    def whole_evaluations(
        self, tenant: str | None, wanted: Filter, most: int = 50, before: int | None = None
    ) -> Page:
        """Return a page as `evaluations`, each with all that was recorded."""
        most = min(most, MOST_LISTED)
        numbers = self._numbers(tenant, wanted, before).limit(most + 1).subquery()
        query = (
            select(evaluations)
            .where(evaluations.c.number.in_(select(numbers.c.number)))
            .order_by(evaluations.c.number.desc())
        )
        with self._engine.connect() as connection:
            found = connection.execute(query).all()
            rows = _with_texts(connection, found[:most])
        return Page(rows, rows[-1]["number"] if len(found) > most else None)

    def with_values(self, tenant: str | None, wanted: Filter) -> list[Row]:
        """Return evaluations that fit, whole, of which for each column one has a value.

        There are few, the newest first; a column without a value in any evaluation has none here.
        """
        fitting = self._numbers(tenant, wanted, None).order_by(None).subquery()
        number = evaluations.c.number
        newest = [
            func.max(case((_has_value(column), number))).label(column.name)
            for column in evaluations.c
            if column.nullable or column.name in _LISTS
        ]
        query = select(*newest).where(number.in_(select(fitting.c.number)))
        with self._engine.connect() as connection:
            numbers = {each for each in connection.execute(query).one() if each is not None}
            whole = select(evaluations).where(number.in_(numbers)).order_by(number.desc())
            return _with_texts(connection, connection.execute(whole).all())

    def rollout(self, tenant: str | None, id_: str) -> Row | None:
        """Return one rollout with its conversation and its evaluations, or None."""
        query = select(rollouts).where(rollouts.c.id == clean(id_), *_of(tenant, rollouts.c.tenant))
        graded = (
            select(*_LISTED)
            .where(evaluations.c.rollout_id == clean(id_), *_of(tenant))
            .order_by(evaluations.c.number)
            .limit(MOST_LISTED)
        )
        with self._engine.connect() as connection:
            row = connection.execute(query).one_or_none()
            if row is None:
                return None
            found = dict(row._mapping)
            digest = found.pop("conversation")
            stored = {} if digest is None else _texts(connection, [digest])
            found["evaluations"] = [
                _listed(dict(each._mapping)) for each in connection.execute(graded)
            ]
        for name in ("tags", "metrics"):
            found[name] = json.loads(found[name])
        return {**found, "conversation": _loaded(stored.get(digest))}

    def jobs(self, tenant: str | None) -> list[Row]:
        """Return all jobs with their counts, the latest first."""
        columns = (evaluations.c.tenant, evaluations.c.job)
        query = (
            select(
                *columns,
                func.count().label("evaluations"),
                func.count(evaluations.c.reward).label("judged"),
                func.avg(evaluations.c.reward).label("mean_reward"),
                func.max(evaluations.c.step).label("last_step"),
                func.max(evaluations.c.number).label("last"),
            )
            .where(*_of(tenant))
            .group_by(*columns)
            .subquery()
        )
        joined = (
            select(query, evaluations.c.at.label("last_at"))
            .join(evaluations, evaluations.c.number == query.c.last)
            .order_by(query.c.last.desc())
        )
        with self._engine.connect() as connection:
            rows = [dict(row._mapping) for row in connection.execute(joined)]
        for row in rows:
            del row["last"]
        return rows

    def job(self, tenant: str | None, job: str) -> Row | None:
        """Return the series of a job by step, or None for an unknown job.

        Steps without a number are one point, with `step` None. `spread`: the standard deviation of
        the rewards.
        """
        with self._engine.connect() as connection:
            points = series(connection, (evaluations.c.job == clean(job), *_of(tenant)))
        return {"job": job, "series": points} if points else None

    def figures(self, tenant: str | None, job: str) -> Row | None:
        """Return the figures of a job (`figures.py`), or None for an unknown job."""
        with self._engine.connect() as connection:
            found = figures(connection, (evaluations.c.job == clean(job), *_of(tenant)))
        return None if found is None else {"job": job, **found}

    def _numbers(self, tenant: str | None, wanted: Filter, before: int | None) -> Select[Any]:
        """Return the query for the numbers of evaluations that fit, the newest first."""
        simple = {
            "job": wanted.job,
            "step": wanted.step,
            "task": wanted.task,
            "verdict": wanted.verdict,
            "reward": wanted.reward,
            "rollout_id": wanted.rollout_id,
        }
        conditions: list[ColumnElement[bool]] = [
            evaluations.c[name] == (clean(value) if isinstance(value, str) else value)
            for name, value in simple.items()
            if value is not None
        ]
        conditions += _of(tenant)
        if wanted.error == "*":
            conditions.append(evaluations.c.verdict.is_(None))
        elif wanted.error is not None:
            conditions.append(evaluations.c.error == clean(wanted.error))
        for kind, label in (("tag", wanted.tag), ("signal", wanted.signal)):
            if label is not None:
                same = and_(
                    labels.c.tenant == evaluations.c.tenant,
                    labels.c.kind == kind,
                    labels.c.label == clean(label),
                    labels.c.number == evaluations.c.number,
                )
                conditions.append(select(labels.c.number).where(same).exists())
        if wanted.words is not None:
            conditions.append(self._with_words(wanted.words))
        if before is not None:
            conditions.append(evaluations.c.number < before)
        number = evaluations.c.number
        return select(number).where(*conditions).order_by(number.desc())

    def _with_words(self, words: str) -> ColumnElement[bool]:
        if self._is_sqlite:
            quoted = " ".join('"' + each.replace('"', '""') + '"' for each in clean(words).split())
            found = text("SELECT rowid FROM words WHERE words MATCH :words").bindparams(
                words=quoted or '""'
            )
        else:
            found = text(
                "SELECT number FROM words WHERE found @@ plainto_tsquery('simple', :words)"
            ).bindparams(words=clean(words))
        return evaluations.c.number.in_(found.columns(literal_column("number")).scalar_subquery())


_LISTS = ("tags", "signals")
_TEXTS = ("completion", "source", "grader", "conditions", "output")


def _of(
    tenant: str | None, column: ColumnElement[Any] = evaluations.c.tenant
) -> list[ColumnElement[bool]]:
    return [] if tenant is None else [column == clean(tenant)]


def _has_value(column: Column[Any]) -> ColumnElement[bool]:
    return column != "[]" if column.name in _LISTS else column.is_not(None)


def _listed(row: Mapping[str, Any]) -> Row:
    return {**row, "tags": json.loads(row["tags"]), "signals": json.loads(row["signals"])}


def _with_texts(connection: Connection, rows: Sequence[Any]) -> list[Row]:
    """Return the rows of evaluations with their texts in place of the digests."""
    digests = {row._mapping[name] for row in rows for name in _TEXTS} - {None}
    stored = _texts(connection, list(digests))
    return [_whole(dict(row._mapping), stored) for row in rows]


def _whole(row: Row, stored: Mapping[bytes | None, str]) -> Row:
    said = {name: stored.get(row.pop(name)) for name in _TEXTS}
    begin, end = row.pop("source_begin"), row.pop("source_end")
    is_part = begin is not None and begin >= 0
    completion, source = said["completion"], said["source"]
    if source is None and completion is not None and is_part:
        source = completion[begin:end]
    return {
        **_listed(row),
        "completion_text": completion,
        "source": source,
        "source_begin": begin if is_part else None,
        "grader": _loaded(said["grader"]),
        "conditions": _loaded(said["conditions"]),
        "output": _loaded(said["output"]),
    }


def _texts(connection: Connection, digests: Sequence[bytes]) -> dict[bytes | None, str]:
    query = select(texts.c.digest, texts.c.packed).where(texts.c.digest.in_(digests))
    return {
        bytes(row.digest): unpacked(row.packed).decode("utf-8", "surrogatepass")
        for row in connection.execute(query)
    }


def _loaded(value: str | None) -> Any:
    return None if value is None else json.loads(value)
