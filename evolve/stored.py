"""A program and its score as columns of a row, and back."""

from __future__ import annotations

import hashlib
import time
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from sqlalchemy import Connection, Row, insert

from evolve import schema as s
from evolve.answers import Answer, fingerprint
from evolve.score import Score
from sandbox.base import Verdict
from sandbox.judge import TestResult

INSERT_SOURCE = insert(s.source).prefix_with("or ignore", dialect="sqlite")
INSERT_PROGRAM = insert(s.program)


def program_row(answer: Answer, score: Score | None, language: str) -> dict[str, Any]:
    """Return the columns of a program that come from its answer and its score; all others are None."""
    row = dict.fromkeys(s.program.c.keys())
    row |= {"created": time.time(), "status": "unusable", "reason": answer.reason, "solved": False}
    if answer.source is None or score is None:
        return row
    row |= {
        "source_hash": _digest(answer.source),
        "fingerprint": fingerprint(answer.source, language),
        "status": "scored" if score.ran else "failed",
        "fitness": score.fitness,
        "solved": score.solved,
        "scores": score.scores.tolist() if score.values is None else None,
        "verdicts": [result.verdict for result in score.results],
        "results": [_kept(result) for result in score.results],
        "level": score.level,
    }
    if score.values is not None:
        row["metrics"] = {"values": texts(score.values), "given": texts(score.metrics)}
        row["artifacts"] = texts(score.artifacts)
    return row


def insert_programs(connection: Connection, rows: list[dict[str, Any]], sources: Sequence[str | None]) -> None:
    """Insert rows of programs, and those of their texts that are new."""
    new = [{"hash": _digest(source), "text": source} for source in sources if source is not None]
    if new:
        connection.execute(INSERT_SOURCE, new)
    connection.execute(INSERT_PROGRAM, rows)


def stored_score(row: Row[Any]) -> Score:
    """Return the score that a program's row holds."""
    evaluated = row.metrics is not None
    scores = np.array([np.nan if value is None else value for value in row.scores or ()], dtype=float)
    values = row.verdicts if evaluated else scores
    results = tuple(
        TestResult(Verdict(verdict), float(row.status == "scored") if evaluated else float(score), **kept)
        for verdict, score, kept in zip(row.verdicts, values, row.results, strict=False)
    )
    return Score(
        results,
        np.empty(0) if evaluated else scores,
        row.status == "scored",
        row.level,
        row.fitness,
        row.solved,
        row.metrics["values"] if evaluated else None,
        row.metrics["given"] if evaluated else {},
        row.artifacts or {},
    )


def text(untrusted: str) -> str:
    """Return text that every database takes: no NUL, no lone surrogate."""
    return untrusted.replace("\0", "\\0").encode("utf-8", "replace").decode()


def texts(values: Mapping[str, Any]) -> dict[str, Any]:
    """Return a mapping with names and texts that every database takes."""
    return {text(str(name)): text(value) if isinstance(value, str) else value for name, value in values.items()}


def _digest(source: str) -> str:
    return hashlib.sha256(source.encode()).hexdigest()


def _kept(result: TestResult) -> dict[str, Any]:
    """Return what is stored of a result beside its verdict and score."""
    return {
        "got": text(result.got),
        "detail": text(result.detail),
        "stderr": text(result.stderr),
        "loaded": result.loaded,
        "cpu_seconds": round(result.cpu_seconds, 6),
    }
