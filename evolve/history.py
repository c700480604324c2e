"""What recorded rows mean to the search: members of its population, and what each prompt brought, in their order."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from sqlalchemy import Connection, Row, Select, bindparam, func, select

from evolve import schema as s
from evolve.population import Member

BETTER = (s.program.c.solved.desc(), s.program.c.fitness.desc(), func.length(s.source.c.text), s.program.c.id)
"""The order of programs everywhere: solved, fitness, then the shorter source, then the older. See `Member.rank`."""


def ranked(count: int) -> Select[Any]:
    """Select the best distinct programs that ran, with their sources."""
    return (
        select(s.program, s.source.c.text)
        .join(s.source)
        .where(s.program.c.status == "scored", s.program.c.duplicate_of.is_(None))
        .order_by(*BETTER)
        .limit(count)
    )


@dataclass(frozen=True, slots=True)
class Committed:
    """What a committed prompt, or a program that the run started from, brought."""

    prompt: int | None
    generation: int
    island: int
    members: Sequence[Member]
    """Its distinct programs that ran."""
    solved: Sequence[int]
    """Ids of those that pass every visible test."""
    candidates: int
    unusable: int
    duplicates: int
    completion_tokens: int
    prompt_tokens: int
    edited: int
    """Answers of replies that held edits."""
    failed_edits: int


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


def seeds(connection: Connection) -> Iterator[Committed]:
    """Yield the programs that the run started from, the initial one first."""
    query = _members().where(s.program.c.completion_id.is_(None)).order_by(s.program.c.id)
    for row in connection.execute(query):
        members = [_member(row)] if row.status == "scored" else []
        yield Committed(None, 0, 0, members, [row.id] if row.solved else [], 0, 0, 0, 0, 0, 0, 0)


def oldest(twin: Any) -> Select[Any]:
    """Select the id of the first program with a fingerprint."""
    other = s.program.alias()
    return select(func.min(other.c.id)).where(other.c.fingerprint == twin)


def _members() -> Select[Any]:
    """Select what the population and the totals need of programs."""
    columns = ("id", "status", "fitness", "solved", "scores", "metrics", "duplicate_of", "completion_id")
    return select(*(s.program.c[name] for name in columns), s.source.c.text).outerjoin(s.source)


def _of_prompts(condition: Any) -> tuple[Select[Any], Select[Any]]:
    """Select the programs of some prompts, and the prompts with their tokens, in their order."""
    programs = (
        _members()
        .add_columns(s.completion.c.prompt_id, s.completion.c.edits)
        .join(s.completion, s.program.c.completion_id == s.completion.c.id)
        .where(condition(s.completion.c.prompt_id))
        .order_by(s.completion.c.prompt_id, s.program.c.id)
    )
    prompts = (
        select(
            s.prompt.c.id,
            s.prompt.c.generation,
            s.prompt.c.island,
            func.coalesce(func.sum(s.completion.c.completion_tokens), 0).label("completion_tokens"),
            func.coalesce(func.sum(s.completion.c.prompt_tokens), 0).label("prompt_tokens"),
        )
        .join(s.completion, s.completion.c.prompt_id == s.prompt.c.id)
        .where(condition(s.prompt.c.id))
        .group_by(s.prompt.c.id)
        .order_by(s.prompt.c.id)
    )
    return programs, prompts


ONE = _of_prompts(lambda prompt: prompt == bindparam("one"))
ALL = _of_prompts(lambda prompt: prompt <= select(s.run.c.committed).scalar_subquery())


def committed(connection: Connection, prompt: int) -> Committed:
    """Return what one prompt brought."""
    programs, prompts = (connection.execute(query, {"one": prompt}).all() for query in ONE)
    return _brought(prompts[0], programs)


def history(connection: Connection) -> Iterator[Committed]:
    """Yield what all committed prompts brought, in their order."""
    programs = iter(connection.execution_options(yield_per=1000).execute(ALL[0]))
    row = next(programs, None)
    for prompt in connection.execute(ALL[1]).all():
        mine = []
        while row is not None and row.prompt_id == prompt.id:
            mine.append(row)
            row = next(programs, None)
        yield _brought(prompt, mine)


def _brought(prompt: Row[Any], programs: Sequence[Row[Any]]) -> Committed:
    ran = [one for one in programs if one.status == "scored" and one.duplicate_of is None]
    return Committed(
        prompt.id,
        prompt.generation,
        prompt.island,
        [_member(one) for one in ran],
        [one.id for one in ran if one.solved],
        len(programs),
        sum(one.status == "unusable" for one in programs),
        sum(one.duplicate_of is not None for one in programs),
        prompt.completion_tokens,
        prompt.prompt_tokens,
        sum(one.edits for one in programs),
        sum(one.edits and one.status == "unusable" for one in programs),
    )


def _member(row: Row[Any]) -> Member:
    scores = np.array([np.nan if value is None else value for value in row.scores], dtype=float)
    return Member(row.id, row.text, scores, row.fitness, {} if row.metrics is None else row.metrics["given"], row.solved)
