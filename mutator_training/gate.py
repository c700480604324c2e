"""Decide whether a new version of the mutator may take over: it must not be significantly worse than the old one.

The new version answers the most recent prompts; the old one has answered them already, in the search. Both are scored on the
visible and the hidden tests, as set rewards (arXiv 2605.22817), and compared by a one-sided permutation test.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from scipy import stats

from evolve.answers import Rules, parse
from evolve.refresher import Context
from evolve.score import Score
from mutator_training.rollouts import Scale
from mutator_training.simplex import Array, set_rewards

LEVEL = 0.05
"""Of the test: how often an equal version is rejected."""


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

    @property
    def text(self) -> str:
        """The verdict in words."""
        if self.new is None:
            return "no gate"
        return (
            f"set reward {self.new:.3f} +- {self.new_std:.3f} after {self.old:.3f} +- {self.old_std:.3f} "
            f"({self.completions} completions each, p = {self.p:.3f} for a fall)"
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

    async def judge(self, new: str, prompt: int) -> Verdict:
        """Let the new version answer recent prompts, and compare; afterwards the new one is in use.

        Args:
            new: its served name.
            prompt: the most recent one.
        """
        context = self._context
        started = time.monotonic()
        rules = Rules(context.problem.language, context.problem.entry)
        context.mutator.use(new)
        scale = context.database.read(Scale.of)
        before: list[Array] = []
        after: list[Array] = []
        tokens = 0
        for recent in context.database.recent_prompts(prompt, self._prompts):
            recorded = [sources for _, sources in recent.completions]
            parent = context.database.source(recent.parent)
            sampled = await context.mutator.sample(
                recent.messages, range(len(recorded)), recent.answers, (recent.seed + 1) % (1 << 31)
            )
            tokens += sum(completion.completion_tokens for completion in sampled)
            answers = [parse(completion.text, recent.answers, rules, parent) for completion in sampled]
            fresh = [[answer.source for answer in each if answer.source is not None] for each in answers]
            before += await self._matrices(recorded, scale)
            after += await self._matrices(fresh, scale)
        return compare(before, after, tokens, time.monotonic() - started)

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


def compare(before: Sequence[Array], after: Sequence[Array], tokens: int = 0, seconds: float = 0.0) -> Verdict:
    """Compare the score matrices of two versions' completions."""
    rewards, _ = set_rewards([*before, *after])
    old, new = rewards[: len(before)], rewards[len(before) :]
    if len(old) < 2 or len(new) < 2:
        return Verdict(True, completions=len(new), tokens=tokens, seconds=round(seconds, 2))
    p = 1.0
    if rewards.std() > 0:
        test = stats.permutation_test(
            (new, old),
            lambda one, other, axis: one.mean(axis=axis) - other.mean(axis=axis),
            alternative="less",
            n_resamples=4000,
            vectorized=True,
            rng=np.random.default_rng(0),
        )
        p = float(test.pvalue)
    return Verdict(
        p >= LEVEL,
        round(float(new.mean()), 4),
        round(float(old.mean()), 4),
        round(float(new.std(ddof=1)), 4),
        round(float(old.std(ddof=1)), 4),
        round(p, 4),
        len(new),
        tokens,
        round(seconds, 2),
    )
