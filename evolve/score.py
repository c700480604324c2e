"""What a program is worth: the score vector and the results that it comes from."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from sandbox.judge import TestResult


@dataclass(frozen=True, slots=True, eq=False)
class Score:
    """What a program is worth on the visible tests, or to an evaluator.

    Attributes:
        results: one per visible test, in the problem's order; a single one, of the whole evaluation, with an evaluator.
        scores: (k,) float array, one per objective, higher is better. With tests in [0, 1] (visible tests, then extra
            objectives); with an evaluator empty, see `values`. Zeros for a program that could not run.
        ran: whether the program's code was reached in some test, or its evaluation gave metrics; one that did not run has
            no fitness and is never a parent.
        level: the sandbox's isolation.
        fitness: one number for elites and people: the mean of the scores, or by an evaluator's rule; None unless `ran`.
        solved: whether every visible test passes; an evaluator's problem is never solved.
        values: with an evaluator, the objectives by name, higher is better; the run's database gives them their order.
        metrics: what an evaluator returned.
        artifacts: texts that an evaluator gave for the next prompt.
        faults: what an evaluator may have swallowed, for people; of the first program that it judges, not recorded. See
            `faults.py`.
    """

    results: tuple[TestResult, ...]
    scores: NDArray[np.float64]
    ran: bool
    level: str
    fitness: float | None
    solved: bool
    values: Mapping[str, float] | None = None
    metrics: Mapping[str, Any] = field(default_factory=dict)
    artifacts: Mapping[str, str] = field(default_factory=dict)
    faults: tuple[str, ...] = ()


class Grader(Protocol):
    """Gives programs of one problem their scores."""

    @property
    def level(self) -> str:
        """Name of the isolation, stored with every score."""
        ...

    async def score(self, source: str) -> Score:
        """Return the score of a program.

        Raises:
            SandboxError: the machine, a checker or an evaluator's sandbox failed; there is no score.
        """
        ...

    async def hidden(self, source: str) -> tuple[TestResult, ...]:
        """Return the results on hidden tests, for reports and confirmation only; empty where a problem has none."""
        ...
