"""How a search came along: best fitness and solution against candidates and tokens, from a run's database."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from sqlalchemy import select

from evolve import schema as s
from evolve.connection import reading


@dataclass(frozen=True, slots=True)
class Trace:
    """One search.

    Attributes:
        candidates, tokens: spent when the best fitness rose, ascending; sampled tokens of whole completions.
        best: the best fitness from then on.
        solved_at: candidates spent when a program passed every visible test, or None.
        solved_tokens: tokens spent then, or None.
        confirmed: whether the best program passes the hidden tests as well.
        all_candidates, all_tokens: spent in all.
    """

    candidates: list[int]
    tokens: list[int]
    best: list[float]
    solved_at: int | None
    solved_tokens: int | None
    confirmed: bool
    all_candidates: int
    all_tokens: int

    def best_at(self, candidates: int) -> float:
        """Return the best fitness after so many candidates; 0 before the first."""
        reached = [value for spent, value in zip(self.candidates, self.best, strict=True) if spent <= candidates]
        return reached[-1] if reached else 0.0


def trace(run: Path) -> Trace:
    """Read a run.

    Raises:
        BadInput: no run.
        DatabaseError: it can't be read.
    """
    with reading(run) as connection:
        rows = connection.execute(
            select(s.program.c.fitness, s.program.c.solved, s.program.c.completion_id, s.completion.c.completion_tokens)
            .join(s.completion)
            .order_by(s.program.c.completion_id, s.program.c.position)
        ).all()
        seed = connection.execute(select(s.program.c.fitness).where(s.program.c.completion_id.is_(None))).first()
        ended = connection.scalars(select(s.event.c.data).where(s.event.c.kind == "end").order_by(s.event.c.id)).all()
    best = float(seed.fitness) if seed is not None and seed.fitness is not None else 0.0
    candidates, tokens, values = [0], [0], [best]
    solved_at = solved_tokens = None
    spent, last = 0, None
    for count, row in enumerate(rows, start=1):
        if row.completion_id != last:
            spent, last = spent + row.completion_tokens, row.completion_id
        if row.fitness is not None and row.fitness > best:
            best = float(row.fitness)
            candidates.append(count)
            tokens.append(spent)
            values.append(best)
        if row.solved and solved_at is None:
            solved_at, solved_tokens = count, spent
    confirmed = bool(ended and ended[-1].get("confirmed"))
    return Trace(candidates, tokens, values, solved_at, solved_tokens, confirmed, len(rows), spent)
