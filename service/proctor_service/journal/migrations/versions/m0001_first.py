"""First tables of the journal, and the index of the words in completions."""

from __future__ import annotations

from alembic import op

from proctor_service.journal.schema import metadata

revision = "0001"
down_revision = None


def upgrade() -> None:
    """Create all tables."""
    bind = op.get_bind()
    metadata.create_all(bind)
    if bind.dialect.name == "sqlite":
        # Without the content, which is in `texts`; the rowid is the evaluation's number.
        op.execute("CREATE VIRTUAL TABLE words USING fts5(completion, content='')")
    else:
        op.execute("CREATE TABLE words (number BIGINT PRIMARY KEY, found TSVECTOR NOT NULL)")
        op.execute("CREATE INDEX words_found ON words USING GIN (found)")


def downgrade() -> None:
    """Drop all tables."""
    op.execute("DROP TABLE words")
    metadata.drop_all(op.get_bind())
