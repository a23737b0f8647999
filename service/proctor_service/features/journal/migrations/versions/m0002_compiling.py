"""CPU time of compilers."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0002"
down_revision = "0001"


def upgrade() -> None:
    """Add the column."""
    column = sa.Column("compile_seconds", sa.Float(), nullable=False, server_default="0")
    op.add_column("evaluations", column)
