"""The run's database, `run.sqlite`: one writer, one transaction per completion, nothing lost on kill -9.

SQLite in WAL mode, so that readers (`evolve show`) never wait for the writer. SQL that only SQLite knows stays in here.

Rows have ids that follow from their place in the search (prompt, position, answer), not from the order in which they
arrive; a prompt's programs get their twins, and with an evaluator their score vectors, when the prompt is committed, which
happens in the order of prompts. So two runs that sample the same have the same rows.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path
from typing import Any, TypeVar

from sqlalchemy import Connection, Row, Table, bindparam, func, insert, or_, select, update

from evolve import schema as s
from evolve.answers import Answer
from evolve.completion import Completion, Format, Message
from evolve.connection import FILE, Store, connect, errors, migrate, new_engine
from evolve.errors import BadInput
from evolve.events import Events, record_event
from evolve.files import make_folder
from evolve.history import Committed, Totals, committed, history, oldest, ranked, seeds, totals
from evolve.outdated import outdate, waiting
from evolve.problem import Problem
from evolve.quarantine import quarantine
from evolve.score import Score
from evolve.stored import insert_programs, program_row, stored_score
from evolve.versions import Versions
from sandbox.judge import TestResult

T = TypeVar("T")
SCORE_COLUMNS = (
    "fingerprint",
    "status",
    "fitness",
    "solved",
    "scores",
    "verdicts",
    "results",
    "level",
    "metrics",
    "artifacts",
)
IMPORTED = "imported"
"""Isolation of scores that another system gave."""

# Statements that every completion needs, built once.
INSERT = {table: insert(table) for table in s.metadata.tables.values()}
SET_RNG = update(s.run).values(rng_state=bindparam("state", type_=s.run.c.rng_state.type))
SET_ELAPSED = update(s.run).values(elapsed=bindparam("seconds"))
SET_COMMITTED = update(s.run).values(committed=bindparam("one"))
PROGRAM = select(s.program).where(s.program.c.id == bindparam("one"))
SOURCE = select(s.source.c.text).join(s.program).where(s.program.c.id == bindparam("one"))
KNOWN = select(s.program).where(s.program.c.id == oldest(bindparam("twin")).scalar_subquery())
MINE = s.program.c.completion_id.in_(select(s.completion.c.id).where(s.completion.c.prompt_id == bindparam("one")))
OLDEST = oldest(s.program.c.fingerprint).scalar_subquery()
SET_TWINS = update(s.program).where(MINE, s.program.c.id > OLDEST).values(duplicate_of=OLDEST)
EVALUATED = (
    select(s.program.c.id, s.program.c.metrics).where(MINE, s.program.c.metrics.is_not(None)).order_by(s.program.c.id)
)


@dataclass(frozen=True, slots=True)
class NewPrompt:
    """A prompt to be recorded."""

    generation: int
    position: int
    parent: int
    inspirations: Sequence[int]
    messages: Sequence[Message]
    completions: int
    answers: int
    seed: int
    island: int = 0
    retries: bool = False


@dataclass(frozen=True, slots=True)
class OpenPrompt:
    """A recorded prompt that is not committed yet."""

    id: int
    generation: int
    parent: int
    messages: Sequence[Message]
    completions: int
    answers: int
    seed: int
    island: int
    retries: bool
    missing: Sequence[int]
    """Positions of the completions that it lacks."""


@dataclass(frozen=True, slots=True)
class Recent:
    """A recorded prompt, and the programs of its completions."""

    parent: int
    messages: Sequence[Message]
    answers: int
    seed: int
    completions: Sequence[tuple[int, Sequence[str]]]
    format: str | None = None
    """In which all completions came; `mixed` where they differ."""


class Database:
    """The writer of one run.

    Args:
        store: the file.

    Attributes:
        events: what happened to the run.
        versions: of its mutator.
    """

    def __init__(self, store: Store):
        self._store = store
        self.events, self.versions = Events(store), Versions(store)
        with store.read() as connection:
            row = connection.execute(select(s.run)).one()
            self._objectives = list(connection.scalars(select(s.objective.c.name).order_by(s.objective.c.id)))
            self._seeds = _seeds(connection)
            self._evaluates = "metric" in set(connection.scalars(select(s.objective.c.kind)))
        search = row.options.get("search", {})
        self._completions, self._answers = int(search.get("completions", 1)), int(search.get("answers", 1))
        self._legacy = row.legacy_prompts

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
        make_folder(folder)
        unborn = folder / f"{FILE}.new"  # a kill here leaves no half of a database
        for left in folder.glob(f"{unborn.name}*"):
            left.unlink()
        with errors(path):
            engine = new_engine(unborn)
            migrate(engine)
            with engine.begin() as connection:
                connection.execute(
                    insert(s.run).values(
                        id=1,
                        problem=str(problem.path.resolve()),
                        problem_name=problem.name,
                        problem_digest=problem.digest,
                        problem_parts=dict(problem.parts),
                        options=dict(options),
                        seed=seed,
                        rng_state=rng_state,
                        status="running",
                        created=time.time(),
                        version=version("vector-evolve"),
                    )
                )
                rows = [{"id": i, "name": name, "kind": kind} for i, (name, kind) in enumerate(problem.dimensions)]
                if rows:
                    connection.execute(insert(s.objective), rows)
            engine.dispose()
            unborn.rename(path)
            return cls(Store(new_engine(path), path))

    @classmethod
    def open(cls, folder: Path) -> Database:
        """Open an existing run's database, brought up to date if it is older."""
        return cls(connect(folder / FILE))

    def close(self) -> None:
        """Close all connections."""
        self._store.close()

    def quarantine(self) -> list[str]:
        """Set aside the rows that can't be read any more; return a line for each. See `quarantine.py`."""
        return quarantine(self._store)

    def run(self) -> Row[Any]:
        """Return the row of the run."""
        with self._store.read() as connection:
            return connection.execute(select(s.run)).one()

    def set_status(self, status: str, reason: str = "") -> None:
        """Record how the run stands: running, finished or stopped."""
        with self._store.write() as connection:
            connection.execute(update(s.run).values(status=status, reason=reason))

    def set_options(self, options: Mapping[str, Any]) -> None:
        """Replace the run's options."""
        with self._store.write() as connection:
            connection.execute(update(s.run).values(options=dict(options)))

    def level(self) -> str | None:
        """Return the isolation of the run's scores, or None before the first."""
        query = select(s.program.c.level).where(s.program.c.level != IMPORTED).order_by(s.program.c.id).limit(1)
        with self._store.read() as connection:
            found: str | None = connection.execute(query).scalar()
        return found

    def best_fitness(self) -> float | None:
        """Return the fitness of the best program, or None before the first."""
        with self._store.read() as connection:
            found: float | None = connection.execute(select(func.max(s.program.c.fitness))).scalar()
        return found

    def read(self, question: Callable[[Connection], T]) -> T:
        """Answer a question that a reader of this database asks."""
        with self._store.read() as connection:
            return question(connection)

    def recent_prompts(self, last: int, count: int) -> list[Recent]:
        """Return the most recent prompts up to one, with the programs of their completions, retries left out."""
        with self._store.read() as connection:
            query = select(s.prompt).where(s.prompt.c.id <= last).order_by(s.prompt.c.id.desc()).limit(count)
            found = []
            for row in connection.execute(query):
                programs = (
                    select(s.completion.c.position, s.source.c.text)
                    .select_from(s.completion)
                    .outerjoin(s.program, s.program.c.completion_id == s.completion.c.id)
                    .outerjoin(s.source)
                    .where(s.completion.c.prompt_id == row.id, s.completion.c.retry_of.is_(None))
                    .order_by(s.completion.c.position, s.program.c.position)
                )
                sources: dict[int, list[str]] = {}
                for position, source in connection.execute(programs):
                    kept = sources.setdefault(position, [])
                    if source is not None:
                        kept.append(source)
                formats = select(s.completion.c.format).where(s.completion.c.prompt_id == row.id).distinct()
                named = list(connection.scalars(formats))
                kind = "mixed" if len(named) > 1 else next(iter(named), None)
                found.append(Recent(row.parent_id, row.messages, row.answers, row.seed, sorted(sources.items()), kind))
        return found

    def note_elapsed(self, seconds: float) -> None:
        """Record for how long the search ran so far, also where it brought nothing since the last completion."""
        with self._store.write() as connection:
            connection.execute(SET_ELAPSED, {"seconds": seconds})

    def initial_metrics(self) -> dict[str, Any] | None:
        """Return what the evaluator gave the first program, or None before it was scored."""
        first = select(s.program.c.metrics).where(s.program.c.status == "scored", s.program.c.metrics.is_not(None))
        with self._store.read() as connection:
            found = connection.execute(first.order_by(s.program.c.id).limit(1)).scalar()
        return None if found is None else dict(found["given"])

    def has_initial(self) -> bool:
        """Return whether a program that the run starts from has a score."""
        query = select(s.program.c.id).where(s.program.c.completion_id.is_(None), s.program.c.status == "scored").limit(1)
        with self._store.read() as connection:
            return connection.execute(query).first() is not None

    def outdate(self, problem: Problem, changes: Sequence[str]) -> int:
        """Set all scores aside, because the problem has changed; return its scoring version. See `outdated.py`."""
        version = outdate(self._store, problem, changes)
        self._objectives = [name for name, _ in problem.dimensions]
        return version

    def without_score(self) -> list[int]:
        """Return the programs to be scored anew: after a change of the problem, or the initial one that was set aside."""
        with self._store.read() as connection:
            found = waiting(connection)
        return found if found or self.has_initial() or not self._seeds else [1]

    def rescore(self, program: int, source: str, language: str, score: Score) -> None:
        """Give a program, and with it its twins, another score."""
        row = program_row(Answer(source), score, language)
        same = or_(s.program.c.id == program, s.program.c.duplicate_of == program)
        with self._store.write() as connection:
            connection.execute(update(s.program).where(same).values({name: row[name] for name in SCORE_COLUMNS}))
            self._vectors(connection, dict.fromkeys(connection.scalars(select(s.program.c.id).where(same)), row))

    def record_seed(self, source: str, language: str, score: Score, parent: int | None = None) -> int:
        """Record a program that the run starts from, the initial one first, and return its id."""
        identity = self._seeds + 1
        row = program_row(Answer(source), score, language)
        row |= {"id": identity, "position": 0, "generation": 0, "parent_id": parent}
        with self._store.write() as connection:
            insert_programs(connection, [row], [source])
            self._vectors(connection, {identity: row})
            self._seeds = identity
        return identity

    def record_prompt(self, prompt: NewPrompt, rng_state: Any) -> OpenPrompt:
        """Record a prompt and the generator's state after choosing it, in one transaction."""
        values = {
            "generation": prompt.generation,
            "position": prompt.position,
            "parent_id": prompt.parent,
            "inspirations": list(prompt.inspirations),
            "messages": list(prompt.messages),
            "completions": prompt.completions,
            "answers": prompt.answers,
            "seed": prompt.seed,
            "island": prompt.island,
            "retries": prompt.retries,
        }
        with self._store.write() as connection:
            connection.execute(SET_RNG, {"state": rng_state})
            identity = _inserted(connection, s.prompt, values)
        return _opened(identity, values, range(prompt.completions))

    def record_shortened(self, prompt: int, messages: Sequence[Message], reason: str) -> None:
        """Replace a prompt that was too long by what the model gets instead."""
        with self._store.write() as connection:
            connection.execute(update(s.prompt).where(s.prompt.c.id == prompt).values(messages=list(messages)))
            record_event(connection, "prompt-shortened", {"prompt": prompt, "reason": reason[:500]})

    def record_completion(
        self,
        prompt: OpenPrompt,
        position: int,
        mutator: int,
        completion: Completion,
        answers: Sequence[tuple[Answer, Score | None]],
        language: str,
        elapsed: float,
        edits: bool = False,
        retry_of: int | None = None,
    ) -> list[int]:
        """Record a completion with its programs in one transaction; return the programs' ids.

        Args:
            prompt: whose completion it is.
            position: in the group; retries have those from G on.
            mutator: id of the served name.
            completion: the reply.
            answers: its answers in order, with their scores.
            language: of the programs.
            elapsed: seconds that the search ran so far.
            edits: whether the reply held edits.
            retry_of: position of the completion that this one answers the error of.
        """
        values = {name: getattr(completion, name) for name in Completion.__slots__ if name != "mutator"}
        identity = self._completion_id(prompt, position)
        values |= {
            "id": identity,
            "prompt_id": prompt.id,
            "position": position,
            "mutator_id": mutator,
            "created": time.time(),
            "edits": edits,
            "retry_of": None if retry_of is None else self._completion_id(prompt, retry_of),
        }
        rows = []
        for index, (answer, score) in enumerate(answers):
            row = program_row(answer, score, language)
            row |= {
                "id": self._seeds + (identity - 1) * self._answers + index + 1,
                "position": index,
                "generation": prompt.generation,
                "completion_id": identity,
                "parent_id": prompt.parent,
            }
            rows.append(row)
        with self._store.write() as connection:
            connection.execute(INSERT[s.completion], values)
            connection.execute(SET_ELAPSED, {"seconds": elapsed})
            insert_programs(connection, rows, [answer.source for answer, score in answers if score is not None])
        return [row["id"] for row in rows]

    def _completion_id(self, prompt: OpenPrompt, position: int) -> int:
        """Return the id of a place in the search: G completions and as many retries to a prompt."""
        return int(2 * self._completions * (prompt.id - 1 + self._legacy) + position + 1)

    def commit(self, prompt: OpenPrompt) -> Committed:
        """Tell twins among a complete prompt's programs, give them their vectors, and return what the prompt brought.

        Prompts are committed in the order of their ids, each once.
        """
        with self._store.write() as connection:
            connection.execute(SET_TWINS, {"one": prompt.id})
            if self._evaluates:
                evaluated = connection.execute(EVALUATED, {"one": prompt.id})
                self._vectors(connection, {row.id: {"metrics": row.metrics} for row in evaluated})
            connection.execute(SET_COMMITTED, {"one": prompt.id})
            return committed(connection, prompt.id)

    def _vectors(self, connection: Connection, programs: Mapping[int, Mapping[str, Any]]) -> None:
        """Give evaluated programs their score vectors; an objective that is new gets the next place in them."""
        for identity, row in programs.items():
            if row["metrics"] is None:
                continue
            self._evaluates = True
            values = row["metrics"]["values"]
            for name in sorted(set(values) - set(self._objectives)):
                connection.execute(INSERT[s.objective], {"id": len(self._objectives), "name": name, "kind": "metric"})
                self._objectives.append(name)
            vector = [values.get(name) for name in self._objectives]
            connection.execute(update(s.program).where(s.program.c.id == identity).values(scores=vector))

    @property
    def objectives(self) -> Sequence[str]:
        """Names of the dimensions of score vectors so far."""
        return self._objectives

    def known(self, twin: str) -> Score | None:
        """Return the score of a recorded program with this fingerprint, or None."""
        with self._store.read() as connection:
            row = connection.execute(KNOWN, {"twin": twin}).first()
        return None if row is None else stored_score(row)

    def record_hidden(self, program: int, results: Sequence[TestResult]) -> None:
        """Record a program's results on the hidden tests."""
        with self._store.write() as connection:
            connection.execute(
                update(s.program)
                .where(s.program.c.id == program)
                .values(
                    hidden_verdicts=[result.verdict for result in results],
                    hidden_scores=[result.score for result in results],
                )
            )

    def score(self, program: int) -> Score:
        """Return a program's score."""
        with self._store.read() as connection:
            return stored_score(connection.execute(PROGRAM, {"one": program}).one())

    def source(self, program: int) -> str:
        """Return a program's text."""
        with self._store.read() as connection:
            return str(connection.execute(SOURCE, {"one": program}).scalar_one())

    def history(self) -> Iterator[Committed]:
        """Yield what the run started from, then what each committed prompt brought, in order."""
        with self._store.read() as connection:
            yield from seeds(connection)
            yield from history(connection)

    def open_prompts(self) -> list[OpenPrompt]:
        """Return the prompts that are not committed, as after a kill, in order."""
        with self._store.read() as connection:
            query = select(s.prompt).where(s.prompt.c.id > select(s.run.c.committed).scalar_subquery())
            opened = []
            for row in connection.execute(query.order_by(s.prompt.c.id)):
                recorded = connection.execute(_usable().where(s.completion.c.prompt_id == row.id))
                have = {one.position: one.programs for one in recorded}
                missing = [position for position in range(row.completions) if position not in have]
                if row.retries:  # the reply is there, its retry is not
                    size = self._completions
                    missing += [
                        size + position
                        for position, programs in sorted(have.items())
                        if position < size and not programs and size + position not in have
                    ]
                opened.append(_opened(row.id, row._asdict(), missing))
        return opened

    def completion(self, prompt: OpenPrompt, position: int) -> tuple[str, list[str]]:
        """Return the text of a recorded completion, and why each of its answers gave no program."""
        identity = self._completion_id(prompt, position)
        with self._store.read() as connection:
            text = connection.execute(select(s.completion.c.text).where(s.completion.c.id == identity)).scalar_one()
            reasons = select(s.program.c.reason).where(s.program.c.completion_id == identity).order_by(s.program.c.position)
            return str(text), list(connection.scalars(reasons))

    def solved(self) -> int | None:
        """Return the id of a program that passes every visible test, or None."""
        query = select(s.program.c.id).where(s.program.c.solved).order_by(s.program.c.id).limit(1)
        with self._store.read() as connection:
            found: int | None = connection.execute(query).scalar()
        return found

    def best(self) -> int | None:
        """Return the id of the best program, prompts that are not committed included, or None before the first."""
        with self._store.read() as connection:
            row = connection.execute(ranked(1)).first()
        return None if row is None else int(row.id)

    def totals(self) -> Totals:
        """Return what the run has used so far, prompts that are not committed included."""
        with self._store.read() as connection:
            return totals(connection)

    def last_format(self) -> Format | None:
        """Return the format of the last completion, or None before the first."""
        query = select(s.completion.c.format).order_by(s.completion.c.id.desc()).limit(1)
        with self._store.read() as connection:
            found: Format | None = connection.execute(query).scalar()
        return found


def _seeds(connection: Connection) -> int:
    """Count the programs that a run started from."""
    query = select(func.count()).select_from(s.program).where(s.program.c.completion_id.is_(None))
    return int(connection.execute(query).scalar_one())


def _usable() -> Any:
    """Select the position of completions, and how many of their answers gave a program."""
    return (
        select(s.completion.c.position, func.count(s.program.c.source_hash).label("programs"))
        .select_from(s.completion)
        .outerjoin(s.program, s.program.c.completion_id == s.completion.c.id)
        .group_by(s.completion.c.id)
    )


def _opened(identity: int, values: Mapping[str, Any], missing: Sequence[int]) -> OpenPrompt:
    return OpenPrompt(
        identity,
        values["generation"],
        values["parent_id"],
        values["messages"],
        values["completions"],
        values["answers"],
        values["seed"],
        values["island"],
        values["retries"],
        missing,
    )


def _inserted(connection: Connection, table: Table, values: Mapping[str, Any]) -> int:
    key = connection.execute(INSERT[table], values).inserted_primary_key
    assert key is not None
    return int(key[0])
