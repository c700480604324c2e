"""What was found, by what and at which cost: every answer is a query on `run.sqlite`. Never blocks the writer."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

from sqlalchemy import Connection, Row, func, select

from evolve import schema as s
from evolve.connection import FILE, connect, reading
from evolve.errors import BadInput
from evolve.history import ranked, totals
from sandbox.base import Verdict


class Report:
    """Reads one run.

    Args:
        folder: of the run.

    Raises:
        BadInput: it is no run.
    """

    def __init__(self, folder: Path):
        self._path = folder / FILE
        self._store = connect(self._path, read_only=True)

    def close(self) -> None:
        """Close all connections."""
        self._store.close()

    def summary(self) -> dict[str, Any]:
        """Return how the run stands: status, budget used, best program."""
        with self._store.read() as connection:
            run = connection.execute(select(s.run)).one()
            used = totals(connection)
            best = connection.execute(ranked(1)).first()
            models = list(connection.scalars(select(s.mutator.c.name)))
        return {
            "problem": run.problem_name,
            "status": run.status,
            "reason": run.reason,
            "seed": run.seed,
            "mutators": models,
            "generations": used.generation,
            "candidates": used.candidates,
            "unusable": used.unusable,
            "duplicates": used.duplicates,
            "completion_tokens": used.completion_tokens,
            "seconds": round(used.elapsed, 1),
            "best": None if best is None else _brief(best),
        }

    def stop_when(self) -> str | None:
        """Return the goal that was stated when the run began."""
        with self._store.read() as connection:
            options = connection.execute(select(s.run.c.options)).scalar_one()
        goal: str | None = options["search"]["stop_when"]
        return goal

    def top(self, count: int = 10) -> list[dict[str, Any]]:
        """Return the best programs, twins left out."""
        with self._store.read() as connection:
            return [_brief(row) for row in connection.execute(ranked(count))]

    def program(self, identity: int | None = None) -> dict[str, Any]:
        """Return one program with its source and its verdict per test; the best one without `identity`.

        Raises:
            BadInput: there is no such program.
        """
        with self._store.read() as connection:
            if identity is None:
                best = connection.execute(ranked(1)).first()
                if best is None:
                    raise BadInput(f"{self._path.parent} holds no program that ran yet.")
                identity = best.id
            query = (
                select(s.program, s.source.c.text, s.completion.c.format, s.mutator.c.name.label("mutator"))
                .select_from(s.program)
                .outerjoin(s.source)
                .outerjoin(s.completion, s.completion.c.id == s.program.c.completion_id)
                .outerjoin(s.mutator)
                .where(s.program.c.id == identity)
            )
            row = connection.execute(query).first()
            if row is None:
                last = connection.execute(select(func.max(s.program.c.id))).scalar() or 0
                raise BadInput(f"There is no program {identity}; programs are numbered from 1 to {last}.")
            names = _tests(connection)
        found = _brief(row)
        found |= {
            "reason": row.reason,
            "mutator": row.mutator,
            "format": row.format,
            "level": row.level,
            "source": row.text,
        }
        if row.metrics is not None:
            (result,) = row.results
            return found | {
                "verdict": row.verdicts[0],
                "detail": result["detail"],
                "metrics": row.metrics["given"],
                "artifacts": row.artifacts,
                "tests": [],
            }
        found["tests"] = [
            {"test": name, "verdict": verdict, "score": score, **kept}
            for name, verdict, score, kept in zip(
                names, row.verdicts or (), row.scores or (), row.results or (), strict=False
            )
        ]
        return found

    def tests(self) -> list[dict[str, Any]]:
        """Return, per visible test, how many of the distinct programs that ran pass it, and the first that did.

        With an evaluator, per objective, how many have a value, the best one, and the first program that reached it.
        """
        with self._store.read() as connection:
            names = _tests(connection)
            if not names:
                return _objectives(connection)
            rows = connection.execute(
                select(s.program.c.id, s.program.c.verdicts)
                .where(s.program.c.status == "scored", s.program.c.duplicate_of.is_(None))
                .order_by(s.program.c.id)
            ).all()
        found = []
        for index, name in enumerate(names):
            passing = [row.id for row in rows if row.verdicts[index] == Verdict.PASS]
            first = passing[0] if passing else None
            found.append({"test": name, "passed_by": len(passing), "programs": len(rows), "first": first})
        return found

    def mutators(self) -> list[dict[str, Any]]:
        """Return the versions of the mutator: what each was trained on, what the gate found, what it sampled."""
        sampled = (
            select(s.completion.c.mutator_id, func.count().label("completions"), func.sum(s.completion.c.completion_tokens))
            .group_by(s.completion.c.mutator_id)
            .subquery()
        )
        with self._store.read() as connection:
            rows = connection.execute(
                select(s.mutator, sampled.c.completions)
                .outerjoin(sampled, sampled.c.mutator_id == s.mutator.c.id)
                .order_by(s.mutator.c.id)
            ).all()
            events = list(connection.scalars(select(s.event.c.data).where(s.event.c.kind == "refreshed")))
        trained = {data["version"]: data for data in events}
        own = f"{self._path.parent.resolve().name}-v"  # an adapter of another run may be called v2 as well
        found = []
        for row in rows:
            data = trained.get(row.name.rpartition("-")[2], {}) if row.adapter and row.name.startswith(own) else {}
            gate = data.get("gate") or {}
            found.append(
                {
                    "name": row.name,
                    "state": row.state,
                    "completions": row.completions or 0,
                    "trained_on": data.get("completions"),
                    "gate_before": gate.get("old"),
                    "gate_after": gate.get("new"),
                    "p_fall": gate.get("p"),
                    "trained_tokens": data.get("trained_tokens"),
                    "train_seconds": data.get("train_seconds"),
                    "refresh_seconds": data.get("seconds"),
                    "adapter": row.adapter,
                }
            )
        return found

    def cost(self) -> dict[str, Any]:
        """Return where time and tokens went. Seconds are the summary's; those of the search are without refreshes."""
        with self._store.read() as connection:
            used = totals(connection)
            rows = list(connection.scalars(select(s.event.c.data).where(s.event.c.kind == "generation")))
            full, completions = connection.execute(_full_share()).one()
            refreshes = list(connection.scalars(select(s.event.c.data).where(s.event.c.kind == "refreshed")))
            cpu = connection.execute(_scoring_cpu()).scalar()
            unusable = _unusable(connection)
        wall = sum(row["wall"] for row in rows)
        mutator = sum(row["mutator_busy"] for row in rows)
        scoring = sum(row["scoring_busy"] for row in rows)
        return {
            "generations": len(rows),
            "seconds": round(used.elapsed, 1),
            "search_seconds": round(wall, 2),
            "mutator_busy_seconds": round(mutator, 2),
            "mutator_idle_share": round(1 - mutator / wall, 4) if wall else None,
            "idle_while_scoring_seconds": round(sum(row.get("idle_while_scoring", 0.0) for row in rows), 2),
            "scoring_busy_seconds": round(scoring, 2),
            "scoring_cpu_seconds": round(cpu or 0.0, 2),
            "refreshes": len(refreshes),
            "refresh_seconds": round(sum(row["seconds"] for row in refreshes), 2),
            "training_seconds": round(sum(row.get("train_seconds") or 0.0 for row in refreshes), 2),
            "trained_tokens": sum(row.get("trained_tokens") or 0 for row in refreshes),
            "gate_tokens": sum((row.get("gate") or {}).get("tokens", 0) for row in refreshes),
            "candidates": used.candidates,
            "unusable": used.unusable,
            "unusable_per_mutator": unusable,
            "duplicates": used.duplicates,
            "completions": completions,
            "completions_with_all_answers": full,
            "prompt_tokens": used.prompt_tokens,
            "completion_tokens": used.completion_tokens,
            "completion_tokens_per_second": round(used.completion_tokens / mutator, 1) if mutator else None,
        }


