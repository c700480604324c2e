"""Groups of rollouts from a run's database: what the search sampled is what the mutator is trained on, nothing is repeated.

A group is the completions of one prompt. Score vectors are mapped to [0, 1] (`Scale`). An answer without a program, or
whose program could not run, has the vector of zeros.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from sqlalchemy import Connection, select

from evolve import problem as problems
from evolve import schema as s
from evolve.connection import reading
from evolve.directions import COMBINED
from evolve.errors import BadInput
from evolve.outdated import OUTDATED
from mutator_training.simplex import Array


@dataclass(frozen=True, slots=True, eq=False)
class Rollout:
    """One completion as sampled.

    Attributes:
        completion: row in the database.
        token_ids: (n,) of the completion, frames of the scaffold included.
        logprobs: (n,) under the behaviour policy; 0 at frame tokens.
        sampled: (n,) False at frame tokens, which are not the policy's.
        scores: (m_i, k) in [0, 1], a row per answer; (0, k) when there is no usable answer.
        cut: whether it ended at the token limit.
        owner: (n,) for each token the row of `scores` whose answer it belongs to, -1 where it belongs to none; None where
            that is not known, as in the plain format.
    """

    completion: int
    token_ids: np.ndarray[Any, np.dtype[np.int64]]
    logprobs: Array
    sampled: np.ndarray[Any, np.dtype[np.bool_]]
    scores: Array
    cut: bool
    owner: np.ndarray[Any, np.dtype[np.int64]] | None = None


@dataclass(frozen=True, slots=True, eq=False)
class Group:
    """The completions of one prompt.

    Attributes:
        prompt: row in the database.
        generation: of the search.
        mutator: served name of the behaviour policy.
        prompt_ids: (p,) tokens of the prompt.
        rollouts: at least two.
        answers: m, the number of answers asked for.
    """

    prompt: int
    generation: int
    mutator: str
    prompt_ids: np.ndarray[Any, np.dtype[np.int64]]
    rollouts: Sequence[Rollout]
    answers: int
    temperature: float = 1.0
    """Of the sampling, under which the log-probabilities are."""
    fitness: int | None = None
    """The objective that is the fitness by itself (`combined_score`); None where that is the mean of all."""

    @property
    def matrices(self) -> list[Array]:
        """The score matrices, one per completion."""
        return [rollout.scores for rollout in self.rollouts]


@dataclass(frozen=True, slots=True)
class Selection:
    """Which rollouts are taken.

    Attributes:
        after: only prompts with a greater id, such as the last one of the refresh before.
        mutator: only completions of this served name; None takes every one (off-policy).
        keep_cut: whether completions that ended at the token limit are taken.
        tests: how many of the objectives, the first ones, the score vectors have; None for all.
    """

    after: int = 0
    mutator: str | None = None
    keep_cut: bool = True
    tests: int | None = None


@dataclass(frozen=True, slots=True, eq=False)
class Rollouts:
    """What was taken of a run.

    Attributes:
        groups: in the order of prompts.
        left_out: completions that were not taken, by reason.
    """

    groups: Sequence[Group]
    left_out: Mapping[str, int]


def groups(folder: Path, selection: Selection | None = None) -> Rollouts:
    """Return the groups of a run's committed prompts.

    Raises:
        BadInput: no run, or none of its completions has token ids and log-probabilities.
        DatabaseError: it can't be read.
    """
    wanted = selection or Selection()
    with reading(folder) as connection:
        scale = Scale.of(connection)
        found, left_out = _read(connection, wanted, scale)
    if not found and left_out.get("no token ids"):
        raise BadInput(
            f"{folder} has no token ids, so no mutator can be trained from it. They come from vLLM: search with a managed "
            "server, or with --base-url of a vLLM server."
        )
    return Rollouts(found, left_out)


def _read(connection: Connection, wanted: Selection, scale: Scale) -> tuple[list[Group], dict[str, int]]:
    prompts = connection.execute(
        select(s.prompt.c.id, s.prompt.c.generation, s.prompt.c.answers)
        .where(s.prompt.c.id > wanted.after, s.prompt.c.id <= select(s.run.c.committed).scalar_subquery())
        .order_by(s.prompt.c.id)
    ).all()
    found: list[Group] = []
    left_out: dict[str, int] = {}

    def leave_out(reason: str, count: int = 1) -> None:
        left_out[reason] = left_out.get(reason, 0) + count

    for prompt in prompts:
        rows = connection.execute(
            select(s.completion, s.mutator.c.name.label("mutator"))
            .join(s.mutator)
            .where(s.completion.c.prompt_id == prompt.id)
            .order_by(s.completion.c.position)
        ).all()
        by_policy: dict[tuple[str, float, tuple[int, ...]], list[Rollout]] = {}
        for row in rows:
            if row.retry_of is not None:
                leave_out("a retry, which is no member of the group")
            elif row.token_ids is None or row.logprobs is None or row.prompt_token_ids is None:
                leave_out("no token ids")
            elif wanted.mutator is not None and row.mutator != wanted.mutator:
                leave_out("of another mutator")
            elif row.finish_reason == "length" and not wanted.keep_cut:
                leave_out("cut at the token limit")
            elif not row.token_ids:
                leave_out("empty")
            elif row.temperature <= 0:
                leave_out("sampled greedily, which is no distribution to learn under (temperature 0)")
            else:
                usable = _usable(connection, row.id)
                if any(one.status == OUTDATED for one in usable):
                    leave_out("scored before the problem changed")
                    continue
                scores = scale.apply([one.scores if one.status == "scored" else None for one in usable])
                rollout = _rollout(row, scores[:, : wanted.tests], [one.position for one in usable])
                by_policy.setdefault((row.mutator, row.temperature, tuple(row.prompt_token_ids)), []).append(rollout)
        for (name, temperature, ids), rollouts in by_policy.items():
            if len(rollouts) < 2:
                leave_out("alone in its group", len(rollouts))
                continue
            fitness = scale.fitness if scale.fitness is None or scale.fitness < (wanted.tests or scale.k) else None
            found.append(
                Group(prompt.id, prompt.generation, name, np.array(ids), rollouts, prompt.answers, temperature, fitness)
            )
    return found, left_out


def _usable(connection: Connection, completion: int) -> Sequence[Any]:
    """Return the usable answers of a completion in their order: position, status and scores."""
    query = (
        select(s.program.c.position, s.program.c.status, s.program.c.scores)
        .where(s.program.c.completion_id == completion, s.program.c.status != "unusable")
        .order_by(s.program.c.position)
    )
    return connection.execute(query).all()


def owners(sampled: np.ndarray[Any, np.dtype[np.bool_]], positions: Sequence[int]) -> np.ndarray[Any, np.dtype[np.int64]]:
    """Return which answer each token of a scaffold belongs to, (n,).

    Args:
        sampled: (n,) False at the frames, which part the answers.
        positions: of the usable answers, in the order of their scores.
    """
    begins = sampled & ~np.concatenate([[False], sampled[:-1]])
    segment = np.cumsum(begins) - 1
    rows = {position: row for row, position in enumerate(positions)}
    return np.array([rows.get(int(at), -1) if own else -1 for at, own in zip(segment, sampled, strict=True)], dtype=np.int64)


def _rollout(row: Any, scores: Array, positions: Sequence[int]) -> Rollout:
    ids = np.array(row.token_ids, dtype=np.int64)
    sampled = np.ones(len(ids), dtype=bool) if row.sampled is None else np.array(row.sampled, dtype=bool)
    logprobs = np.array([0.0 if value is None else value for value in row.logprobs], dtype=np.float64)
    owner = None if row.sampled is None else owners(sampled, positions)
    return Rollout(row.id, ids, logprobs, sampled, scores, row.finish_reason == "length", owner)


SCALE = "scale"
"""Kind of the events that hold a run's scale."""

