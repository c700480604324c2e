"""The run's database, `run.sqlite`: one writer, one transaction per completion, nothing lost on kill -9.

SQLite in WAL mode, so that readers (`evolve show`) never wait for the writer. SQL that only SQLite knows stays in here.
"""

from __future__ import annotations

import contextlib
import hashlib
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np
from sqlalchemy import Connection, Engine, Row, func, insert, select, update

from evolve import schema as s
from evolve.answers import Answer, fingerprint
from evolve.completion import Completion, Format, Message
from evolve.connection import FILE, connect, errors, migrate, new_engine
from evolve.errors import BadInput
from evolve.population import Member, Population
from evolve.problem import Problem
from evolve.score import Score
from sandbox.base import Verdict
from sandbox.judge import TestResult


@dataclass(frozen=True, slots=True)
class NewPrompt:
    """A prompt to be recorded."""

    parent: int
    inspirations: Sequence[int]
    messages: Sequence[Message]
    completions: int
    answers: int
    seed: int


@dataclass(frozen=True, slots=True)
class OpenPrompt:
    """A recorded prompt of which completions are still missing."""

    id: int
    generation: int
    parent: int
    messages: Sequence[Message]
    answers: int
    seed: int
    missing: Sequence[int]
    """Positions of the missing completions."""


@dataclass(frozen=True, slots=True)
class Recorded:
    """A recorded program, and the twin whose scores it has, if any."""

    id: int
    duplicate_of: int | None


@dataclass(frozen=True, slots=True)
class Totals:
    """What a run has used and reached so far."""

    generation: int
    candidates: int
    unusable: int
    duplicates: int
    completion_tokens: int
    prompt_tokens: int
    elapsed: float


