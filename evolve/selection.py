"""Parent selection: pure functions from a population and a generator to one parent. A dict, not a registry."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from evolve.population import Member

Policy = Callable[[Sequence[Member], np.random.Generator], Member]
DOWN_SAMPLE = 0.5
"""Share of the objectives that one lexicase selection looks at (down-sampled lexicase, Hernandez et al. 2019)."""


def lexicase(members: Sequence[Member], rng: np.random.Generator) -> Member:
    """Keep the best on one random objective after the other, until one program is left (Spector 2012), down-sampled."""
    scores = np.stack([member.scores for member in members])
    objectives = rng.permutation(scores.shape[1])[: max(1, round(DOWN_SAMPLE * scores.shape[1]))]
    alive = np.arange(len(members))
    for objective in objectives:
        column = scores[alive, objective]
        alive = alive[column == column.max()]
        if len(alive) == 1:
            break
    return members[int(rng.choice(alive))]


def best(members: Sequence[Member], rng: np.random.Generator) -> Member:
    """Take the fittest program, the shorter of two equals."""
    del rng
    winner = members[0]
    for member in members[1:]:
        if member.better_than(winner):
            winner = member
    return winner


def initial(members: Sequence[Member], rng: np.random.Generator) -> Member:
    """Take the initial program always: sampling without evolution."""
    del rng
    return min(members, key=lambda member: member.id)


POLICIES: dict[str, Policy] = {"lexicase": lexicase, "best": best, "initial": initial}


def inspirations(parent: Member, members: Sequence[Member], count: int) -> list[Member]:
    """Return up to `count` programs that together pass most of what the parent fails, greedily, ties to the fitter."""
    missing = parent.scores < 1.0
    chosen: list[Member] = []
    pool = [member for member in members if member is not parent]
    while len(chosen) < count and pool and missing.any():
        gains = [(float((member.scores >= 1.0)[missing].sum()), member.fitness, -member.id) for member in pool]
        index = max(range(len(pool)), key=gains.__getitem__)
        if gains[index][0] == 0:
            break
        member = pool.pop(index)
        chosen.append(member)
        missing &= member.scores < 1.0
    return chosen
