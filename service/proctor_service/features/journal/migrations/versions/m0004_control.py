"""Outcome and CPU time of the negative control."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0004"
down_revision = "0003"


def upgrade() -> None:
    """Add the columns."""
    column = sa.Column("control_seconds", sa.Float(), nullable=False, server_default="0")
    op.add_column("evaluations", column)
    op.add_column("evaluations", sa.Column("negative_control", sa.Text()))