class Database:
    """The writer of one run.

    Args:
        engine: from `connect`.
        path: the file, for messages.
    """

    def __init__(self, engine: Engine, path: Path):
        self._engine = engine
        self._path = path

    @classmethod
    def create(cls, folder: Path, problem: Problem, options: Mapping[str, Any], seed: int, rng_state: Any) -> Database:
        """Make a new run's database.

        Raises:
            BadInput: the folder already holds a run.
            DatabaseError: it cannot be written.
        """
        path = folder / FILE
        if path.exists():
            raise BadInput(f"{folder} already holds a run. Go on with `evolve resume {folder}`, or name another folder.")
        folder.mkdir(parents=True, exist_ok=True)
        with errors(path):
            engine = new_engine(path)
            migrate(engine)
            with engine.begin() as connection:
                connection.execute(
                    insert(s.run).values(
                        id=1,
                        problem=str(problem.path.resolve()),
                        problem_name=problem.name,
                        problem_digest=problem.digest,
                        options=dict(options),
                        seed=seed,
                        rng_state=rng_state,
                        status="running",
                        created=time.time(),
                        version=version("vector-evolve"),
                    )
                )
                tests = len(problem.visible)
                rows = [
                    {"id": i, "name": name, "kind": "test" if i < tests else "extra"}
                    for i, name in enumerate(problem.objectives)
                ]
                connection.execute(insert(s.objective), rows)
        return cls(engine, path)

    @classmethod
    def open(cls, folder: Path) -> Database:
        """Open an existing run's database, brought up to date if it is older."""
        path = folder / FILE
        return cls(connect(path), path)

    def close(self) -> None:
        """Close all connections."""
        self._engine.dispose()

    @contextlib.contextmanager
    def _write(self) -> Iterator[Connection]:
        with errors(self._path), self._engine.begin() as connection:
            yield connection

    def run(self) -> Row[Any]:
        """Return the row of the run."""
        with errors(self._path), self._engine.connect() as connection:
            return connection.execute(select(s.run)).one()

    def set_status(self, status: str, reason: str = "") -> None:
        """Record how the run stands: running, finished or stopped."""
        with self._write() as connection:
            connection.execute(update(s.run).values(status=status, reason=reason))

    def record_event(self, kind: str, **data: Any) -> None:
        """Record something that happened to the run."""
        with self._write() as connection:
            connection.execute(insert(s.event).values(created=time.time(), kind=kind, data=data))

    def happened(self, kind: str) -> bool:
        """Return whether an event of this kind was recorded."""
        query = select(s.event.c.id).where(s.event.c.kind == kind).limit(1)
        with errors(self._path), self._engine.connect() as connection:
            return connection.execute(query).first() is not None

    def mutator(self, name: str, model: str) -> int:
        """Return the id of a served name, recorded now if it is new."""
        with self._write() as connection:
            found = connection.execute(select(s.mutator.c.id).where(s.mutator.c.name == name)).scalar()
            if found is not None:
                return int(found)
            values = {"name": name, "model": model, "state": "serving", "created": time.time()}
            return _inserted(connection, s.mutator, values)

    def record_initial(self, source: str, language: str, score: Score) -> int:
        """Record the initial program and return its id."""
        with self._write() as connection:
            recorded = self._program(connection, Answer(source), score, language, position=0, generation=0)
        return recorded.id

    def record_prompts(self, generation: int, prompts: Sequence[NewPrompt], rng_state: Any) -> list[OpenPrompt]:
        """Record a generation's prompts and the generator's state after choosing them, in one transaction."""
        opened = []
        with self._write() as connection:
            connection.execute(update(s.run).values(rng_state=rng_state))
            for position, prompt in enumerate(prompts):
                values = {
                    "generation": generation,
                    "position": position,
                    "parent_id": prompt.parent,
                    "inspirations": list(prompt.inspirations),
                    "messages": list(prompt.messages),
                    "completions": prompt.completions,
                    "answers": prompt.answers,
                    "seed": prompt.seed,
                }
                identity = _inserted(connection, s.prompt, values)
                opened.append(
                    OpenPrompt(
                        identity,
                        generation,
                        prompt.parent,
                        prompt.messages,
                        prompt.answers,
                        prompt.seed,
                        range(prompt.completions),
                    )
                )
        return opened

    def record_completion(
        self,
        prompt: OpenPrompt,
        position: int,
        mutator: int,
        completion: Completion,
        answers: Sequence[tuple[Answer, Score | None]],
        language: str,
        elapsed: float,
    ) -> list[Recorded]:
        """Record a completion with its programs in one transaction; return what became of each."""
        values = asdict(completion)
        del values["mutator"]
        values |= {
            "prompt_id": prompt.id,
            "position": position,
            "mutator_id": mutator,
            "created": time.time(),
        }
        with self._write() as connection:
            identity = _inserted(connection, s.completion, values)
            connection.execute(update(s.run).values(elapsed=elapsed))
            return [
                self._program(
                    connection,
                    answer,
                    score,
                    language,
                    position=index,
                    generation=prompt.generation,
                    completion_id=identity,
                    parent_id=prompt.parent,
                )
                for index, (answer, score) in enumerate(answers)
            ]

    def _program(
        self, connection: Connection, answer: Answer, score: Score | None, language: str, **values: Any
    ) -> Recorded:
        values |= {"created": time.time(), "status": "unusable", "reason": answer.reason}
        if answer.source is not None and score is not None:
            digest = hashlib.sha256(answer.source.encode()).hexdigest()
            if not connection.execute(select(s.source.c.hash).where(s.source.c.hash == digest)).scalar():
                connection.execute(insert(s.source).values(hash=digest, text=answer.source))
            twin = fingerprint(answer.source, language)
            values |= {
                "source_hash": digest,
                "fingerprint": twin,
                "duplicate_of": connection.execute(_original(twin)).scalar(),
                "status": "scored" if score.ran else "failed",
                "fitness": score.fitness,
                "solved": score.solved,
                "scores": score.scores.tolist(),
                "verdicts": [result.verdict for result in score.results],
                "results": [_kept(result) for result in score.results],
                "level": score.level,
            }
        return Recorded(_inserted(connection, s.program, values), values.get("duplicate_of"))

    def known(self, twin: str) -> Score | None:
        """Return the score of a recorded program with this fingerprint, or None."""
        query = select(s.program).where(s.program.c.id == _original(twin).scalar_subquery())
        with errors(self._path), self._engine.connect() as connection:
            row = connection.execute(query).first()
        return None if row is None else _score(row)

    def record_hidden(self, program: int, results: Sequence[TestResult]) -> None:
        """Record a program's results on the hidden tests."""
        with self._write() as connection:
            connection.execute(
                update(s.program)
                .where(s.program.c.id == program)
                .values(
                    hidden_verdicts=[result.verdict for result in results],
                    hidden_scores=[result.score for result in results],
                )
            )

    def results(self, program: int) -> tuple[TestResult, ...]:
        """Return a program's results on the visible tests."""
        with errors(self._path), self._engine.connect() as connection:
            row = connection.execute(select(s.program).where(s.program.c.id == program)).one()
        return _score(row).results

    def source(self, program: int) -> str:
        """Return a program's text."""
        query = select(s.source.c.text).join(s.program).where(s.program.c.id == program)
        with errors(self._path), self._engine.connect() as connection:
            return str(connection.execute(query).scalar_one())

    def population(self, population: Population) -> Population:
        """Fill an empty population with the run's programs, in the order in which they were recorded."""
        query = (
            select(s.program.c.id, s.program.c.scores, s.program.c.fitness, s.source.c.text)
            .join(s.source)
            .where(s.program.c.status == "scored", s.program.c.duplicate_of.is_(None))
            .order_by(s.program.c.id)
        )
        with errors(self._path), self._engine.connect() as connection:
            for row in connection.execute(query):
                population.add(Member(row.id, row.text, np.array(row.scores), row.fitness))
        return population

    def open_prompts(self) -> list[OpenPrompt]:
        """Return the prompts that still lack completions, as after a kill, in order."""
        with errors(self._path), self._engine.connect() as connection:
            last = select(func.max(s.prompt.c.generation)).scalar_subquery()
            query = select(s.prompt).where(s.prompt.c.generation == last).order_by(s.prompt.c.position)
            opened = []
            for row in connection.execute(query):
                have = set(connection.scalars(select(s.completion.c.position).where(s.completion.c.prompt_id == row.id)))
                missing = [position for position in range(row.completions) if position not in have]
                if missing:
                    opened.append(
                        OpenPrompt(
                            row.id,
                            row.generation,
                            row.parent_id,
                            row.messages,
                            row.answers,
                            row.seed,
                            missing,
                        )
                    )
        return opened

    def last_format(self) -> Format | None:
        """Return the format of the last completion, or None before the first."""
        query = select(s.completion.c.format).order_by(s.completion.c.id.desc()).limit(1)
        with errors(self._path), self._engine.connect() as connection:
            found: Format | None = connection.execute(query).scalar()
        return found

    def totals(self) -> Totals:
        """Return what the run has used so far."""
        with errors(self._path), self._engine.connect() as connection:
            return totals(connection)


