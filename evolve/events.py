"""What happened to a run, in order: starts, faults, refreshes, decisions that hold from then on."""

from __future__ import annotations

import time
from typing import Any

from sqlalchemy import Connection, Select, func, insert, select

from evolve import schema as s
from evolve.connection import Store

INSERT_EVENT = insert(s.event)


def record_event(connection: Connection, kind: str, data: dict[str, Any]) -> None:
    """Record an event as part of a transaction."""
    connection.execute(INSERT_EVENT, {"created": time.time(), "kind": kind, "data": data})


def _of(kind: str, after: str | None) -> Select[Any]:
    """Select the data of the events of a kind, later than all of another."""
    query = select(s.event.c.data).where(s.event.c.kind == kind)
    if after is None:
        return query
    latest = select(func.coalesce(func.max(s.event.c.id), 0)).where(s.event.c.kind == after).scalar_subquery()
    return query.where(s.event.c.id > latest)


class Events:
    """The events of one run.

    Args:
        store: the run's database.
    """

    def __init__(self, store: Store):
        self._store = store

    def record(self, kind: str, **data: Any) -> None:
        """Record something that happened to the run."""
        with self._store.write() as connection:
            record_event(connection, kind, data)

    def happened(self, kind: str) -> bool:
        """Return whether an event of this kind was recorded."""
        return self.last(kind) is not None

    def last(self, kind: str, after: str | None = None) -> dict[str, Any] | None:
        """Return the data of the last event of this kind, or None; with `after`, only one later than all of that kind."""
        with self._store.read() as connection:
            query = _of(kind, after).order_by(s.event.c.id.desc()).limit(1)
            found: dict[str, Any] | None = connection.scalars(query).first()
        return found

    def all(self, kind: str, after: str | None = None) -> list[dict[str, Any]]:
        """Return the data of all events of this kind, in order; with `after`, those later than all of that kind."""
        with self._store.read() as connection:
            return list(connection.scalars(_of(kind, after).order_by(s.event.c.id)))

    def fruitless(self, kind: str, count: int) -> bool:
        """Return whether the last `count` events of this kind say that nothing was accepted; skipped ones don't count."""
        found = [data for data in self.all(kind) if "skipped" not in data][-count:]
        return len(found) == count and not any(data["accepted"] for data in found)
