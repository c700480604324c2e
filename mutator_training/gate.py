"""Decide whether a new version of the mutator may take over: it must not be significantly worse than the old one.

The new version answers the most recent prompts; the old one has answered them already, in the search, or does so again
where the format has changed since. Both are scored on the visible and the hidden tests, as set rewards (arXiv 2605.22817)
under the training's concentration, and compared by a one-sided permutation test within prompts. Small falls that no single
test sees add up: a version is also compared with the best one so far, by the sum of the differences since.
"""

from __future__ import annotations

import asyncio
import math
import time
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
from scipy import stats

from evolve.answers import Rules, parse
from evolve.database import Recent
from evolve.refresher import Context
from evolve.score import Score
from mutator_training.rollouts import Scale
from mutator_training.simplex import Array, set_rewards

LEVEL = 0.05
"""Of the test: how often an equal version is rejected."""

POOLED_LEVEL = 0.01
"""Of the comparison with the best version so far, which is made at every refresh."""

ROUND = 1e-12
SEEDS = 1 << 31


@dataclass(frozen=True, slots=True)
class Verdict:
    """What the gate found.

    Attributes:
        accepted: whether the new version may take over.
        new, old: mean set reward of their completions.
        new_std, old_std: sample standard deviations.
        p: chance of a fall like this one if both were equal.
        completions: of each version.
        tokens: that the new version sampled for it.
        seconds: that it took.
        change: weighted mean over prompts of the new version's mean minus the old one's.
        variance: of `change`.
        fall: from the best version so far, where that is why it is rejected.
    """

    accepted: bool
    new: float | None = None
    old: float | None = None
    new_std: float | None = None
    old_std: float | None = None
    p: float | None = None
    completions: int = 0
    tokens: int = 0
    seconds: float = 0.0
    change: float = 0.0
    variance: float = 0.0
    fall: float | None = None

    @property
    def text(self) -> str:
        """The verdict in words."""
        if self.new is None:
            return f"{self.completions} completions are too few to decide anything" if self.completions else "no gate"
        told = "" if self.fall is None else f"; {-self.fall:.3f} below the best version so far, over all refreshes since"
        return (
            f"set reward {self.new:.3f} +- {self.new_std:.3f} after {self.old:.3f} +- {self.old_std:.3f} "
            f"({self.completions} completions each, p = {self.p:.3f} for a fall){told}"
        )


class Gate:
    """Compares versions of a run's mutator.

    Args:
        context: the parts of the run.
        prompts: recent prompts that are answered.
    """

    def __init__(self, context: Context, prompts: int):
        self._context = context
        self._prompts = prompts

    async def judge(self, new: str, prompt: int, changes: Sequence[tuple[float, float]] = ()) -> Verdict:
        """Let the new version answer recent prompts, and compare; afterwards the new one is in use.

        Args:
            new: its served name.
            prompt: the most recent one.
            changes: of the accepted versions so far, see `since_best`.
        """
        context = self._context
        started = time.monotonic()
        old = context.mutator.name
        scale = context.database.read(Scale.of)
        before: list[list[float]] = []
        after: list[list[float]] = []
        tokens = 0
        for recent in context.database.recent_prompts(prompt, self._prompts):
            recorded: list[Sequence[str]] = [sources for _, sources in recent.completions]
            if recent.format not in (None, context.mutator.format):
                context.mutator.use(old)
                again, spent = await self._answered(recent, (recent.seed + 2) % SEEDS)
                recorded = list(again)
                tokens += spent
            context.mutator.use(new)
            fresh, spent = await self._answered(recent, (recent.seed + 1) % SEEDS)
            tokens += spent
            matrices = await self._matrices([*recorded, *fresh], scale)
            rewards = set_rewards(matrices, "auto")[0].tolist() if matrices else []
            before.append(rewards[: len(recorded)])
            after.append(rewards[len(recorded) :])
        context.mutator.use(new)
        verdict = compare(before, after)
        verdict = replace(verdict, tokens=tokens, seconds=round(time.monotonic() - started, 2))
        if verdict.accepted and verdict.new is not None and has_fallen([*changes, (verdict.change, verdict.variance)]):
            fall, _ = since_best([*changes, (verdict.change, verdict.variance)])
            verdict = replace(verdict, accepted=False, fall=round(fall, 4))
        return verdict

    async def _answered(self, recent: Recent, seed: int) -> tuple[list[list[str]], int]:
        """Return the programs of completions that the version in use gives to a prompt, and their tokens."""
        context = self._context
        rules = Rules(context.problem.language, context.problem.entry)
        parent = context.database.source(recent.parent)
        positions = range(len(recent.completions))
        sampled = await context.mutator.sample(recent.messages, positions, recent.answers, seed)
        answers = [parse(completion.text, recent.answers, rules, parent) for completion in sampled]
        programs = [[answer.source for answer in each if answer.source is not None] for each in answers]
        return programs, sum(completion.completion_tokens for completion in sampled)

    async def _matrices(self, completions: Sequence[Sequence[str]], scale: Scale) -> list[Array]:
        return list(await asyncio.gather(*(self._matrix(sources, scale) for sources in completions)))

    async def _matrix(self, sources: Sequence[str], scale: Scale) -> Array:
        """Return the scores of a completion's programs on visible and hidden tests."""
        rows = await asyncio.gather(*(self._row(source, scale) for source in sources))
        return np.stack(rows) if rows else np.zeros((0, scale.k + self._hidden))

    @property
    def _hidden(self) -> int:
        return len(getattr(self._context.problem, "hidden", ()))

    async def _row(self, source: str, scale: Scale) -> Array:
        scorer = self._context.scorer
        score: Score = await scorer.score(source)
        if not score.ran:
            return np.zeros(scale.k + self._hidden)
        names = self._context.database.objectives
        values: list[float | None] = score.scores.tolist()
        if score.values is not None:
            values = [score.values.get(name) for name in names[: scale.k]]
        hidden = [result.score for result in await scorer.hidden(source)] if self._hidden else []
        return np.concatenate([scale.apply([values])[0], np.array(hidden)])


