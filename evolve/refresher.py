"""What refreshes the mutator between generations: declared here, implemented by `mutator_training`, handed in from above."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

from evolve.completion import Mutator
from evolve.database import Database
from evolve.problem import Problem
from evolve.scoring import Scorer


class Served(Protocol):
    """The managed server, as a refresher uses it."""

    async def load_adapter(self, name: str, folder: Path) -> None:
        """Serve an adapter under a new name, also after a restart. Raises MutatorError."""
        ...

    async def unload_adapter(self, name: str) -> None:
        """Serve an adapter no longer."""
        ...

    async def make_room(self, megabytes: float) -> str:
        """Leave the machine to a training of so much memory until `go_on`; return how, for the record."""
        ...

    async def go_on(self) -> None:
        """Answer again. Raises MutatorError."""
        ...


class Versioned(Mutator, Protocol):
    """A mutator of which versions are served under names."""

    def use(self, name: str) -> None:
        """Sample from this version from now on."""
        ...


class Refresher(Protocol):
    """Trains the mutator on what the search found, between two generations."""

    @property
    def every(self) -> int:
        """Generations between two refreshes."""
        ...

    async def restore(self) -> None:
        """At the start, serve the version that the run used last."""
        ...

    async def refresh(self, prompt: int) -> None:
        """Train on the prompts since the last refresh, and sample from the new version if it is no worse.

        Nothing is under way meanwhile. A refresh that fails is recorded and leaves the old version in place.

        Args:
            prompt: id of the last prompt, which is committed.
        """
        ...


@dataclass(frozen=True, slots=True)
class Context:
    """What a refresher is made from.

    Attributes:
        folder: of the run.
        problem: what is searched for.
        database: of the run.
        scorer: scores programs.
        mutator: samples from the served version.
        server: serves versions.
        base: folder of the base model.
        base_name: its name.
        adapter: folder of the adapter that the run started with, or None.
        say: told what happens.
    """

    folder: Path
    problem: Problem
    database: Database
    scorer: Scorer
    mutator: Versioned
    server: Served
    base: Path
    base_name: str
    adapter: Path | None
    say: Callable[[str], None]


Factory = Callable[[Mapping[str, Any], Context], Refresher]
"""From the training options of a run."""


@dataclass(slots=True)
class Extension:
    """Where the training half puts its factory; plain evolution has none."""

    factory: Factory | None = None


TRAINING = Extension()
