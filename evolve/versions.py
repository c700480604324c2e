"""The versions of a run's mutator: what each was made of, and which one serves."""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Any

from sqlalchemy import Row, insert, select, update

from evolve import schema as s
from evolve.connection import Store
from evolve.events import record_event


class Versions:
    """The versions that one run has recorded, by the name under which each is served.

    Args:
        store: the run's database.
    """

    def __init__(self, store: Store):
        self._store = store

    def all(self) -> Sequence[Row[Any]]:
        """Return the rows of all versions, in the order in which they were recorded."""
        with self._store.read() as connection:
            return connection.execute(select(s.mutator).order_by(s.mutator.c.id)).all()

    def identity(self, name: str, model: str) -> int:
        """Return the id of a served name, recorded now if it is new."""
        with self._store.write() as connection:
            found = connection.execute(select(s.mutator.c.id).where(s.mutator.c.name == name)).scalar()
            if found is None:
                values = {"name": name, "model": model, "state": "serving", "created": time.time()}
                found = connection.execute(insert(s.mutator).values(values).returning(s.mutator.c.id)).scalar_one()
        return int(found)

    def record(self, name: str, model: str, adapter: str) -> None:
        """Record a new version, a candidate still.

        Args:
            name: which no other version has.
            model: that the adapter was made for.
            adapter: its folder.
        """
        values = {"name": name, "model": model, "adapter": adapter, "state": "candidate", "created": time.time()}
        with self._store.write() as connection:
            connection.execute(insert(s.mutator).values(values))

    def set_state(self, name: str, state: str) -> None:
        """Record how a version stands: candidate, serving, rejected or retired."""
        with self._store.write() as connection:
            connection.execute(update(s.mutator).where(s.mutator.c.name == name).values(state=state))

    def serve(self, name: str, event: str, /, **data: Any) -> None:
        """Record in one transaction that a version serves and no other one does, and the event that tells why."""
        table = s.mutator
        with self._store.write() as connection:
            connection.execute(update(table).where(table.c.state == "serving").values(state="retired"))
            connection.execute(update(table).where(table.c.name == name).values(state="serving"))
            record_event(connection, event, data)
