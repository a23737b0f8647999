"""Filters of lists, as queries through the indices alone, the newest first.

The worst case of a list is a filter for few or no evaluations: the query reads the index of the
tenant or of the job once, and the list of each label once, and only rows of the answer. Rare labels
and words are looked up first, and only their evaluations are read.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from sqlalchemy import (
    ColumnElement,
    CompoundSelect,
    Connection,
    Select,
    Text,
    and_,
    intersect,
    literal_column,
    select,
    text,
)

from proctor_service.features.journal.rows import clean, short_name, words_of
from proctor_service.features.journal.schema import evaluations, labels

RARE = 500
"""So many evaluations with a label or with words are few."""
_WORD = re.compile(r"[0-9A-Za-z\x80-\U0010ffff]+")
"""Words as in the index of SQLite: `def`, `f` and `été` in `def f(été)`."""


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


def of_tenant(
    tenant: str | None, column: ColumnElement[Any] = evaluations.c.tenant
) -> list[ColumnElement[bool]]:
    """Return the condition for a tenant, in a list; None stands for all tenants."""
    return [] if tenant is None else [column == clean(tenant)]


def newest(
    connection: Connection, tenant: str | None, wanted: Filter, before: int | None, most: int
) -> Select[Any]:
    """Return the query for `number` of the newest matching evaluations, before a number."""
    query: Any = fitting(connection, tenant, wanted, before)
    number = query.selected_columns.number
    found = query.order_by(number.desc()).limit(most).subquery()
    return select(found.c.number)


def fitting(
    connection: Connection, tenant: str | None, wanted: Filter, before: int | None
) -> Select[Any] | CompoundSelect[Any]:
    """Return the query for `number` of the matching evaluations, unordered, before a number."""
    is_sqlite = connection.dialect.name == "sqlite"
    rare: list[Sequence[int]] = []
    others: list[Select[Any]] = []
    for query in _lists(tenant, wanted, before, is_sqlite):
        number = query.selected_columns.number
        found = connection.execute(query.order_by(number.desc()).limit(RARE + 1)).scalars().all()
        if len(found) <= RARE:
            rare.append(found)
        else:
            others.append(query)
    own = _own_conditions(wanted)
    own += [evaluations.c.number.in_(numbers) for numbers in rare]
    if own or wanted.job is not None or not (wanted.tag or wanted.signal):
        number = evaluations.c.number
        is_small = bool(rare) or wanted.rollout_id is not None
        query = select(number).where(*_of_index(tenant, wanted, is_sqlite and is_small), *own)
        others.insert(0, query if before is None else query.where(number < before))
    first, *rest = others
    if not rest:
        return first
    if is_sqlite:  # merges the lists, each in its order: none is read beyond the end of the page
        return intersect(first, *rest)
    number = first.selected_columns.number
    return first.where(*(number.in_(each) for each in rest))


def _lists(
    tenant: str | None, wanted: Filter, before: int | None, is_sqlite: bool
) -> Iterator[Select[Any]]:
    """Yield the queries for the numbers of evaluations with a label or with words."""
    for kind, label in (("tag", wanted.tag), ("signal", wanted.signal)):
        if label is not None:
            same = and_(labels.c.kind == kind, labels.c.label == clean(label))
            query = select(labels.c.number).where(same, *of_tenant(tenant, labels.c.tenant))
            yield query if before is None else query.where(labels.c.number < before)
    if wanted.words is not None:
        yield _with_words(wanted.words, before, is_sqlite)


def _of_index(tenant: str | None, wanted: Filter, unindexed: bool) -> list[ColumnElement[bool]]:
    """Return the conditions for tenant and job.

    `unindexed`: other conditions leave few evaluations. Without statistics SQLite would still go
    through all of the job; a plus sign keeps it from that index.
    """
    found = []
    for name, value in (("tenant", tenant), ("job", wanted.job)):
        if value is not None:
            column: ColumnElement[Any] = evaluations.c[name]
            if unindexed:
                column = literal_column(f"+evaluations.{name}", Text())
            found.append(column == clean(value))
    return found


def _own_conditions(wanted: Filter) -> list[ColumnElement[bool]]:
    """Return the conditions for columns of an evaluation, but its tenant."""
    simple = {
        "step": wanted.step,
        "task": short_name(wanted.task),
        "verdict": wanted.verdict,
        "reward": wanted.reward,
        "rollout_id": wanted.rollout_id,
    }
    conditions: list[ColumnElement[bool]] = [
        evaluations.c[name] == (clean(value) if isinstance(value, str) else value)
        for name, value in simple.items()
        if value is not None
    ]
    if wanted.error is not None:
        conditions.append(evaluations.c.verdict.is_(None))
        if wanted.error != "*":
            conditions.append(evaluations.c.error == clean(wanted.error))
    return conditions


def _with_words(words: str, before: int | None, is_sqlite: bool) -> Select[Any]:
    if is_sqlite:
        quoted = " ".join(f'"{each}"' for each in _WORD.findall(words_of(words)))
        column, condition = "rowid", "words MATCH :words"
    else:
        quoted = clean(words)
        column, condition = "number", "found @@ plainto_tsquery('simple', :words)"
    number: ColumnElement[Any] = literal_column(column).label("number")
    query = (
        select(number)
        .select_from(text("words"))
        .where(text(condition).bindparams(words=quoted or '""'))
    )
    return query if before is None else query.where(literal_column(column) < before)
