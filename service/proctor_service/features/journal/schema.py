"""Tables of the journal, for SQLite and PostgreSQL. `migrations` makes and changes them.

Texts are stored once, under the digest of their content, and compressed: a group shares its grader,
and most programs that pass print nothing.
"""

from __future__ import annotations

from sqlalchemy import (
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
)

metadata = MetaData()
_Number = BigInteger().with_variant(Integer(), "sqlite")

texts = Table(
    "texts",
    metadata,
    Column("digest", LargeBinary(16), primary_key=True),
    Column("packed", LargeBinary, nullable=False),
    Column("used_at", Float, nullable=False),
)
"""`packed`: the text in UTF-8 (lone surrogates kept), compressed by zlib. `used_at`: time of the last
record with this text, rounded up to a minute."""

evaluations = Table(
    "evaluations",
    metadata,
    Column("number", _Number, primary_key=True, autoincrement=True),
    Column("id", Text, nullable=False),
    Column("at", Float, nullable=False),
    Column("tenant", Text, nullable=False),
    Column("job", Text, nullable=False),
    Column("step", BigInteger),
    Column("task", Text),
    Column("submission_id", Text),
    Column("rollout_id", Text),
    Column("tags", Text, nullable=False),
    Column("verdict", Text),
    Column("reward", Float),
    Column("error", Text),
    Column("passed", Integer, nullable=False),
    Column("total", Integer, nullable=False),
    Column("level", Text),
    Column("integrity", Text),
    Column("signals", Text, nullable=False),
    Column("exit_code", Integer),
    Column("cache", Text, nullable=False),
    Column("cpu_seconds", Float, nullable=False),
    Column("wall_seconds", Float, nullable=False),
    Column("queue_seconds", Float, nullable=False),
    Column("seconds", Float, nullable=False),
    Column("peak_memory_mb", Float, nullable=False),
    Column("compile_seconds", Float, nullable=False, server_default="0"),
    Column("control_seconds", Float, nullable=False, server_default="0"),
    Column("negative_control", Text),
    Column("sandbox_id", Text),
    Column("graded_sandbox_id", Text),
    Column("trace_id", Text),
    Column("version", Text, nullable=False),
    Column("grader_kind", Text),
    Column("completion_characters", Integer, nullable=False),
    Column("truncated", Boolean, nullable=False),
    Column("completion", LargeBinary(16)),
    Column("source", LargeBinary(16)),
    Column("source_begin", Integer),
    Column("source_end", Integer),
    Column("grader", LargeBinary(16)),
    Column("files", LargeBinary(16)),
    Column("conditions", LargeBinary(16)),
    Column("output", LargeBinary(16)),
    Column("failures", LargeBinary(16)),
    Column("prompt", LargeBinary(16)),
    Column("with_texts", Boolean, nullable=False),
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
    Column("number", _Number, primary_key=True, autoincrement=True),
    Column("id", Text, nullable=False),
    Column("at", Float, nullable=False),
    Column("tenant", Text, nullable=False),
    Column("job", Text, nullable=False),
    Column("step", BigInteger),
    Column("task", Text),
    Column("tags", Text, nullable=False),
    Column("verdict", Text),
    Column("reward", Float),
    Column("error", Text),
    Column("metrics", Text, nullable=False),
    Column("sandbox_id", Text),
    Column("version", Text, nullable=False),
    Column("conversation", LargeBinary(16)),
)
"""`conversation`: JSON of messages and choices, tools, and the error's message."""

labels = Table(
    "labels",
    metadata,
    Column("tenant", Text, primary_key=True),
    Column("kind", Text, primary_key=True),
    Column("label", Text, primary_key=True),
    Column("number", _Number, primary_key=True, autoincrement=False),
    sqlite_with_rowid=False,
)
"""Tags (`kind` is `tag`) and signals (`signal`) of evaluations, for filters."""

jobs = Table(
    "jobs",
    metadata,
    Column("tenant", Text, primary_key=True),
    Column("job", Text, primary_key=True),
    Column("evaluations", Integer, nullable=False),
    Column("judged", Integer, nullable=False),
    Column("rewards", Float, nullable=False),
    Column("last_step", BigInteger),
    Column("last_at", Float, nullable=False),
    sqlite_with_rowid=False,
)
"""Counts of a job's evaluations (`counts.py`). `rewards`: their sum."""

points = Table(
    "points",
    metadata,
    Column("tenant", Text, primary_key=True),
    Column("job", Text, primary_key=True),
    Column("step", BigInteger, primary_key=True, autoincrement=False),
    Column("slot", BigInteger, primary_key=True, autoincrement=False),
    Column("verdict", Text, primary_key=True),
    Column("count", Integer, nullable=False),
    Column("judged", Integer, nullable=False),
    Column("rewards", Float, nullable=False),
    Column("squares", Float, nullable=False),
    sqlite_with_rowid=False,
)
"""Counts of the evaluations of a job with the same step, verdict and time, for series.

`step`: -1 without one. `slot`: seconds since the epoch by `SLOT_SECONDS`. `verdict`: `error` without
one. `rewards`, `squares`: sums of the rewards and of their squares."""

# The columns of filters stand in both indices: no row is read to be passed over.
Index("evaluations_by_id", evaluations.c.id, unique=True)
Index(
    "evaluations_by_job",
    evaluations.c.tenant,
    evaluations.c.job,
    evaluations.c.number,
    evaluations.c.step,
    evaluations.c.verdict,
    evaluations.c.reward,
    evaluations.c.task,
    evaluations.c.error,
)
Index(
    "evaluations_by_tenant",
    evaluations.c.tenant,
    evaluations.c.number,
    evaluations.c.step,
    evaluations.c.verdict,
    evaluations.c.reward,
    evaluations.c.task,
    evaluations.c.error,
)
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
