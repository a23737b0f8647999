"""First tables of the journal, and the index of the words in completions."""

from __future__ import annotations

from typing import Any

import sqlalchemy as sa
from alembic import op

revision = "0001"
down_revision = None


def _number() -> Any:
    return sa.BigInteger().with_variant(sa.Integer(), "sqlite")


def upgrade() -> None:
    """Create all tables."""
    op.create_table(
        "evaluations",
        sa.Column("number", _number(), autoincrement=True, nullable=False),
        sa.Column("id", sa.Text(), nullable=False),
        sa.Column("at", sa.Float(), nullable=False),
        sa.Column("tenant", sa.Text(), nullable=False),
        sa.Column("job", sa.Text(), nullable=False),
        sa.Column("step", sa.BigInteger()),
        sa.Column("task", sa.Text()),
        sa.Column("submission_id", sa.Text()),
        sa.Column("rollout_id", sa.Text()),
        sa.Column("tags", sa.Text(), nullable=False),
        sa.Column("verdict", sa.Text()),
        sa.Column("reward", sa.Float()),
        sa.Column("error", sa.Text()),
        sa.Column("passed", sa.Integer(), nullable=False),
        sa.Column("total", sa.Integer(), nullable=False),
        sa.Column("level", sa.Text()),
        sa.Column("integrity", sa.Text()),
        sa.Column("signals", sa.Text(), nullable=False),
        sa.Column("exit_code", sa.Integer()),
        sa.Column("cache", sa.Text(), nullable=False),
        sa.Column("cpu_seconds", sa.Float(), nullable=False),
        sa.Column("wall_seconds", sa.Float(), nullable=False),
        sa.Column("queue_seconds", sa.Float(), nullable=False),
        sa.Column("seconds", sa.Float(), nullable=False),
        sa.Column("peak_memory_mb", sa.Float(), nullable=False),
        sa.Column("sandbox_id", sa.Text()),
        sa.Column("graded_sandbox_id", sa.Text()),
        sa.Column("trace_id", sa.Text()),
        sa.Column("version", sa.Text(), nullable=False),
        sa.Column("grader_kind", sa.Text()),
        sa.Column("completion_characters", sa.Integer(), nullable=False),
        sa.Column("truncated", sa.Boolean(), nullable=False),
        sa.Column("completion", sa.LargeBinary(length=16)),
        sa.Column("source", sa.LargeBinary(length=16)),
        sa.Column("source_begin", sa.Integer()),
        sa.Column("source_end", sa.Integer()),
        sa.Column("grader", sa.LargeBinary(length=16)),
        sa.Column("files", sa.LargeBinary(length=16)),
        sa.Column("conditions", sa.LargeBinary(length=16)),
        sa.Column("output", sa.LargeBinary(length=16)),
        sa.Column("failures", sa.LargeBinary(length=16)),
        sa.Column("with_texts", sa.Boolean(), nullable=False),
        sa.PrimaryKeyConstraint("number"),
    )
    op.create_index("evaluations_by_at", "evaluations", ["at"], unique=False)
    op.create_index("evaluations_by_id", "evaluations", ["id"], unique=True)
    op.create_index(
        "evaluations_by_job",
        "evaluations",
        ["tenant", "job", "number", "step", "verdict", "reward", "task", "error"],
        unique=False,
    )
    op.create_index(
        "evaluations_by_rollout",
        "evaluations",
        ["rollout_id"],
        unique=False,
        sqlite_where=sa.text("rollout_id IS NOT NULL"),
        postgresql_where=sa.text("rollout_id IS NOT NULL"),
    )
    op.create_index(
        "evaluations_by_tenant",
        "evaluations",
        ["tenant", "number", "step", "verdict", "reward", "task", "error"],
        unique=False,
    )
    op.create_table(
        "labels",
        sa.Column("tenant", sa.Text(), nullable=False),
        sa.Column("kind", sa.Text(), nullable=False),
        sa.Column("label", sa.Text(), nullable=False),
        sa.Column("number", _number(), autoincrement=False, nullable=False),
        sa.PrimaryKeyConstraint("tenant", "kind", "label", "number"),
        sqlite_with_rowid=False,
    )
    op.create_table(
        "jobs",
        sa.Column("tenant", sa.Text(), nullable=False),
        sa.Column("job", sa.Text(), nullable=False),
        sa.Column("evaluations", sa.Integer(), nullable=False),
        sa.Column("judged", sa.Integer(), nullable=False),
        sa.Column("rewards", sa.Float(), nullable=False),
        sa.Column("last_step", sa.BigInteger()),
        sa.Column("last_at", sa.Float(), nullable=False),
        sa.PrimaryKeyConstraint("tenant", "job"),
        sqlite_with_rowid=False,
    )
    op.create_index("jobs_by_last", "jobs", ["tenant", "last_at"], unique=False)
    op.create_table(
        "points",
        sa.Column("tenant", sa.Text(), nullable=False),
        sa.Column("job", sa.Text(), nullable=False),
        sa.Column("step", sa.BigInteger(), autoincrement=False, nullable=False),
        sa.Column("slot", sa.BigInteger(), autoincrement=False, nullable=False),
        sa.Column("verdict", sa.Text(), nullable=False),
        sa.Column("count", sa.Integer(), nullable=False),
        sa.Column("judged", sa.Integer(), nullable=False),
        sa.Column("rewards", sa.Float(), nullable=False),
        sa.Column("squares", sa.Float(), nullable=False),
        sa.PrimaryKeyConstraint("tenant", "job", "step", "slot", "verdict"),
        sqlite_with_rowid=False,
    )
    op.create_table(
        "rollouts",
        sa.Column("number", _number(), autoincrement=True, nullable=False),
        sa.Column("id", sa.Text(), nullable=False),
        sa.Column("at", sa.Float(), nullable=False),
        sa.Column("tenant", sa.Text(), nullable=False),
        sa.Column("job", sa.Text(), nullable=False),
        sa.Column("step", sa.BigInteger()),
        sa.Column("task", sa.Text()),
        sa.Column("tags", sa.Text(), nullable=False),
        sa.Column("verdict", sa.Text()),
        sa.Column("reward", sa.Float()),
        sa.Column("error", sa.Text()),
        sa.Column("metrics", sa.Text(), nullable=False),
        sa.Column("sandbox_id", sa.Text()),
        sa.Column("version", sa.Text(), nullable=False),
        sa.Column("conversation", sa.LargeBinary(length=16)),
        sa.PrimaryKeyConstraint("number"),
    )
    op.create_index("rollouts_by_id", "rollouts", ["id"], unique=True)
    op.create_index("rollouts_by_job", "rollouts", ["tenant", "job", "number"], unique=False)
    op.create_table(
        "texts",
        sa.Column("digest", sa.LargeBinary(length=16), nullable=False),
        sa.Column("packed", sa.LargeBinary(), nullable=False),
        sa.Column("used_at", sa.Float(), nullable=False),
        sa.PrimaryKeyConstraint("digest"),
    )
    if op.get_bind().dialect.name == "sqlite":
        # Without the content, which is in `texts`; the rowid is the evaluation's number. A filter
        # asks which completions hold a word: not where, and not how many words there are.
        op.execute(
            "CREATE VIRTUAL TABLE words USING fts5"
            "(completion, content='', detail=none, columnsize=0, tokenize='ascii')"
        )
    else:
        op.execute("CREATE TABLE words (number BIGINT PRIMARY KEY, found TSVECTOR NOT NULL)")
        op.execute("CREATE INDEX words_found ON words USING GIN (found)")


def downgrade() -> None:
    """Drop all tables."""
    for name in ("words", "labels", "points", "jobs", "rollouts", "evaluations", "texts"):
        op.drop_table(name)
