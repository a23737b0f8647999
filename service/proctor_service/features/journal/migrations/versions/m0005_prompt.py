"""What the policy saw."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0005"
down_revision = "0004"


def upgrade() -> None:
    """Add the column."""
    op.add_column("evaluations", sa.Column("prompt", sa.LargeBinary(length=16)))