def _tests(connection: Connection) -> list[str]:
    query = select(s.objective.c.name).where(s.objective.c.kind == "test").order_by(s.objective.c.id)
    return list(connection.scalars(query))


def _objectives(connection: Connection) -> list[dict[str, Any]]:
    """Return, per objective of an evaluator, how many programs have a value, the best one and who reached it first."""
    names = list(connection.scalars(select(s.objective.c.name).order_by(s.objective.c.id)))
    rows = connection.execute(
        select(s.program.c.id, s.program.c.scores)
        .where(s.program.c.status == "scored", s.program.c.duplicate_of.is_(None), s.program.c.scores.is_not(None))
        .order_by(s.program.c.id)
    ).all()
    found = []
    for index, name in enumerate(names):
        values = [(row.scores[index], row.id) for row in rows if index < len(row.scores) and row.scores[index] is not None]
        best = max((value for value, _ in values), default=None)
        first = next((identity for value, identity in values if value == best), None)
        found.append({"objective": name, "programs": len(values), "best": best, "first": first})
    return found


def _full_share() -> Any:
    """Count the completions that hold all the answers asked for, and all completions."""
    usable = (
        select(func.count())
        .where(s.program.c.completion_id == s.completion.c.id, s.program.c.status != "unusable")
        .scalar_subquery()
    )
    return select(func.count().filter(usable >= s.completion.c.wanted), func.count()).select_from(s.completion)


