"""What a comparison asks of a kind of problems and model: prepare the base, train, sample, search."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

from mutator_training.arms import Arm
from mutator_training.plan import Plan
from mutator_training.samples import Samples

Say = Callable[[str], None]


@dataclass(frozen=True, slots=True)
class Cell:
    """One arm with one seed.

    Attributes:
        folder: its own, for everything that it leaves.
        arm: what is trained how.
        seed: of the training and of all sampling.
    """

    folder: Path
    arm: Arm
    seed: int


class Lab(Protocol):
    """Trains and tries mutators of one kind. Each method can be called again after a kill and then gives the same."""

    @property
    def problems(self) -> Sequence[str]:
        """Names of the held-out problems."""
        ...

    def prepare(self) -> dict[str, Any]:
        """Make what all cells start from; return what it cost."""
        ...

    def train(self, cell: Cell) -> dict[str, Any]:
        """Train the cell's mutator from the base, into its folder.

        Returns:
            `steps`, a row per optimizer step; `curve`, a row per evaluation with `step` and `pass`, a mapping from k to the
            pass@k of each held-out problem; and `cost`, see `COSTS`.
        """
        ...

    def sample(self, cell: Cell) -> tuple[Samples, dict[str, Any]]:
        """Sample the plan's number of answers to each held-out problem; return them and what it cost."""
        ...

    def close(self) -> None:
        """Give back what the cells of a process shared, such as a model server."""
        ...

    def search(self, cell: Cell, problems: Sequence[str]) -> tuple[Mapping[str, Any], dict[str, Any]]:
        """Search with the frozen mutator; return a `trace.Trace` (as a mapping) per problem, and what it cost."""
        ...


COSTS = {
    "answers": "scored answers",
    "completions": "completions",
    "sampled_tokens": "tokens sampled",
    "trained_tokens": "tokens in gradient steps",
    "seconds": "seconds in all",
    "sampling_seconds": "seconds of sampling",
    "scoring_seconds": "seconds of scoring, summed over candidates",
    "gradient_seconds": "seconds of gradient steps",
    "peak_memory_mb": "MB of memory of the process at the most",
}
"""What a stage may cost, and what each figure counts."""


def open_lab(plan: Plan, folder: Path, say: Say) -> Lab:
    """Return the lab of a plan, importing only what it needs."""
    if plan.kind == "toy":
        from mutator_training.toy import ToyLab

        return ToyLab(plan, folder, say)
    from mutator_training.folders import FolderLab

    return FolderLab(plan, folder, say)
