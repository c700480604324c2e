"""Several served models as one mutator: each prompt goes to one of them, drawn by weight."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from evolve.completion import Completion, Format, Message, Mutator


class Ensemble:
    """Draws a mutator for each prompt, by the prompt's seed.

    Args:
        mutators: at least one.
        weights: how often each is drawn, relative to the others.
    """

    def __init__(self, mutators: Sequence[Mutator], weights: Sequence[float]):
        self._mutators = list(mutators)
        total = sum(weights)
        self._shares = [weight / total for weight in weights]

    @property
    def name(self) -> str:
        """The served names."""
        return "+".join(mutator.name for mutator in self._mutators)

    @property
    def format(self) -> Format:
        """See `Mutator.format`; the first one's."""
        return self._mutators[0].format

    @property
    def room(self) -> int | None:
        """See `Mutator.room`; the smallest."""
        return min((room for mutator in self._mutators if (room := mutator.room) is not None), default=None)

    async def sample(self, messages: Sequence[Message], positions: Sequence[int], m: int, seed: int) -> list[Completion]:
        """See `Mutator.sample`."""
        index = int(np.random.default_rng(seed).choice(len(self._mutators), p=self._shares))
        return await self._mutators[index].sample(messages, positions, m, seed)
