"""A problem that has changed under a run: its scores are set aside, and the best programs are scored anew.

Scores under two versions of a problem do not compare. So all scored programs become `outdated`, in one transaction with the
problem's new parts and an event that names the programs to be scored anew: the one that the run started from and the best.
Before that the database is copied, so that the old scores are kept.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from sqlalchemy import Connection, delete, func, insert, select, text, update

from evolve import schema as s
from evolve.connection import Store
from evolve.events import record_event
from evolve.history import ranked
from evolve.problem import Problem

CHANGED = "problem-changed"
OUTDATED = "outdated"
RESCORED = 20
"""How many of the best distinct programs are scored anew, beside the initial one."""

EMPTIED: dict[str, Any] = {
    "status": OUTDATED,
    "fitness": None,
    "solved": False,
    "fingerprint": None,
    "scores": None,
    "verdicts": [],
    "results": [],
    "metrics": None,
    "artifacts": None,
    "level": None,
    "hidden_verdicts": None,
    "hidden_scores": None,
}


def outdate(store: Store, problem: Problem, changes: Sequence[str]) -> int:
    """Take the problem as it is now; return the number of its scoring version, from 2 on.

    Args:
        store: the run's database.
        problem: as it is now.
        changes: in words.
    """
    with store.read() as connection:
        version = 2 + connection.execute(select(func.count()).where(s.event.c.kind == CHANGED)).scalar_one()
    copy = store.path.with_name(f"{store.path.name}.scoring-{version - 1}")
    unfinished = copy.with_name(f"{copy.name}.new")
    unfinished.unlink(missing_ok=True)
    with store.outside_transactions() as connection:
        connection.execute(text("vacuum into :path"), {"path": str(unfinished)})
    unfinished.rename(copy)  # in the place of one that a kill before the transaction left
    with store.write() as connection:
        best = _best(connection)
        touched = s.program.c.status.in_(("scored", "failed"))
        count = connection.execute(select(func.count()).where(touched)).scalar_one()
        connection.execute(update(s.program).where(touched).values(EMPTIED))
        connection.execute(delete(s.objective))
        rows = [{"id": i, "name": name, "kind": kind} for i, (name, kind) in enumerate(problem.dimensions)]
        if rows:
            connection.execute(insert(s.objective), rows)
        connection.execute(update(s.run).values(problem_digest=problem.digest, problem_parts=dict(problem.parts)))
        data = {"scoring": version, "changes": list(changes), "outdated": count, "programs": best, "copy": copy.name}
        record_event(connection, CHANGED, data)
    return version


def waiting(connection: Connection) -> list[int]:
    """Return the programs that are still to be scored anew, in order."""
    query = select(s.event.c.data).where(s.event.c.kind == CHANGED).order_by(s.event.c.id.desc()).limit(1)
    event = connection.execute(query).scalar()
    if event is None:
        return []
    chosen = s.program.c.id.in_(event["programs"])
    return list(
        connection.scalars(select(s.program.c.id).where(chosen, s.program.c.status == OUTDATED).order_by(s.program.c.id))
    )


def _best(connection: Connection) -> list[int]:
    """Return the programs that the run started from, and the best distinct ones."""
    seeds = select(s.program.c.id).where(s.program.c.completion_id.is_(None), s.program.c.source_hash.is_not(None))
    first = list(connection.scalars(seeds.order_by(s.program.c.id).limit(RESCORED)))
    return sorted({*first, *(row.id for row in connection.execute(ranked(RESCORED)))})
