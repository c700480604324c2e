"""A mutator that gives what another run recorded: the same search again, bit for bit, without a model."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from sqlalchemy import select

from evolve import schema as s
from evolve.completion import Completion, Format, Message
from evolve.connection import FILE, connect
from evolve.errors import MutatorError


class ReplayMutator:
    """Answers each prompt with the completions that a recorded run has for its seed.

    Args:
        folder: of the recorded run.

    Raises:
        BadInput: it is no run.
    """

    def __init__(self, folder: Path):
        self._folder = folder
        self._store = connect(folder / FILE, read_only=True)
        self.format: Format = "plain"
        self.room: int | None = None

    @property
    def name(self) -> str:
        """The recorded run."""
        return f"replay of {self._folder.name}"

    async def sample(self, messages: Sequence[Message], positions: Sequence[int], m: int, seed: int) -> list[Completion]:
        """See `Mutator.sample`.

        Raises:
            MutatorError: the recorded run has no such completion, so this one has taken another way.
        """
        del messages
        query = (
            select(s.completion, s.mutator.c.name.label("mutator"))
            .join(s.prompt, s.completion.c.prompt_id == s.prompt.c.id)
            .join(s.mutator, s.completion.c.mutator_id == s.mutator.c.id)
            .where(s.prompt.c.seed == seed)
        )
        with self._store.read() as connection:
            rows = {row.position: row for row in connection.execute(query)}
        missing = [position for position in positions if position not in rows]
        if missing:
            raise MutatorError(
                f"{self._folder} has no completion {missing[0]} for the seed {seed}: it ended earlier, or this run has "
                "other options. A replay needs the same problem, seed and options, and no larger budget."
            )
        return [
            Completion(**{name: getattr(rows[position], name) for name in Completion.__slots__}) for position in positions
        ]

    def close(self) -> None:
        """Close the recorded run."""
        self._store.close()
