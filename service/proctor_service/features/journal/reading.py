"""Questions about the journal: lists with filters, one evaluation, one rollout, jobs and their figures.

All methods block, so the service calls them in threads. `tenant` limits an answer to its own records;
None stands for all tenants, for the operator's command line. Before the writer has made the tables, the
journal is empty. All raise SQLAlchemyError, and TooSlow.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

from sqlalchemy import Column, ColumnElement, Connection, case, func, select
from sqlalchemy.engine import URL

from proctor_client.wire import long_integers
from proctor_service.features.journal.database import Database
from proctor_service.features.journal.figures import figures
from proctor_service.features.journal.filters import Filter, fitting, newest, of_tenant
from proctor_service.features.journal.rows import clean, unpacked
from proctor_service.features.journal.schema import evaluations, jobs, rollouts, texts
from proctor_service.features.journal.series import By, finished, series

Row = dict[str, Any]
MOST_LISTED = 500
MOST_JOBS = 200
_JSON = ("grader", "files", "output", "failures", "prompt")
_TEXTS = ("completion", "source", "conditions", *_JSON)
_LISTS = ("tags", "signals")
_LISTED = tuple(
    column
    for column in evaluations.c
    if column.name not in (*_TEXTS, "source_begin", "source_end", "truncated")
)
_EMPTY = {"files": "{}", "output": '{"message":"","stdout":"","stderr":""}', "failures": "[]"}
"""Texts left out of the store."""


@dataclass(frozen=True, slots=True)
class Page:
    """Evaluations, the newest first. `following`: the number after which the next page begins."""

    rows: Sequence[Row]
    following: int | None


class Reader:
    """Reader of the journal's database. `query_seconds`: bound on the time of each question."""

    def __init__(self, url: URL, query_seconds: float | None = None) -> None:
        self._database = Database(url, query_seconds)

    def close(self) -> None:
        """Close all connections."""
        self._database.close()

    def has_tables(self) -> bool:
        """Return False if the writer has not made the journal's tables."""
        return self._database.has_tables()

    def evaluations(
        self, tenant: str | None, wanted: Filter, most: int = 50, before: int | None = None
    ) -> Page:
        """Return the newest matching evaluations, without texts; evaluations before a number."""
        return self._page(_without_texts, _LISTED, tenant, wanted, most, before)

    def whole_evaluations(
        self, tenant: str | None, wanted: Filter, most: int = 50, before: int | None = None
    ) -> Page:
        """Return a page as `evaluations`, each with all recorded fields, as `evaluation`."""
        return self._page(_with_texts, tuple(evaluations.c), tenant, wanted, most, before)

    def _page(
        self,
        finish: Callable[[Connection, Sequence[Any]], list[Row]],
        columns: Sequence[Column[Any]],
        tenant: str | None,
        wanted: Filter,
        most: int,
        before: int | None,
    ) -> Page:
        most = min(most, MOST_LISTED)

        def question(connection: Connection) -> Page:
            numbers = newest(connection, tenant, wanted, before, most + 1)
            query = select(*columns).where(evaluations.c.number.in_(numbers))
            found = connection.execute(query.order_by(evaluations.c.number.desc())).all()
            rows = finish(connection, found[:most])
            return Page(rows, rows[-1]["number"] if len(found) > most else None)

        return self._database.ask(question, Page((), None))

    def evaluation(self, tenant: str | None, id_: str) -> Row | None:
        """Return an evaluation with all recorded fields, or None.

        `grader_json`, `files_json`, `output_json`, `failures_json` and `prompt_json` are JSON texts
        (`parsed`), None if unrecorded. `completion_text` and `source` are texts as they
        were judged.
        """
        query = select(evaluations).where(evaluations.c.id == clean(id_), *of_tenant(tenant))

        def question(connection: Connection) -> Row | None:
            rows = _with_texts(connection, connection.execute(query).all())
            return rows[0] if rows else None

        return self._database.ask(question, None)

    def with_values(self, tenant: str | None, wanted: Filter) -> list[Row]:
        """Return whole matching evaluations, with a value of each column in at least one of them.

        There are few, the newest first; a column stays empty if empty in all evaluations.
        """
        number = evaluations.c.number
        columns = [
            func.max(case((_has_value(column), number))).label(column.name)
            for column in evaluations.c
            if column.nullable or column.name in _LISTS
        ]

        def question(connection: Connection) -> list[Row]:
            found = fitting(connection, tenant, wanted, None).subquery()
            query = select(*columns).where(number.in_(select(found.c.number)))
            numbers = {each for each in connection.execute(query).one() if each is not None}
            whole = select(evaluations).where(number.in_(numbers)).order_by(number.desc())
            return _with_texts(connection, connection.execute(whole).all())

        return self._database.ask(question, [])

    def rollout(self, tenant: str | None, id_: str) -> Row | None:
        """Return a rollout with its evaluations, or None.

        `conversation_json` is a JSON text, or None if unrecorded: an object with
        `messages_and_choices`, `tools` and `error_message`.
        """
        return self._database.ask(partial(_rollout, tenant, clean(id_)), None)

    def jobs(self, tenant: str | None) -> list[Row]:
        """Return the jobs with their counts, the latest first, at most `MOST_JOBS`."""
        query = (
            select(jobs)
            .where(*of_tenant(tenant, jobs.c.tenant))
            .order_by(jobs.c.last_at.desc())
            .limit(MOST_JOBS)
        )

        def question(connection: Connection) -> list[Row]:
            found = [dict(row._mapping) for row in connection.execute(query)]
            for row in found:
                rewards = row.pop("rewards")
                row["mean_reward"] = rewards / row["judged"] if row["judged"] else None
            return found

        return self._database.ask(question, [])

    def job(self, tenant: str | None, job: str, by: By = "step") -> Row | None:
        """Return `series` (`series.py`) and `figures` (`figures.py`) of a job; None if unknown.

        A point has `mean_reward` and `spread`, the standard deviation of its rewards. By time there
        is `width_seconds`, the time from a point to the next.
        """

        return self._database.ask(partial(_job, tenant, job, by), None)

    def job_page(self, tenant: str | None, job: str) -> Row | None:
        """Return the result of `job` by step, with the points by time as `times`."""

        def question(connection: Connection) -> Row | None:
            found = _job(tenant, job, "step", connection)
            if found is None:
                return None
            times = series(connection, tenant, job, "time")["series"]
            return {**found, "times": [finished(point) for point in times]}

        return self._database.ask(question, None)

    def figures(self, tenant: str | None, job: str) -> Row | None:
        """Return the figures of a job (`figures.py`), or None for an unknown job."""
        found = self.job(tenant, job)
        return None if found is None else {"job": job, **found["figures"]}