def totals(connection: Connection) -> Totals:
    """Count what a run has used; candidates are answers, usable or not, without the initial program."""
    proposed = s.program.c.completion_id.is_not(None)
    candidates, unusable, duplicates = connection.execute(
        select(
            func.count(),
            func.count().filter(s.program.c.status == "unusable"),
            func.count(s.program.c.duplicate_of),
        ).where(proposed)
    ).one()
    completion_tokens, prompt_tokens = connection.execute(
        select(
            func.coalesce(func.sum(s.completion.c.completion_tokens), 0),
            func.coalesce(func.sum(s.completion.c.prompt_tokens), 0),
        )
    ).one()
    generation = connection.execute(select(func.coalesce(func.max(s.prompt.c.generation), 0))).scalar_one()
    elapsed = connection.execute(select(s.run.c.elapsed)).scalar_one()
    return Totals(generation, candidates, unusable, duplicates, completion_tokens, prompt_tokens, elapsed)


def _original(twin: str) -> Any:
    """Select the id of the first program with a fingerprint."""
    return (
        select(s.program.c.id)
        .where(s.program.c.fingerprint == twin, s.program.c.duplicate_of.is_(None))
        .order_by(s.program.c.id)
        .limit(1)
    )


def _inserted(connection: Connection, table: Any, values: Mapping[str, Any]) -> int:
    key = connection.execute(insert(table).values(**values)).inserted_primary_key
    assert key is not None
    return int(key[0])


def _kept(result: TestResult) -> dict[str, Any]:
    """Return what is stored of a result beside its verdict and score."""
    return {
        "got": _text(result.got),
        "detail": _text(result.detail),
        "stderr": _text(result.stderr),
        "loaded": result.loaded,
        "cpu_seconds": round(result.cpu_seconds, 6),
    }


def _text(untrusted: str) -> str:
    """Return text that every database takes: no NUL, no lone surrogate."""
    return untrusted.replace("\0", "\\0").encode("utf-8", "replace").decode()


def _score(row: Row[Any]) -> Score:
    scores = np.array(row.scores)
    results = tuple(
        TestResult(Verdict(verdict), float(score), **kept)
        for verdict, score, kept in zip(row.verdicts, scores, row.results, strict=False)
    )
    return Score(results, scores, row.status == "scored", row.level)
