"""Rows that can't be read any more are set aside when a run is resumed, so that nothing in a database stops it.

What a candidate gave is checked before it is recorded (`metrics.py`); this is for rows of older versions, of other programs
that wrote to the file, and of faults that nobody has thought of. What is set aside is kept as an event, as it was.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from sqlalchemy import Connection, Text, select, type_coerce, update

from evolve import schema as s
from evolve.connection import Store
from evolve.events import record_event
from evolve.metrics import number
from sandbox.base import Verdict

PROGRAM_JSON = ("scores", "verdicts", "results", "metrics", "artifacts", "hidden_verdicts", "hidden_scores")
COMPLETION_JSON = ("prompt_token_ids", "token_ids", "logprobs", "sampled")
RESULT: dict[str, Any] = {"got": str, "detail": str, "stderr": str, "loaded": bool, "cpu_seconds": (int, float)}
VERDICTS = {str(verdict) for verdict in Verdict}


def quarantine(store: Store) -> list[str]:
    """Set aside the rows that can't be read; return what was found, a line each."""
    found: list[str] = []
    with store.write() as connection:
        for table, names, fault, emptied in (
            (
                s.program,
                PROGRAM_JSON,
                program_fault,
                {"status": "failed", "fitness": None, "solved": False, "fingerprint": None},
            ),
            (s.completion, COMPLETION_JSON, completion_fault, {}),
        ):
            for identity, reason, row in _faults(connection, table, names, fault):
                record_event(connection, "quarantine", {"table": table.name, "id": identity, "reason": reason, "row": row})
                values = {**emptied, **dict.fromkeys(names)}
                if table is s.program:
                    values |= {"verdicts": [], "results": []}
                connection.execute(update(table).where(table.c.id == identity).values(values))
                found.append(f"{table.name} {identity}: {reason}")
    return found


def _faults(connection: Connection, table: Any, names: Any, fault: Any) -> list[tuple[int, str, dict[str, Any]]]:
    """Return id, reason and raw content of the rows with a fault."""
    raw: list[Any] = [type_coerce(table.c[name], Text).label(name) for name in names]
    if table is s.program:
        raw += [table.c.status, type_coerce(table.c.fitness, Text).label("fitness")]
    query = select(table.c.id, *raw)
    faults = []
    for row in connection.execution_options(yield_per=1000).execute(query):
        content = row._asdict()
        reason = fault(content)
        if reason is not None:
            faults.append((row.id, reason, {name: str(value)[:2000] for name, value in content.items()}))
    return faults


def program_fault(row: Mapping[str, Any]) -> str | None:
    """Return what is wrong with the raw content of a program's row, or None."""
    try:
        content = {name: _decoded(row[name]) for name in PROGRAM_JSON}
    except ValueError as error:
        return str(error)
    verdicts, results, metrics = content["verdicts"], content["results"], content["metrics"]
    for name in ("scores", "hidden_scores"):
        values = content[name]
        if values is not None and not (isinstance(values, list) and all(v is None or number(v) is not None for v in values)):
            return f"{name} are no list of numbers"
    for values in (verdicts, content["hidden_verdicts"]):
        if values is not None and not (
            isinstance(values, list) and all(v in VERDICTS for v in values if not isinstance(v, list))
        ):
            return "unknown verdicts"
    if results is not None and not (isinstance(results, list) and all(map(_is_result, results))):
        return "results of another form"
    if metrics is not None and not (
        isinstance(metrics, dict) and all(isinstance(metrics.get(name), dict) for name in ("values", "given"))
    ):
        return "metrics of another form"
    if metrics is not None and any(number(value) is None for value in metrics["values"].values()):
        return "a metric that is no finite number"
    if content["artifacts"] is not None and not isinstance(content["artifacts"], dict):
        return "artifacts of another form"
    if row["status"] == "scored":
        if not isinstance(row["fitness"], (int, float)) or number(row["fitness"]) is None:
            return "no finite fitness"
        if content["scores"] is None or not verdicts or not results or len(verdicts) != len(results):
            return "a scored program without scores or verdicts"
    return None


def completion_fault(row: Mapping[str, Any]) -> str | None:
    """Return what is wrong with the raw content of a completion's row, or None."""
    try:
        content = {name: _decoded(row[name]) for name in COMPLETION_JSON}
    except ValueError as error:
        return str(error)
    wrong = [name for name, value in content.items() if value is not None and not isinstance(value, list)]
    return f"{wrong[0]} is no list" if wrong else None


def _is_result(result: Any) -> bool:
    return (
        isinstance(result, dict)
        and set(result) == set(RESULT)
        and all(isinstance(result[name], kind) for name, kind in RESULT.items())
    )


def _decoded(value: Any) -> Any:
    if value is None:
        return None
    if not isinstance(value, str):
        raise ValueError(f"a {type(value).__name__} where JSON text is expected")
    try:
        return json.loads(value)
    except (ValueError, RecursionError) as error:
        raise ValueError(f"no JSON: {error}"[:200]) from None
