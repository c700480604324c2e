"""Alembic's entry: run the migrations on the connection that `evolve.database` hands over."""

from alembic import context

from evolve.schema import metadata

context.configure(connection=context.config.attributes["connection"], target_metadata=metadata, render_as_batch=True)
with context.begin_transaction():
    context.run_migrations()