def parsed(row: Row) -> Row:
    """Return the row of an evaluation or rollout with values in place of its JSON texts."""
    return {
        name.removesuffix("_json"): _loaded(value) if name.endswith("_json") else value
        for name, value in row.items()
    }


def _rollout(tenant: str | None, id_: str, connection: Connection) -> Row | None:
    query = select(rollouts).where(rollouts.c.id == id_, *of_tenant(tenant, rollouts.c.tenant))
    row = connection.execute(query).one_or_none()
    if row is None:
        return None
    found = dict(row._mapping)
    digest = found.pop("conversation")
    stored = {} if digest is None else _texts(connection, [digest])
    graded = (
        select(*_LISTED)
        .where(evaluations.c.rollout_id == id_)
        .order_by(evaluations.c.number)
        .limit(MOST_LISTED)
    )
    own = _without_texts(connection, connection.execute(graded).all())
    return {
        **found,
        **{name: json.loads(found[name]) for name in ("tags", "metrics")},
        "evaluations": [each for each in own if each["tenant"] == found["tenant"]],
        "conversation_json": stored.get(digest),
    }


def _job(tenant: str | None, job: str, by: By, connection: Connection) -> Row | None:
    found = series(connection, tenant, job, by)
    if not found["series"]:
        return None
    return {
        "job": job,
        "by": by,
        **found,
        "series": [finished(point) for point in found["series"]],
        "figures": figures(connection, _of_job(tenant, job), found["series"]),
    }


def _of_job(tenant: str | None, job: str) -> list[ColumnElement[bool]]:
    return [evaluations.c.job == clean(job), *of_tenant(tenant)]


def _has_value(column: Column[Any]) -> ColumnElement[bool]:
    return column != "[]" if column.name in _LISTS else column.is_not(None)


def _listed(row: Mapping[str, Any]) -> Row:
    return {**row, **{name: json.loads(row[name]) for name in _LISTS}}


def _without_texts(_: Connection, rows: Sequence[Any]) -> list[Row]:
    return [_listed(row._mapping) for row in rows]


def _with_texts(connection: Connection, rows: Sequence[Any]) -> list[Row]:
    """Return the rows of evaluations with their texts in place of the digests."""
    digests = {row._mapping[name] for row in rows for name in _TEXTS} - {None}
    stored = _texts(connection, list(digests))
    return [_whole(dict(row._mapping), stored) for row in rows]


def _whole(row: Row, stored: Mapping[bytes, str]) -> Row:
    found = {}
    for name in _TEXTS:
        digest = row.pop(name)
        if digest is not None:
            found[name] = stored.get(digest)
        else:
            found[name] = _EMPTY.get(name) if row["with_texts"] else None
    begin, end = row.pop("source_begin"), row.pop("source_end")
    is_part = begin is not None and begin >= 0
    completion, source = found["completion"], found["source"]
    if source is None and completion is not None and is_part:
        source = completion[begin:end]
    return {
        **_listed(row),
        "completion_text": completion,
        "source": source,
        "source_begin": begin if is_part else None,
        "conditions": _loaded(found["conditions"]),
        **{f"{name}_json": found[name] for name in _JSON},
    }


def _texts(connection: Connection, digests: Sequence[bytes]) -> dict[bytes, str]:
    query = select(texts.c.digest, texts.c.packed).where(texts.c.digest.in_(digests))
    return {
        bytes(row.digest): unpacked(row.packed).decode("utf-8", "surrogatepass")
        for row in connection.execute(query)
    }


def _loaded(value: str | None) -> Any:
    return None if value is None else long_integers.loads(value)
