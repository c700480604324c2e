"""What a program is worth: the score vector and the results that it comes from."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from sandbox.base import Verdict
from sandbox.judge import TestResult


@dataclass(frozen=True, slots=True, eq=False)
class Score:
    """What a program is worth on the visible tests.

    Attributes:
        results: one per visible test, in the problem's order.
        scores: (k,) float array in [0, 1], one per objective (visible tests, then extra objectives); zeros for a
            program that could not run.
        ran: whether the program's code was reached in some test; one that did not run has no fitness and is never a
            parent.
        level: the sandbox's isolation.
    """

    results: tuple[TestResult, ...]
    scores: NDArray[np.float64]
    ran: bool
    level: str

    @property
    def fitness(self) -> float | None:
        """Mean of the objectives, or None for a program that could not run."""
        return float(self.scores.mean()) if self.ran else None

    @property
    def solved(self) -> bool:
        """Whether every visible test passes."""
        return all(result.verdict is Verdict.PASS for result in self.results)
