"""Which mutators a run sampled from."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from sqlalchemy import select

from evolve import schema as s
from evolve.connection import reading
from evolve.errors import BadInput


def behaviour(runs: Sequence[Path]) -> tuple[str, str | None, str | None]:
    """Return the base model of runs, and served name and adapter of the last mutator; None for both where runs differ in it.

    Raises:
        BadInput: a run has no completion yet, or the runs have different base models.
    """
    bases: dict[str, Path] = {}
    names: dict[str, str | None] = {}
    for run in runs:
        with reading(run) as connection:
            query = (
                select(s.mutator.c.model, s.mutator.c.name, s.mutator.c.adapter)
                .join(s.completion)
                .order_by(s.completion.c.id.desc())
                .limit(1)
            )
            row = connection.execute(query).first()
        if row is None:
            raise BadInput(f"{run} holds no completion yet, so there is nothing to train on.")
        bases[row.model] = run
        moved = run / "adapters" / Path(row.adapter).name if row.adapter else None
        names[row.name] = str(moved) if moved is not None and not Path(row.adapter).is_dir() else row.adapter
    if len(bases) > 1:
        known = ", ".join(f"{run} from {model}" for model, run in bases.items())
        raise BadInput(f"The runs sampled from different base models: {known}. Train on runs of one.")
    if len(names) > 1:
        return next(iter(bases)), None, None
    ((name, adapter),) = names.items()
    return next(iter(bases)), name, adapter
