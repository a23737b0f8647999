"""Alembic's environment: `store.migrate` passes the open connection."""

from __future__ import annotations

from alembic import context

from proctor_service.features.journal.schema import metadata

context.configure(connection=context.config.attributes["connection"], target_metadata=metadata)
with context.begin_transaction():
    context.run_migrations()