def compare(before: Sequence[Sequence[float]], after: Sequence[Sequence[float]]) -> Verdict:
    """Compare the set rewards of two versions' completions, prompt by prompt.

    Args:
        before, after: per prompt the rewards of the old and of the new version's completions.
    """
    pairs = [(np.array(old), np.array(new)) for old, new in zip(before, after, strict=True) if min(len(old), len(new)) > 1]
    count = sum(len(new) for _, new in pairs)
    least = float(np.prod([1 / math.comb(len(old) + len(new), len(new)) for old, new in pairs]))
    if not pairs or least >= LEVEL:
        return Verdict(True, completions=count)
    p = permuted(pairs)
    old, new = np.concatenate([old for old, _ in pairs]), np.concatenate([new for _, new in pairs])
    weights = np.array([len(one) * len(other) / (len(one) + len(other)) for one, other in pairs])
    weights /= weights.sum()
    falls = np.array([new.mean() - old.mean() for old, new in pairs])
    variances = np.array([old.var(ddof=1) / len(old) + new.var(ddof=1) / len(new) for old, new in pairs])
    return Verdict(
        p >= LEVEL,
        round(float(new.mean()), 4),
        round(float(old.mean()), 4),
        round(float(new.std(ddof=1)), 4),
        round(float(old.std(ddof=1)), 4),
        round(p, 4),
        count,
        change=round(float(weights @ falls), 5),
        variance=round(float(weights**2 @ variances), 8),
    )


def permuted(pairs: Sequence[tuple[Array, Array]], resamples: int = 4000) -> float:
    """Return the chance of a fall like this one if the versions were equal, by exchanging completions within prompts.

    The prompts' differences are weighted by their harmonic sizes; permutations within strata (Good 2005, section 3.4).
    """
    rng = np.random.default_rng(0)
    seen, drawn = 0.0, np.zeros(resamples)
    for old, new in pairs:
        both = np.concatenate([old, new])
        weight = len(old) * len(new) / len(both)
        seen += weight * (new.mean() - old.mean())
        mixed = rng.permuted(np.tile(both, (resamples, 1)), axis=1)
        drawn += weight * (mixed[:, len(old) :].mean(axis=1) - mixed[:, : len(old)].mean(axis=1))
    return float((1 + (drawn <= seen + ROUND).sum()) / (resamples + 1))


def since_best(changes: Sequence[tuple[float, float]]) -> tuple[float, float]:
    """Return the fall of the last version from the best so far, at most 0, and its standard error.

    Args:
        changes: of each accepted version, the newest last: by how much it was better than the one before, and that
            difference's variance. The evidence adds up over the refreshes since the best.
    """
    heights = np.concatenate([[0.0], np.cumsum([change for change, _ in changes])])
    best = int(np.argmax(heights))
    variance = sum(variance for _, variance in changes[best:])
    return float(heights[-1] - heights[best]), math.sqrt(variance)


def has_fallen(changes: Sequence[tuple[float, float]]) -> bool:
    """Return whether the last version is significantly worse than the best so far, which was chosen for being the best.

    Of versions that are all equal, the fall from the best of a random walk exceeds z standard errors with a chance of about
    2 (1 - Phi(z)) (reflection), so the bound is that of a two-sided normal test.
    """
    fall, error = since_best(changes)
    return fall < 0 and fall < -float(stats.norm.ppf(1 - POOLED_LEVEL / 2)) * error
