"""Tables of the journal, for SQLite and PostgreSQL. `migrations` changes the tables of older
versions.

Texts are stored once, under the digest of their content, and compressed: a group shares its grader, for
example.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from sqlalchemy import (
    DDL,
    BigInteger,
    Boolean,
    Column,
    Float,
    Index,
    Integer,
    LargeBinary,
    MetaData,
    Table,
    Text,
    event,
)

metadata = MetaData()
_NUMBER = BigInteger().with_variant(Integer(), "sqlite")
_DIGEST = LargeBinary(16)


def _columns(kind: Any, names: str, **options: Any) -> Iterator[Column[Any]]:
    """Yield columns of one type. A name with a `?` may be NULL."""
    for name in names.split():
        nullable = name.endswith("?")
        yield Column(name.removesuffix("?"), kind, nullable=nullable, **options)


def _key(kind: Any, *names: str) -> Iterator[Column[Any]]:
    """Yield columns of a primary key without automatic numbers."""
    for name in names:
        yield Column(name, kind, primary_key=True, autoincrement=False)


texts = Table(
    "texts",
    metadata,
    *_key(_DIGEST, "digest"),
    *_columns(LargeBinary, "packed"),
    *_columns(Float, "used_at"),
)
"""`packed`: the text in UTF-8 (lone surrogates kept), compressed by zlib. `used_at`: time of the last
record with this text, rounded up to a minute."""

evaluations = Table(
    "evaluations",
    metadata,
    Column("number", _NUMBER, primary_key=True, autoincrement=True),
    *_columns(Text, "id tenant job task? submission_id? rollout_id? tags verdict? error? level?"),
    *_columns(Text, "integrity? signals negative_control? cache sandbox_id? graded_sandbox_id?"),
    *_columns(Text, "trace_id? version grader_kind?"),
    *_columns(Float, "at reward? cpu_seconds wall_seconds queue_seconds seconds peak_memory_mb"),
    *_columns(Float, "compile_seconds control_seconds", server_default="0"),
    *_columns(BigInteger, "step?"),
    *_columns(Integer, "passed total exit_code? completion_characters source_begin? source_end?"),
    *_columns(Boolean, "truncated with_texts"),
    *_columns(_DIGEST, "completion? source? grader? files? conditions? output? failures? prompt?"),
)
"""`at`: seconds since the epoch when the evaluation ended. `seconds`: from the admission to the queue
to the end. `tags`, `signals`: JSON lists. `truncated`: the output was cut.

The others are digests of texts. `grader`, `files`, `conditions`, `output`, `failures`, `prompt`: JSON
(`rows.dump`), NULL where empty. `prompt`: a text or messages, which the policy saw.
`conditions`: language, limits, scoring, extraction and the mode of the negative control;
`with_state` is true if also the files of a sandbox were judged, which are not recorded. `output`:
message (of the error, if there is one), stdout and stderr. The judged source is the part of the
completion from `source_begin` to `source_end`, or the text `source` if it is no part of it."""

rollouts = Table(
    "rollouts",
    metadata,
    Column("number", _NUMBER, primary_key=True, autoincrement=True),
    *_columns(Text, "id tenant job task? tags verdict? error? metrics sandbox_id? version"),
    *_columns(Float, "at reward?"),
    *_columns(BigInteger, "step?"),
    *_columns(_DIGEST, "conversation?"),
)
"""`conversation`: JSON of messages and choices, tools, and the error's message."""

labels = Table(
    "labels",
    metadata,
    *_key(Text, "tenant", "kind", "label"),
    *_key(_NUMBER, "number"),
    sqlite_with_rowid=False,
)
"""Tags (`kind` is `tag`) and signals (`signal`) of evaluations, for filters."""

jobs = Table(
    "jobs",
    metadata,
    *_key(Text, "tenant", "job"),
    *_columns(Integer, "evaluations judged"),
    *_columns(Float, "rewards last_at"),
    *_columns(BigInteger, "last_step?"),
    sqlite_with_rowid=False,
)
"""Counts of a job's evaluations (`series.py`). `rewards`: their sum."""

points = Table(
    "points",
    metadata,
    *_key(Text, "tenant", "job"),
    *_key(BigInteger, "step", "slot"),
    *_key(Text, "verdict"),
    *_columns(Integer, "count judged"),
    *_columns(Float, "rewards squares"),
    sqlite_with_rowid=False,
)
"""Counts of the evaluations of a job with the same step, verdict and time, for series.

`step`: -1 without one. `slot`: seconds since the epoch by `SLOT_SECONDS`. `verdict`: `error` without
one. `rewards`, `squares`: sums of the rewards and of their squares."""

# The columns of filters stand in both indices: no row is read to be passed over.
_FILTERED = [
    evaluations.c[name] for name in ("number", "step", "verdict", "reward", "task", "error")
]
Index("evaluations_by_id", evaluations.c.id, unique=True)
Index("evaluations_by_job", evaluations.c.tenant, evaluations.c.job, *_FILTERED)
Index("evaluations_by_tenant", evaluations.c.tenant, *_FILTERED)
Index("evaluations_by_at", evaluations.c.at)
Index(
    "evaluations_by_rollout",
    evaluations.c.rollout_id,
    sqlite_where=evaluations.c.rollout_id.is_not(None),
    postgresql_where=evaluations.c.rollout_id.is_not(None),
)
Index("texts_by_use", texts.c.used_at)
Index("jobs_by_last", jobs.c.tenant, jobs.c.last_at)
Index("rollouts_by_at", rollouts.c.at)
Index("rollouts_by_id", rollouts.c.id, unique=True)
Index("rollouts_by_job", rollouts.c.tenant, rollouts.c.job, rollouts.c.number)

# The index of the words in completions. In SQLite it has no content, which is in `texts`; the rowid is
# the evaluation's number. A filter asks which completions hold a word, and neither where nor how often.
for _dialect, _statement in (
    (
        "sqlite",
        "CREATE VIRTUAL TABLE words USING fts5"
        "(completion, content='', detail=none, columnsize=0, tokenize='ascii')",
    ),
    ("postgresql", "CREATE TABLE words (number BIGINT PRIMARY KEY, found TSVECTOR NOT NULL)"),
    ("postgresql", "CREATE INDEX words_found ON words USING GIN (found)"),
):
    _create = DDL(_statement).execute_if(dialect=_dialect)  # type: ignore[no-untyped-call]
    event.listen(metadata, "after_create", _create)
