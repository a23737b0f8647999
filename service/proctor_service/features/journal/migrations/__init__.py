"""Migrations of the journal's tables, run by Alembic at the start of the writer."""