VALID = 1 / 16
"""The least that an objective of an evaluator is worth in a program that ran; one that did not has 0."""

MOST_VALUES = 257
"""Of an objective, kept for its ranks."""


@dataclass(frozen=True, slots=True, eq=False)
class Scale:
    """Maps score vectors to [0, 1].

    Scores of tests are what they are. An evaluator's objectives are mapped by problem.yaml's scale, else as they are where
    the run saw only values in [0, 1], else by their rank among the run's valid programs; and from there to [`VALID`, 1], so
    that every program that ran is worth more than one that did not.

    Attributes:
        k: objectives.
        seen: per objective sorted values of the run's valid programs; None where the scores are those of tests.
        scales: per objective the values that map to 0 and 1.
        fitness: the place of `combined_score`, which is the fitness, or None.
        version: of this scale in its run, from 1; 0 where nothing is recorded.
    """

    k: int
    seen: Sequence[Array] | None
    scales: Mapping[int, tuple[float, float]]
    fitness: int | None = None
    version: int = 0

    @classmethod
    def of(cls, connection: Connection) -> Scale:
        """Return a run's scale: the recorded one, so that a value is worth the same from refresh to refresh."""
        events = select(s.event.c.data).where(s.event.c.kind == SCALE).order_by(s.event.c.id.desc()).limit(1)
        recorded = connection.execute(events).scalar()
        names = _objectives(connection)
        if recorded is None or recorded["k"] != len(names):
            return cls.current(connection)
        seen = [np.array(values, dtype=np.float64) for values in recorded["seen"]]
        return cls._made(connection, names, seen, recorded["version"])

    @classmethod
    def current(cls, connection: Connection) -> Scale:
        """Return the scale that a run's programs so far give."""
        names = _objectives(connection)
        metric = select(s.objective.c.id).where(s.objective.c.kind == "metric").limit(1)
        if connection.execute(metric).first() is None:
            return cls(len(names), None, {})
        rows = connection.scalars(
            select(s.program.c.scores)
            .where(s.program.c.status == "scored", s.program.c.duplicate_of.is_(None), s.program.c.scores.is_not(None))
            .order_by(s.program.c.id)
        )
        matrix = np.array([_padded(row, len(names)) for row in rows], dtype=np.float64).reshape(-1, len(names))
        return cls._made(connection, names, [_kept(np.sort(column[~np.isnan(column)])) for column in matrix.T], 0)

    @classmethod
    def _made(cls, connection: Connection, names: Sequence[str], seen: Sequence[Array], version: int) -> Scale:
        run = connection.execute(select(s.run)).one()
        problem = problems.load(Path(run.problem), **run.options.get("place", {}))
        fitness = names.index(COMBINED) if COMBINED in names else None
        return cls(len(names), seen, problem.scales(names), fitness, version)

    def outgrown_by(self, current: Scale) -> bool:
        """Return whether a run has left the range that this scale was made of, so that it needs a new version."""
        if self.seen is None or current.seen is None:
            return False
        if self.k != current.k:
            return True
        return any(
            len(new) and (not len(old) or new[0] < old[0] or new[-1] > old[-1])
            for old, new in zip(self.seen, current.seen, strict=True)
        )

    def recorded(self, version: int) -> dict[str, Any]:
        """Return what an event keeps of it."""
        return {"version": version, "k": self.k, "seen": [values.tolist() for values in self.seen or ()]}

    def apply(self, rows: Sequence[Sequence[float | None] | None]) -> Array:
        """Return the (m, k) matrix in [0, 1] of recorded vectors; zeros for None."""
        matrix = np.zeros((len(rows), self.k))
        for place, row in enumerate(rows):
            if row is None:
                continue
            vector = np.array(_padded(row, self.k), dtype=np.float64)
            matrix[place] = vector if self.seen is None else self._unit(vector)
        return np.clip(matrix, 0.0, 1.0)

    def _unit(self, vector: Array) -> Array:
        """Map one vector of the run as `evolve.selection.to_unit` maps it among all valid programs, and above `VALID`."""
        assert self.seen is not None
        unit = np.zeros(self.k)
        for place, (value, seen) in enumerate(zip(vector, self.seen, strict=True)):
            if np.isnan(value) or not len(seen):
                continue
            if place in self.scales:
                low, high = self.scales[place]
                share = (value - low) / (high - low)
            elif seen[0] >= 0.0 and seen[-1] <= 1.0:
                share = value
            elif seen[0] == seen[-1]:
                share = 1.0
            else:
                left, right = np.searchsorted(seen, value, "left"), np.searchsorted(seen, value, "right")
                share = (left + right - 1) / 2 / (len(seen) - 1)
            unit[place] = VALID + (1 - VALID) * min(max(share, 0.0), 1.0)
        return unit


def _objectives(connection: Connection) -> list[str]:
    return list(connection.scalars(select(s.objective.c.name).order_by(s.objective.c.id)))


def _kept(values: Array) -> Array:
    """Return sorted values, thinned out where they are many, the least and the greatest kept."""
    if len(values) <= MOST_VALUES:
        return values
    kept: Array = values[np.linspace(0, len(values) - 1, MOST_VALUES).round().astype(int)]
    return kept


def _padded(row: Sequence[float | None], k: int) -> list[float]:
    values = [np.nan if value is None else float(value) for value in row]
    return values + [np.nan] * (k - len(values))
