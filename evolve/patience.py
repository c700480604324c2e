"""End a search that doesn't get better."""

from __future__ import annotations

from evolve.metrics import numeric
from evolve.population import Member


class Patience:
    """Counts candidates without a better best.

    Args:
        limit: candidates after which the patience is over; None never is.
        better_by: by how much the best must rise to count as better.
        metric: an evaluator's metric that must rise; None for the fitness.
        reach: its value at which nothing more is wanted; None for none.
    """

    def __init__(self, limit: int | None, better_by: float = 0.0, metric: str | None = None, reach: float | None = None):
        self._limit = limit
        self._better_by = better_by
        self._metric = metric
        self._best: float | None = None
        self._since = 0
        self._reach = reach

    @property
    def is_over(self) -> bool:
        """Whether it is time to end."""
        return self._limit is not None and self._since >= self._limit

    @property
    def has_reached(self) -> bool:
        """Whether the value that was asked for is there."""
        return self._reach is not None and self._best is not None and self._best >= self._reach

    def see(self, best: Member, candidates: int) -> None:
        """Take the best program after some more candidates."""
        value = best.fitness if self._metric is None else numeric(best.metrics).get(self._metric, best.fitness)
        self._since += candidates
        if self._best is None or value > self._best + self._better_by:
            self._best, self._since = value, 0
