"""The programs that the search can still use: one elite per pass/fail signature, bounded.

The cell of a program is the set of visible tests that it passes (the signature that FunSearch's clusters use). For 0/1
scores this keeps everything that lexicase selection could ever choose.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

CAPACITY = 500


@dataclass(frozen=True, slots=True, eq=False)
class Member:
    """A program that ran.

    Attributes:
        id: row in the database.
        source: its text.
        scores: (k,) float array in [0, 1], one per objective, higher is better.
        fitness: mean of the scores.
    """

    id: int
    source: str
    scores: NDArray[np.float64]
    fitness: float

    @property
    def cell(self) -> bytes:
        """The pass/fail signature."""
        return np.packbits(self.scores >= 1.0).tobytes()

    def better_than(self, other: Member) -> bool:
        """Order elites: fitness, then the shorter source, then the older program."""
        return (self.fitness, -len(self.source), -self.id) > (other.fitness, -len(other.source), -other.id)


class Population:
    """A bounded archive of elites by cell. Adding costs the same however many programs the run has seen."""

    def __init__(self, capacity: int = CAPACITY):
        self._capacity = capacity
        self._cells: dict[bytes, Member] = {}
        self._best: Member | None = None
        self._initial: Member | None = None

    def __len__(self) -> int:
        return len(self._cells)

    def __iter__(self) -> Iterator[Member]:
        return iter(self._cells.values())

    @property
    def members(self) -> list[Member]:
        """The initial program and the elites, ordered by id, so that the order of arrival never matters."""
        kept = {member.id: member for member in self._cells.values()}
        if self._initial is not None:
            kept[self._initial.id] = self._initial
        return [kept[key] for key in sorted(kept)]

    @property
    def best(self) -> Member | None:
        """The best program seen."""
        return self._best

    def add(self, member: Member) -> bool:
        """Offer a program, the initial one first; return whether it is an elite. A full archive drops its worst."""
        if self._initial is None:
            self._initial = member
        if self._best is None or member.better_than(self._best):
            self._best = member
        elite = self._cells.get(member.cell)
        if elite is not None and not member.better_than(elite):
            return False
        self._cells[member.cell] = member
        if len(self._cells) > self._capacity:
            worst = min(self._cells.values(), key=lambda elite: (elite.fitness, -len(elite.source), -elite.id))
            del self._cells[worst.cell]
        return self._cells.get(member.cell) is member
