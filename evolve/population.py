"""The programs that the search can still use: islands, each a bounded archive of elites by cell (MAP-Elites).

A cell is the set of visible tests that a program passes (the signature that FunSearch's clusters use; for 0/1 scores this
keeps everything that lexicase selection could ever choose), or a place in a grid of features, by OpenEvolve's names.
Adding costs the same however many programs the run has seen. All is a function of the programs in the order in which
they are added.
"""

from __future__ import annotations

import bisect
from collections.abc import Hashable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from evolve.metrics import numeric

REFERENCES = 20
"""Programs with which the diversity of another one is measured: the first of the run that differ."""


@dataclass(frozen=True, slots=True)
class Shape:
    """How a population is built.

    Attributes:
        islands: how many.
        capacity: elites over all islands.
        archive: size of the archive of the fittest of all islands.
        migration_interval: candidates that an island sees between two migrations.
        migration_rate: share of an island's elites that migrate, the fittest first, at least one.
        features: dimensions of the grid: `complexity` (characters), `diversity`, `score` (fitness), or a metric's name; none
            for the pass/fail signature.
        bins: of each dimension, or by dimension.
        stagnation: candidates without a better best after which an island starts again from the best of the others; None
            for never.
    """

    islands: int = 1
    capacity: int = 500
    archive: int = 100
    migration_interval: int = 50
    migration_rate: float = 0.1
    features: tuple[str, ...] = ()
    bins: int | Mapping[str, int] = 10
    stagnation: int | None = None


@dataclass(frozen=True, slots=True, eq=False)
class Member:
    """A program that ran.

    Attributes:
        id: row in the database.
        source: its text.
        scores: (k,) float array, one per objective, higher is better; NaN where it has no value.
        fitness: one number for elites.
        metrics: of an evaluator, for features.
        solved: whether it passes every visible test.
    """

    id: int
    source: str
    scores: NDArray[np.float64]
    fitness: float
    metrics: Mapping[str, Any] = field(default_factory=dict)
    solved: bool = False

    @property
    def signature(self) -> bytes:
        """Which tests it passes."""
        return np.packbits(self.scores >= 1.0).tobytes()

    @property
    def rank(self) -> tuple[bool, float, int, int]:
        """The order of programs everywhere (`history.BETTER`): solved, fitness, then the shorter source, then the older."""
        return (self.solved, self.fitness, -len(self.source), -self.id)

    def better_than(self, other: Member) -> bool:
        """Compare by rank."""
        return self.rank > other.rank


class Grid:
    """Finds a program's cell. Bins spread over the values seen so far, as OpenEvolve's do.

    Args:
        shape: features and bins.
    """

    def __init__(self, shape: Shape):
        self._shape = shape
        self._ranges: dict[str, tuple[float, float]] = {}
        self._references: list[frozenset[str]] = []

    def cell(self, member: Member) -> Hashable:
        """Return the cell; None for a program that lacks a feature, which then is no elite of any cell."""
        if not self._shape.features:
            return member.signature
        place = []
        for name in self._shape.features:
            value = self._feature(name, member)
            if value is None:
                return None
            low, high = self._ranges.get(name, (value, value))
            low, high = self._ranges[name] = (min(low, value), max(high, value))
            bins = self._bins(name)
            place.append(min(bins - 1, int(bins * (value - low) / (high - low))) if high > low else 0)
        return tuple(place)

    def _bins(self, name: str) -> int:
        bins = self._shape.bins
        return max(1, bins if isinstance(bins, int) else bins.get(name, 10))

    def _feature(self, name: str, member: Member) -> float | None:
        metrics = numeric(member.metrics)
        if name in metrics:
            return metrics[name]
        if name == "complexity":
            return float(len(member.source))
        if name == "score":
            return member.fitness
        return self._diversity(member) if name == "diversity" else None

    def _diversity(self, member: Member) -> float:
        """Return the mean share of lines (Jaccard distance) in which a program differs from the references."""
        lines = frozenset(line.strip() for line in member.source.splitlines())
        if len(self._references) < REFERENCES and lines not in self._references:
            self._references.append(lines)
        distances = [1 - len(lines & other) / max(1, len(lines | other)) for other in self._references if other != lines]
        return sum(distances) / len(distances) if distances else 0.0


