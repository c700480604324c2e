"""What a run recorded, as files for others: its best program, all programs, or traces for reinforcement learning."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from sqlalchemy import select

from evolve import schema as s
from evolve.connection import reading
from evolve.files import writing
from evolve.outdated import OUTDATED


def traces(folder: Path) -> Iterator[dict[str, Any]]:
    """Yield one object per completion, failed ones too, in the order of the search.

    Keys: `prompt` (messages), `reply`, `prompt_token_ids`, `token_ids`, `logprobs` (null at tokens that the client wrote),
    `sampled`, `mutator`, `generation`, `prompt_id`, `completion_id`, `position`, `retry_of`, `wanted` (m), `finish_reason`,
    `temperature`, `objectives` (k names), `scores` ((m_i, k), zeros for a program that could not run, null where an
    evaluator gave no value or the problem has changed since), `statuses`, `verdicts`, `fitness`, `reasons` and
    `sources` (one entry per answer).
    """
    with reading(folder) as connection:
        names = list(connection.scalars(select(s.objective.c.name).order_by(s.objective.c.id)))
        query = (
            select(s.completion, s.prompt.c.messages, s.prompt.c.generation, s.mutator.c.name.label("mutator"))
            .join(s.prompt, s.completion.c.prompt_id == s.prompt.c.id)
            .join(s.mutator, s.completion.c.mutator_id == s.mutator.c.id)
            .order_by(s.completion.c.id)
        )
        for row in connection.execution_options(yield_per=200).execute(query):
            answers = connection.execute(
                select(s.program, s.source.c.text)
                .outerjoin(s.source)
                .where(s.program.c.completion_id == row.id)
                .order_by(s.program.c.position)
            ).all()
            yield {
                "prompt": row.messages,
                "reply": row.text,
                "prompt_token_ids": row.prompt_token_ids,
                "token_ids": row.token_ids,
                "logprobs": row.logprobs,
                "sampled": row.sampled,
                "mutator": row.mutator,
                "generation": row.generation,
                "prompt_id": row.prompt_id,
                "completion_id": row.id,
                "position": row.position,
                "retry_of": row.retry_of,
                "wanted": row.wanted,
                "finish_reason": row.finish_reason,
                "temperature": row.temperature,
                "objectives": names,
                "scores": [_vector(answer.scores, len(names), answer.status == OUTDATED) for answer in answers],
                "statuses": [answer.status for answer in answers],
                "verdicts": [answer.verdicts or [] for answer in answers],
                "fitness": [answer.fitness for answer in answers],
                "reasons": [answer.reason for answer in answers],
                "sources": [answer.text for answer in answers],
            }


def _vector(scores: list[float | None] | None, k: int, outdated: bool) -> list[float | None]:
    """Return a full vector: zeros without a score, null for objectives that came later, or all where it is outdated."""
    if outdated:
        return [None] * k
    return [0.0] * k if scores is None else [*scores, *([None] * (k - len(scores)))]


def write_traces(folder: Path, target: Path) -> int:
    """Write traces as JSON lines; return how many completions there are."""
    count = 0
    with writing(target) as file:
        for trace in traces(folder):
            file.write(json.dumps(trace, ensure_ascii=False) + "\n")
            count += 1
    return count


def programs(folder: Path) -> Iterator[tuple[int, str]]:
    """Yield id and source of every distinct program."""
    query = (
        select(s.program.c.id, s.source.c.text)
        .join(s.source)
        .where(s.program.c.duplicate_of.is_(None))
        .order_by(s.program.c.id)
    )
    with reading(folder) as connection:
        for row in connection.execution_options(yield_per=200).execute(query):
            yield row.id, row.text