def _unusable(connection: Connection) -> dict[str, dict[str, Any]]:
    """Return, per mutator, its answers, how many gave no program, and why."""
    query = (
        select(s.mutator.c.name, s.program.c.reason, func.count())
        .select_from(s.program)
        .join(s.completion, s.program.c.completion_id == s.completion.c.id)
        .join(s.mutator, s.completion.c.mutator_id == s.mutator.c.id)
        .group_by(s.mutator.c.id, s.program.c.reason)
        .order_by(s.mutator.c.id, func.count().desc(), s.program.c.reason)
    )
    found: dict[str, dict[str, Any]] = {}
    for name, reason, count in connection.execute(query):
        row = found.setdefault(name, {"answers": 0, "unusable": 0, "reasons": {}})
        row["answers"] += count
        if reason:
            kind = re.sub(r"^edit \d+ of \d+: |\b\d+\b|: .*$", "", reason).strip()  # without what differs from case to case
            row["unusable"] += count
            row["reasons"][kind] = row["reasons"].get(kind, 0) + count
    return found


def _scoring_cpu() -> Any:
    each = func.json_each(s.program.c.results).table_valued("value")
    return (
        select(func.sum(func.json_extract(each.c.value, "$.cpu_seconds")))
        .select_from(s.program)
        .join(each, s.program.c.duplicate_of.is_(None))
    )


def _brief(row: Row[Any]) -> dict[str, Any]:
    found = {
        "id": row.id,
        "generation": row.generation,
        "parent": row.parent_id,
        "status": row.status,
        "duplicate_of": row.duplicate_of,
        "fitness": row.fitness,
        "characters": len(row.text or ""),
        "solved": row.solved,
        "confirmed": False,
    }
    if row.metrics is not None:
        return found
    verdicts, hidden = row.verdicts or [], row.hidden_verdicts
    return found | {
        "passed": sum(verdict == Verdict.PASS for verdict in verdicts),
        "visible_tests": len(verdicts),
        "hidden_passed": None if hidden is None else sum(verdict == Verdict.PASS for verdict in hidden),
        "hidden_tests": None if hidden is None else len(hidden),
        "confirmed": bool(row.solved and hidden is not None and all(v == Verdict.PASS for v in hidden)),
    }


def baseline_summary(folder: Path) -> dict[str, Any]:
    """Return what the baseline of a run reached, and at which cost."""
    report = Report(folder)
    try:
        found = report.summary()
    finally:
        report.close()
    best = found["best"] or {}
    return {
        "candidates": found["candidates"],
        "completion_tokens": found["completion_tokens"],
        "fitness": best.get("fitness"),
        "solved": best.get("solved"),
        "passed": best.get("passed"),
        "status": found["status"],
    }


def program_suffix(folder: Path) -> str:
    """Return the suffix of a run's programs: that of its initial program."""
    with reading(folder) as connection:
        run = connection.execute(select(s.run)).one()
    named = run.options.get("place", {}).get("initial")
    found = [Path(named)] if named else sorted(Path(run.problem).glob("initial_program.*"))
    return found[0].suffix if found else ".txt"
