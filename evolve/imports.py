"""Start a run from the population of another system: OpenEvolve's checkpoint folders, ShinkaEvolve's database.

Programs keep their source, their metrics and their parents. What both formats hold was read in OpenEvolve 0.4.0 and
ShinkaEvolve 0.0.7.
"""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Iterable, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from evolve.database import IMPORTED, Database
from evolve.errors import BadInput
from evolve.evaluated import EvaluatedProblem
from evolve.metrics import InvalidMetrics, checked
from evolve.score import Score
from sandbox.base import Verdict
from sandbox.judge import TestResult


@dataclass(frozen=True, slots=True)
class Foreign:
    """A program of another system.

    Attributes:
        key: its id there.
        parent: its parent's, or None.
        source: its text.
        metrics: what its evaluator gave.
        order: programs with a smaller one are older.
        ran: whether it is a valid program.
        artifacts: texts for prompts.
    """

    key: str
    parent: str | None
    source: str
    metrics: Mapping[str, Any]
    order: tuple[float, ...]
    ran: bool = True
    artifacts: Mapping[str, str] = field(default_factory=dict)


def read_openevolve(folder: Path) -> list[Foreign]:
    """Return the programs of a checkpoint folder (`programs/*.json` in it).

    Raises:
        BadInput: it is none.
    """
    paths = sorted((folder / "programs").glob("*.json"))
    if not paths:
        raise BadInput(
            f"{folder} is no OpenEvolve checkpoint: it holds no programs/*.json. They lie in openevolve_output/checkpoints/."
        )
    found = []
    for path in paths:
        try:
            row = json.loads(path.read_text(encoding="utf-8-sig"))
            artifacts = json.loads(row.get("artifacts_json") or "{}")
            found.append(
                Foreign(
                    str(row["id"]),
                    row.get("parent_id"),
                    str(row["code"]),
                    dict(row.get("metrics") or {}),
                    (float(row.get("generation") or 0), float(row.get("timestamp") or 0.0)),
                    artifacts={str(name): value for name, value in artifacts.items() if isinstance(value, str)},
                )
            )
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            raise BadInput(f"{path} is not a program of an OpenEvolve checkpoint: {error!r}.") from None
    return found


def read_shinka(path: Path) -> list[Foreign]:
    """Return the programs of a ShinkaEvolve database.

    Raises:
        BadInput: it is none.
    """
    if not path.is_file():
        raise BadInput(f"{path} is not a file; ShinkaEvolve's database is the .sqlite file of its results folder.")
    query = (
        "select id, parent_id, code, combined_score, public_metrics, correct, generation, timestamp, text_feedback "
        "from programs order by generation, timestamp"
    )
    try:
        with closing(sqlite3.connect(f"file:{path}?mode=ro", uri=True)) as connection:
            rows = connection.execute(query).fetchall()
    except sqlite3.DatabaseError as error:
        raise BadInput(f"{path} is not a ShinkaEvolve database: {error}.") from None
    found = []
    for key, parent, code, score, public, correct, generation, timestamp, feedback in rows:
        metrics = dict(json.loads(public or "{}"))
        if score is not None:
            metrics["combined_score"] = score
        artifacts = {"feedback": feedback} if isinstance(feedback, str) and feedback else {}
        order = (float(generation), float(timestamp))
        found.append(Foreign(str(key), parent, str(code), metrics, order, bool(correct), artifacts))
    return found


def start_from(
    folder: Path, problem: EvaluatedProblem, options: Mapping[str, Any], seed: int, programs: Iterable[Foreign]
) -> int:
    """Make a run that starts from these programs; return how many there are.

    Args:
        folder: of the new run.
        problem: what is searched for.
        options: of the run, as `RunOptions.stored` gives them.
        seed: of the run.
        programs: in any order.

    Raises:
        BadInput: none of them ran, or the folder holds a run.
    """
    ordered = _ordered(list(programs))
    if not any(_score(problem, program).ran for program in ordered):
        raise BadInput(f"None of the {len(ordered)} programs has a numeric metric, so a run can't start from them.")
    state = np.random.default_rng(seed).bit_generator.state
    database = Database.create(folder, problem, options, seed, state)
    try:
        ids: dict[str, int] = {}
        first = next(program for program in ordered if _score(problem, program).ran)
        for program in (first, *(one for one in ordered if one is not first)):
            parent = ids.get(program.parent or "")
            score = _score(problem, program)
            ids[program.key] = database.record_seed(program.source, problem.language, score, parent)
        database.events.record("import", programs=len(ids))
        database.set_status("stopped", "imported")
    finally:
        database.close()
    return len(ids)


def _ordered(programs: Sequence[Foreign]) -> list[Foreign]:
    """Return programs with parents before their children, older ones first."""
    known = {program.key for program in programs}
    left = sorted(programs, key=lambda program: (program.order, program.key))
    done: set[str] = set()
    ordered: list[Foreign] = []
    while left:
        ready = [one for one in left if one.parent is None or one.parent not in known or one.parent in done] or left
        ordered += ready
        done |= {one.key for one in ready}
        left = [one for one in left if one.key not in done]
    return ordered


def _score(problem: EvaluatedProblem, program: Foreign) -> Score:
    try:
        metrics, artifacts = checked(dict(program.metrics), dict(program.artifacts))
    except InvalidMetrics:
        metrics, artifacts = {}, {}
    fitness = problem.fitness(metrics) if program.ran else None
    ran = fitness is not None
    result = TestResult(Verdict.PASS if ran else Verdict.INVALID, float(ran), loaded=ran)
    values = problem.values(metrics) if ran else {}
    return Score((result,), np.empty(0), ran, IMPORTED, fitness, False, values, metrics, artifacts)
