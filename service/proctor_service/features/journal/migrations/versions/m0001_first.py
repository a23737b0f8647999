"""First tables of the journal. A new database gets the newest tables at once (`Store.open`)."""

from __future__ import annotations

revision = "0001"
down_revision = None


def upgrade() -> None:
    """Do nothing: only a database with tables is upgraded."""
