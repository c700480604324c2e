"""Answers of one arm and seed to held-out problems, as arrays: what pass@k, best@k and diversity are computed from."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from mutator_training.metrics import Diversity, best_at_k, diversity
from mutator_training.simplex import Array

Unit = Literal["answer", "completion"]
Side = Literal["visible", "hidden"]
Measure = Literal["pass", "best"]
MISSING = -1
"""Key of an answer that was asked for and not given; it fails every test."""


@dataclass(frozen=True, slots=True, eq=False)
class Samples:
    """P problems x C completions x m answers.

    Attributes:
        problems: their names.
        keys: (P, C, m) the same for the same program of a problem, `MISSING` where there is none.
        visible: (P, C, m, k) scores in [0, 1]; NaN beyond the tests of a problem that has fewer than k.
        hidden: (P, C, m, h) the same on hidden tests; h may be 0.
    """

    problems: Sequence[str]
    keys: NDArray[np.int64]
    visible: NDArray[np.float32]
    hidden: NDArray[np.float32]

    def save(self, path: Path) -> None:
        """Write to a file that appears whole."""
        unborn = path.with_name(f".{path.name}")
        with unborn.open("wb") as file:
            np.savez_compressed(
                file, problems=np.array(self.problems), keys=self.keys, visible=self.visible, hidden=self.hidden
            )
        unborn.rename(path)

    @classmethod
    def load(cls, path: Path) -> Samples:
        """Read what `save` wrote."""
        with np.load(path) as found:
            names = [str(name) for name in found["problems"]]
            return cls(names, found["keys"], found["visible"], found["hidden"])

    def values(self, measure: Measure, side: Side) -> Array:
        """Return (P, C, m): for `pass` whether all tests pass, for `best` the share of the tests that pass.

        An answer passes on the hidden side when the visible tests pass as well; without hidden tests it has only those.
        """
        visible = self.visible.astype(np.float64)
        if side == "hidden":
            both = np.concatenate([visible, self.hidden.astype(np.float64)], axis=3)
            return _all(both) if measure == "pass" else _mean(self.hidden.astype(np.float64))
        return _all(visible) if measure == "pass" else _mean(visible)

    def curve(self, measure: Measure, side: Side, unit: Unit, ks: Sequence[int]) -> Array:
        """Return (P, len(ks)) of pass@k or best@k.

        Args:
            measure: see `values`.
            side: which tests.
            unit: what k counts: single answers, or whole completions, each worth its best answer.
            ks: sorted or not; NaN where k is more than there are.
        """
        found = self.values(measure, side)
        flat = found.reshape(len(found), -1) if unit == "answer" else found.max(axis=2)
        return np.array([[best_at_k(row, k) if k <= len(row) else np.nan for k in ks] for row in flat])

    def diversity(self) -> list[Diversity]:
        """Return the diversity of the answers to each problem; missing ones are left out."""
        found = []
        for keys, scores in zip(self.keys, self.visible, strict=True):
            given = keys.reshape(-1) != MISSING
            rows = scores.reshape(-1, scores.shape[-1])[given].astype(np.float64)
            found.append(diversity(keys.reshape(-1)[given].tolist(), rows[:, ~np.isnan(rows).all(axis=0)]))
        return found

    def full(self) -> float:
        """Return the share of completions that hold all their answers."""
        return float((self.keys != MISSING).all(axis=2).mean())


def _all(scores: Array) -> Array:
    whole: Array = np.where(np.isnan(scores), 1.0, scores).min(axis=3, initial=1.0)
    passes: NDArray[np.bool_] = whole >= 1.0
    return passes.astype(np.float64)


def _mean(scores: Array) -> Array:
    counts = (~np.isnan(scores)).sum(axis=3)
    total: Array = np.nansum(scores, axis=3)
    share: Array = np.divide(total, counts, out=np.zeros_like(total), where=counts > 0)
    return share