class Island:
    """A bounded archive of elites by cell. A full one drops its worst."""

    def __init__(self, capacity: int):
        self._capacity = capacity
        self._cells: dict[Hashable, Member] = {}
        self._by_rank: list[tuple[tuple[bool, float, int, int], Hashable]] = []
        self.seen = self.since_better = 0
        self.best: Member | None = None

    def __len__(self) -> int:
        return len(self._cells)

    def __iter__(self) -> Iterator[Member]:
        return iter(self._cells.values())

    def add(self, member: Member, cell: Hashable) -> bool:
        """Offer a program; return whether it is an elite."""
        if self.best is None or member.better_than(self.best):
            self.best, self.since_better = member, 0
        elite = self._cells.get(cell)
        if elite is not None and not member.better_than(elite):
            return False
        if elite is not None:
            del self._by_rank[bisect.bisect_left(self._by_rank, elite.rank, key=_rank)]
        self._cells[cell] = member
        bisect.insort(self._by_rank, (member.rank, cell), key=_rank)
        if len(self._cells) > self._capacity:
            _, worst = self._by_rank.pop(0)
            del self._cells[worst]
        return self._cells.get(cell) is member

    def clear(self) -> None:
        """Forget all elites."""
        self._cells.clear()
        self._by_rank.clear()
        self.best, self.since_better = None, 0


def _rank(entry: tuple[tuple[bool, float, int, int], Hashable]) -> tuple[bool, float, int, int]:
    return entry[0]


class Population:
    """All islands of a run, and an archive of the fittest programs.

    Args:
        shape: how it is built.
    """

    def __init__(self, shape: Shape | None = None):
        self._shape = shape or Shape()
        self.islands = [Island(max(1, self._shape.capacity // self._shape.islands)) for _ in range(self._shape.islands)]
        self._grid = Grid(self._shape)
        self._archive: list[Member] = []
        self._initial: Member | None = None
        self._migrated = 0

    def __len__(self) -> int:
        return len({member.id for island in self.islands for member in island})

    @property
    def best(self) -> Member | None:
        """The best program seen."""
        return self._archive[-1] if self._archive else None

    @property
    def initial(self) -> Member | None:
        """The initial program."""
        return self._initial

    @property
    def archive(self) -> Sequence[Member]:
        """The fittest programs of all islands, the best last."""
        return self._archive

    def members(self, island: int = 0) -> list[Member]:
        """Return the initial program and an island's elites, ordered by id."""
        kept = {member.id: member for member in self.islands[island]}
        if self._initial is not None:
            kept[self._initial.id] = self._initial
        return [kept[key] for key in sorted(kept)]

    def seed(self, member: Member) -> None:
        """Add a program that the run starts from, the initial one first, to every island."""
        if self._initial is None:
            self._initial = member
        self._archived(member)
        cell = self._grid.cell(member)
        for island in self.islands:
            self._placed(member, island, cell)

    def add(self, member: Member, island: int = 0) -> bool:
        """Offer a program to an island; return whether it is an elite."""
        self._archived(member)
        return self._placed(member, self.islands[island], self._grid.cell(member))

    def _placed(self, member: Member, island: Island, cell: Hashable) -> bool:
        return cell is not None and island.add(member, cell)

    def _archived(self, member: Member) -> None:
        size = max(1, self._shape.archive)
        if len(self._archive) < size or member.better_than(self._archive[0]):
            bisect.insort(self._archive, member, key=lambda one: one.rank)
            if len(self._archive) > size:
                del self._archive[0]

    def advance(self, island: int, candidates: int) -> None:
        """Count candidates that an island has seen; migrate and restart when it is time."""
        here = self.islands[island]
        here.seen += candidates
        here.since_better += candidates
        limit = self._shape.stagnation
        if limit is not None and here.since_better >= limit and len(self.islands) > 1:
            self._restart(island)
        if len(self.islands) > 1:
            due = max(island.seen for island in self.islands) // max(1, self._shape.migration_interval)
            if due > self._migrated:
                self._migrated = due
                self._migrate()

    def _migrate(self) -> None:
        """Copy the fittest elites of each island to the next one of the ring."""
        leaving = []
        for island in self.islands:
            elites = sorted(island, key=lambda member: member.rank, reverse=True)
            leaving.append(elites[: max(1, round(len(elites) * self._shape.migration_rate))])
        for number, migrants in enumerate(leaving):
            for member in migrants:
                self._placed(member, self.islands[(number + 1) % len(self.islands)], self._grid.cell(member))

    def _restart(self, stagnant: int) -> None:
        """Empty an island that doesn't get better, and give it the best of each other one."""
        founders = [
            island.best for number, island in enumerate(self.islands) if number != stagnant and island.best is not None
        ]
        here = self.islands[stagnant]
        here.clear()
        for member in founders:
            self._placed(member, here, self._grid.cell(member))
        here.since_better = 0
