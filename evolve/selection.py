"""Parent selection: pure functions from a pool of programs and a generator to one parent. A dict, not a registry."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from evolve.population import Member

DOWN_SAMPLE = 0.5
"""Share of the objectives that one lexicase selection looks at (down-sampled lexicase, Hernandez et al. 2019)."""


@dataclass(frozen=True, slots=True)
class Ratios:
    """Of the policy `openevolve`, by its config's names.

    Attributes:
        exploration: share of parents taken uniformly from the island.
        exploitation: share of parents taken from the archive; the rest is taken from the island by fitness.
        elite: share of the programs shown beside the parent that are the island's best.
    """

    exploration: float = 0.2
    exploitation: float = 0.7
    elite: float = 0.1


@dataclass(frozen=True, slots=True)
class Pool:
    """What a parent is chosen from.

    Attributes:
        members: the initial program and an island's elites, ordered by id; at least one.
        archive: the fittest of all islands.
        ratios: for the policy `openevolve`.
        scales: per objective the values that map to 0 and 1, or None to map by rank (for `scalarised`).
    """

    members: Sequence[Member]
    archive: Sequence[Member] = ()
    ratios: Ratios = field(default_factory=Ratios)
    scales: Mapping[int, tuple[float, float]] = field(default_factory=dict)


Policy = Callable[[Pool, np.random.Generator], Member]


def score_matrix(members: Sequence[Member]) -> NDArray[np.float64]:
    """Return the (n, k) scores of programs; NaN where one has no value."""
    widest = max(len(member.scores) for member in members)
    matrix = np.full((len(members), widest), np.nan)
    for row, member in zip(matrix, members, strict=True):
        row[: len(member.scores)] = member.scores
    return matrix


def to_unit(matrix: NDArray[np.float64], scales: Mapping[int, tuple[float, float]] | None = None) -> NDArray[np.float64]:
    """Map the columns of an (n, k) score matrix to [0, 1]; NaN becomes 0.

    A column with a scale is mapped by it and clipped. One whose values all lie in [0, 1] stays as it is. Any other is mapped
    by rank, ties averaged: the worst to 0, the best to 1.
    """
    unit = np.zeros_like(matrix)
    for column in range(matrix.shape[1]):
        values = matrix[:, column]
        valid = ~np.isnan(values)
        if not valid.any():
            continue
        scale = (scales or {}).get(column)
        present = values[valid]
        if scale is not None:
            unit[valid, column] = np.clip((present - scale[0]) / (scale[1] - scale[0]), 0.0, 1.0)
        elif present.min() >= 0.0 and present.max() <= 1.0:
            unit[valid, column] = present
        else:
            _, inverse, counts = np.unique(present, return_inverse=True, return_counts=True)
            ranks = np.cumsum(counts) - (counts + 1) / 2  # of each value, from 0, the mean of its ties
            unit[valid, column] = ranks[inverse] / max(1, len(present) - 1) if len(counts) > 1 else 1.0
    return unit


def lexicase(pool: Pool, rng: np.random.Generator) -> Member:
    """Keep the best on one random objective after the other, until one program is left (Spector 2012), down-sampled."""
    scores = np.nan_to_num(score_matrix(pool.members), nan=-np.inf)
    objectives = rng.permutation(scores.shape[1])[: max(1, round(DOWN_SAMPLE * scores.shape[1]))]
    alive = np.arange(len(pool.members))
    for objective in objectives:
        column = scores[alive, objective]
        alive = alive[column == column.max()]
        if len(alive) == 1:
            break
    return pool.members[int(rng.choice(alive))]


def scalarised(pool: Pool, rng: np.random.Generator) -> Member:
    """Draw weights w ~ Dirichlet(1) and take the program with the best w.r, the distribution that VPO trains with."""
    unit = to_unit(score_matrix(pool.members), pool.scales)
    totals = unit @ rng.dirichlet(np.ones(unit.shape[1]))
    return pool.members[int(rng.choice(np.flatnonzero(totals == totals.max())))]


def best(pool: Pool, rng: np.random.Generator) -> Member:
    """Take the fittest program, the shorter of two equals."""
    del rng
    return max(pool.members, key=lambda member: member.rank)


def initial(pool: Pool, rng: np.random.Generator) -> Member:
    """Take the initial program always: sampling without evolution."""
    del rng
    return min(pool.members, key=lambda member: member.id)


def openevolve(pool: Pool, rng: np.random.Generator) -> Member:
    """Explore the island, exploit the archive, or draw from the island by fitness, as OpenEvolve 0.4 does by its ratios."""
    draw = rng.random()
    members = pool.members
    if draw < pool.ratios.exploration:
        return members[int(rng.integers(len(members)))]
    if draw < pool.ratios.exploration + pool.ratios.exploitation and pool.archive:
        here = {member.id for member in members}
        fittest = [member for member in pool.archive if member.id in here] or list(pool.archive)
        return fittest[int(rng.integers(len(fittest)))]
    weights = np.array([max(member.fitness, 0.001) for member in members])
    return members[int(rng.choice(len(members), p=weights / weights.sum()))]


POLICIES: dict[str, Policy] = {
    "lexicase": lexicase,
    "scalarised": scalarised,
    "openevolve": openevolve,
    "best": best,
    "initial": initial,
}


def inspirations(parent: Member, members: Sequence[Member], count: int) -> list[Member]:
    """Return up to `count` programs that together beat the parent on most objectives, greedily, ties to the fitter.

    With tests that is: programs that pass what the parent fails.
    """
    pool = [member for member in members if member is not parent]
    chosen: list[Member] = []
    if not pool or count == 0:
        return chosen
    matrix = np.nan_to_num(score_matrix([parent, *pool]), nan=-np.inf)
    better = matrix[1:] > matrix[0]
    while len(chosen) < count:
        gains = better.sum(axis=1)
        most = gains.max()
        if most == 0:
            break
        index = max(np.flatnonzero(gains == most), key=lambda one: (pool[one].fitness, -pool[one].id))
        chosen.append(pool[index])
        better &= ~better[index]  # what it does better is no longer missing
    return chosen


def shown(parent: Member, pool: Pool, top: int, diverse: int, rng: np.random.Generator) -> tuple[list[Member], list[Member]]:
    """Return the programs beside the parent by OpenEvolve's counts: the fittest of the island, and others that differ.

    The others are first the elites' share of them by fitness, then programs that are better than the parent on something,
    then any.
    """
    others = sorted((member for member in pool.members if member is not parent), key=lambda one: one.rank, reverse=True)
    fittest = others[:top]
    left = [member for member in others if member not in fittest]
    chosen = left[: min(diverse, round(pool.ratios.elite * diverse))]
    for member in inspirations(parent, [one for one in left if one not in chosen], diverse - len(chosen)):
        chosen.append(member)
    rest = [member for member in left if member not in chosen]
    while len(chosen) < diverse and rest:
        chosen.append(rest.pop(int(rng.integers(len(rest)))))
    return fittest, chosen
