"""What is searched for, as the search sees it, and the two kinds of problem folder: tests, or an evaluator."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Protocol

from evolve.errors import ProblemError
from evolve.evaluated import EvaluatedProblem, load_evaluated
from evolve.tested import TestedProblem, load_tested


class Problem(Protocol):
    """A loaded problem folder."""

    @property
    def path(self) -> Path:
        """The folder."""
        ...

    @property
    def name(self) -> str:
        """Name for people."""
        ...

    @property
    def language(self) -> str:
        """Language of the programs, such as `python`: the tag of their fences."""
        ...

    @property
    def initial(self) -> str:
        """Source of the initial program."""
        ...

    @property
    def entry(self) -> str | None:
        """Function that a program must define, or None."""
        ...

    @property
    def dimensions(self) -> list[tuple[str, str]]:
        """Name and kind (test, extra, metric) of the objectives that are known before any program was scored."""
        ...

    def scales(self, names: Sequence[str]) -> dict[int, tuple[float, float]]:
        """Return, by place among these objectives, the values that map to 0 and 1, where the problem says them."""
        ...

    @property
    def parts(self) -> Mapping[str, str]:
        """A hash of each thing that decides a score, by a name for people."""
        ...

    @property
    def digest(self) -> str:
        """One hash of everything that decides a score."""
        ...


def load(path: Path, initial: str | None = None, evaluator: str | None = None, config: str | None = None) -> Problem:
    """Load a problem folder of either kind.

    Args:
        path: the folder.
        initial: initial program of an evaluator's folder, where it is not `initial_program.*`; relative to the folder.
        evaluator: where it is not `evaluator.py`.
        config: where it is not `config.yaml`.

    Raises:
        ProblemError: the folder is broken; the text names the file, the line or key, and what was expected.
    """
    if not path.is_dir():
        raise ProblemError(
            f"{path} is not a folder. Expected a problem folder: with problem.yaml and tests.jsonl, or with evaluator.py."
        )
    named = any(name is not None for name in (initial, evaluator, config))
    if not named and ((path / "tests.jsonl").is_file() or not (path / "evaluator.py").is_file()):
        if not (path / "problem.yaml").is_file() and not (path / "tests.jsonl").is_file():
            raise ProblemError(
                f"{path} holds neither problem.yaml with tests.jsonl nor evaluator.py. An evaluator with another name is "
                "given by --evaluator, an initial program by --initial."
            )
        return load_tested(path)
    return load_evaluated(path, initial, evaluator, config)


__all__ = ["EvaluatedProblem", "Problem", "TestedProblem", "load"]
