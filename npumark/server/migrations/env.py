"""Run by Alembic: migrates the database of the connection that the caller is in a transaction
with."""

from __future__ import annotations

from alembic import context

from npumark.server.tables import metadata

context.configure(connection=context.config.attributes["connection"], target_metadata=metadata)
context.run_migrations()
