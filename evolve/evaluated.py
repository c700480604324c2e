"""A problem folder of OpenEvolve's: `initial_program.*`, `evaluator.py`, optional `config.yaml`, taken unmodified.

A `problem.yaml` of ours beside the evaluator may add what OpenEvolve has no key for. The format is documented in
docs/openevolve.md.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import Field, field_validator

from evolve.clocks import clocks
from evolve.directions import COMBINED, line, looks_like_a_cost, steering
from evolve.errors import ProblemError
from evolve.folder import needed, read_text, tree
from evolve.foreign import ForeignConfig, read_config
from evolve.metrics import numeric
from evolve.parts import digest, hashed
from evolve.strict import Debian, Strict, load_yaml
from sandbox.base import Limits
from sandbox.image.names import BadName, python_requirements

LANGUAGES = {
    ".py": "python", ".c": "c", ".cc": "cpp", ".cpp": "cpp", ".cxx": "cpp", ".js": "javascript", ".go": "go", ".r": "r",
    ".rs": "rust", ".java": "java", ".sh": "bash", ".jl": "julia", ".rb": "ruby", ".txt": "text", ".md": "markdown",
}  # fmt: skip
COMPILERS = {
    "c": ("gcc", "libc6-dev"), "cpp": ("g++",), "javascript": ("nodejs",), "go": ("golang-go",), "r": ("r-base-core",),
    "rust": ("rustc",), "java": ("default-jdk-headless",), "julia": ("julia",), "ruby": ("ruby",),
}  # fmt: skip
"""Debian packages that an evaluator needs to run candidates in a language other than Python."""

MAX_FILES_MB = 32
MEMORY_MB = 1024
SCORING_VERSION = 2
"""Of the rules that make objectives and fitness out of metrics. 2: see `directions.py`."""

VARIABLE = r"^[A-Za-z_][A-Za-z0-9_]*$"
SIGNS = {"max": 1.0, "min": -1.0, "none": 0.0}
BUILT_IN = {"complexity", "diversity", "score"}
"""Feature dimensions that need no metric."""


class Objective(Strict):
    """An entry of `objectives:` in the problem.yaml beside an evaluator."""

    direction: Literal["max", "min", "none"] = "max"
    """`none` is a metric that is only shown to the model."""
    scale: tuple[float, float] | None = None
    """Values that map to 0 and 1, for training and scalarised selection; without it, the rank among valid programs."""
    bounds: tuple[float, float] | None = None
    """Values outside make the evaluation invalid."""

    @field_validator("scale", "bounds", mode="before")
    @classmethod
    def _pair(cls, value: Any) -> Any:
        if value is None:
            return None
        if not isinstance(value, (list, tuple)) or len(value) != 2 or isinstance(value[0], str) or not value[0] < value[1]:
            raise ValueError("must be two numbers, the lower one first")
        return (float(value[0]), float(value[1]))


class EvaluatedLimits(Strict):
    """`limits:` in the problem.yaml beside an evaluator."""

    memory_mb: int = Field(MEMORY_MB, ge=64, le=1 << 20)


class EvaluatedSpec(Strict):
    """The keys of a problem.yaml beside an evaluator."""

    name: str | None = Field(None, min_length=1, max_length=100, pattern=r"^[A-Za-z0-9_./-]+$")
    statement: str | None = None
    objectives: dict[str, Objective] = Field(default_factory=dict)
    packages: Debian = Field(default_factory=list)
    trust: Literal["separated", "shared_process"] = "separated"
    values: Literal["checked", "raw"] = "checked"
    """Of a separated candidate: NaN refused and small integers widened, or as they are."""
    limits: EvaluatedLimits = EvaluatedLimits()
    env: dict[Annotated[str, Field(pattern=VARIABLE)], Annotated[str, Field(max_length=10_000)]] = Field(
        default_factory=dict, max_length=100
    )
    """Variables of the environment, for the evaluator and the candidates. Candidates can read them: no place for keys."""


@dataclass(frozen=True, slots=True)
class EvaluatedProblem:
    """A loaded folder with an evaluator.

    Attributes:
        path: the folder.
        name: for people.
        language: of the programs.
        suffix: of the file that the evaluator gets.
        initial: source of the initial program.
        evaluator: path of the evaluator, relative to its own folder.
        files: of the evaluator's folder, by relative path: what each evaluation gets.
        config: the config, honoured and ignored keys.
        spec: the problem.yaml beside it.
        requirements: content of a requirements.txt.
    """

    path: Path
    name: str
    language: str
    suffix: str
    initial: str
    evaluator: str
    files: Mapping[str, bytes] = field(repr=False)
    config: ForeignConfig
    spec: EvaluatedSpec
    requirements: str | None = None

    @property
    def entry(self) -> None:
        """See `Problem`: an evaluator says itself what is missing."""
        return

    @property
    def statement(self) -> str:
        """The task in words: problem.yaml's, else the system message of the config."""
        return self.spec.statement or self.config.statement

    @property
    def dimensions(self) -> list[tuple[str, str]]:
        """See `Problem`: the named ones; others come with the first metrics."""
        return [(name, "metric") for name in self.spec.objectives]

    @property
    def features(self) -> tuple[str, ...]:
        """Feature dimensions of the MAP-Elites grid."""
        return tuple(str(name) for name in self.config.words("database.feature_dimensions"))

    @property
    def limits(self) -> Limits:
        """Limits of one evaluation."""
        seconds = self.config.number("evaluator.timeout", 0.1)
        given = self.config.get("evaluator.memory_limit_mb")
        memory = self.spec.limits.memory_mb if given is None else self.config.whole("evaluator.memory_limit_mb", 16)
        return Limits(cpu_seconds=seconds, wall_seconds=seconds, memory_mb=memory, output_kb=8192)

    @property
    def cores(self) -> float:
        """CPU cores that an evaluation may use."""
        return 1.0 if self.config.get("evaluator.cpu_limit") is None else self.config.number("evaluator.cpu_limit", 0.01)

    @property
    def thresholds(self) -> list[float] | None:
        """Thresholds of the stages, or None when there are none."""
        if not self.config.flag("evaluator.cascade_evaluation"):
            return None
        return [float(value) for value in self.config.words("evaluator.cascade_thresholds")]

    @property
    def packages(self) -> list[str]:
        """Debian packages of the image."""
        return sorted({*self.spec.packages, *COMPILERS.get(self.language, ())})

    @property
    def clocks(self) -> list[str]:
        """Clocks that the Python files beside the evaluator read."""
        return clocks(data.decode("utf-8", "replace") for name, data in self.files.items() if name.endswith(".py"))

    @property
    def program(self) -> str:
        """File name of a candidate: a stem that can be imported, the suffix of the initial program."""
        return f"candidate_program{self.suffix}"

    @property
    def digest(self) -> str:
        """See `Problem`."""
        return digest(self.parts)

    @property
    def parts(self) -> dict[str, str]:
        """See `Problem`."""
        parts = {name: hashed(data) for name, data in self.files.items()}
        if self.requirements is not None:
            parts["requirements.txt"] = hashed(self.requirements)
        decide = ["objectives", "trust", "values"]
        if self.spec.env:
            decide.append("env")
        parts |= {f"problem.yaml: {key}": hashed(self.spec.model_dump(mode="json")[key]) for key in decide}
        return parts | {
            "the evaluator's name": hashed(self.evaluator),
            "the programs' suffix": hashed(self.suffix),
            "Debian packages": hashed(self.packages),
            "limits of time, memory and cores": hashed([self.limits.cpu_seconds, self.limits.memory_mb, self.cores]),
            "thresholds of the stages": hashed(self.thresholds),
            "feature dimensions": hashed(self.features),
            "rules that make a fitness out of metrics": hashed(SCORING_VERSION),
        }

    def scales(self, names: Sequence[str]) -> dict[int, tuple[float, float]]:
        """See `Problem`; of objectives as `values` gives them, so with another sign where less is better."""
        found = {}
        for place, name in enumerate(names):
            one = self.spec.objectives.get(name)
            if one is not None and one.scale is not None:
                low, high = one.scale
                found[place] = (-high, -low) if one.direction == "min" else (low, high)
        return found

    def values(self, metrics: Mapping[str, Any]) -> dict[str, float]:
        """Return the objectives of metrics, higher is better.

        They are `combined_score`, where it is given, and those that problem.yaml names, by their direction; where it names
        none, see `directions.steering`.
        """
        numbers = numeric(metrics)
        if not self.spec.objectives:
            return {name: numbers[name] for name in steering(numbers, self.features)}
        signs = {name: SIGNS[one.direction] for name, one in self.spec.objectives.items()}
        signs = {COMBINED: 1.0, **signs}
        return {name: sign * numbers[name] for name, sign in signs.items() if sign and name in numbers}

    def fitness(self, metrics: Mapping[str, Any]) -> float | None:
        """Return one number for metrics: `combined_score`, else the mean of the objectives; None where there is none."""
        score = numeric(metrics).get(COMBINED)
        if score is not None:
            return score
        values = self.values(metrics)
        return sum(values.values()) / len(values) if values else None

    def steers(self, metrics: Mapping[str, Any]) -> list[str]:
        """Return the names of the metrics that decide fitness or an objective; a candidate that lacks one is invalid."""
        return list(self.values(metrics))

    def no_fitness(self, metrics: Mapping[str, Any]) -> str:
        """Return why metrics give no fitness."""
        costs = self.undirected(metrics)
        if not costs:
            return "no metric is a number"
        return (
            f"nothing says whether more or less of {', '.join(costs)} is better; add to problem.yaml beside the evaluator: "
            f"{line(costs)}"
        )

    def undirected(self, metrics: Mapping[str, Any]) -> list[str]:
        """Return the numeric metrics that look like costs and for which nobody has said a direction: they steer nothing."""
        known = {*self.spec.objectives, *self.features}
        return [name for name in numeric(metrics) if name not in known and looks_like_a_cost(name)]

    def roles(self, metrics: Mapping[str, Any]) -> dict[str, str]:
        """Return in words what each metric is to a search."""
        values, numbers = self.values(metrics), numeric(metrics)
        costs = self.undirected(metrics)
        found = {}
        for name, value in metrics.items():
            one = self.spec.objectives.get(name)
            if name == COMBINED and name in numbers:
                found[name] = "the fitness and an objective, more is better"
            elif name in values:
                found[name] = f"an objective, {'less' if one and one.direction == 'min' else 'more'} is better"
            elif name in self.features:
                found[name] = "a feature dimension"
            elif name in costs:
                found[name] = f"only shown to the model: whether less is better is for problem.yaml to say, `{line([name])}`"
            elif name in numbers:
                found[name] = "only shown to the model"
            else:
                found[name] = "a flag" if isinstance(value, bool) else "a text"
        return found

    def out_of_bounds(self, metrics: Mapping[str, Any]) -> str | None:
        """Return what is wrong with metrics that leave the bounds of problem.yaml, or None."""
        numbers = numeric(metrics)
        for name, one in self.spec.objectives.items():
            if one.bounds is not None and name in numbers and not one.bounds[0] <= numbers[name] <= one.bounds[1]:
                return f"the metric {name!r} is {numbers[name]:g}, outside of {list(one.bounds)}"
        return None


def load_evaluated(path: Path, initial: str | None, evaluator: str | None, config: str | None) -> EvaluatedProblem:
    """Load a folder with an evaluator. See `problem.load`."""
    program = path / initial if initial is not None else _find_initial(path)
    if not program.is_file():
        raise ProblemError(f"{program} is not a file; the initial program must be one.")
    source = read_text(program, path if initial is None else None)
    if not source.strip():
        raise ProblemError(f"{program} is empty; the search starts from it, so it must be a program that runs.")
    judge = path / (evaluator or "evaluator.py")
    _check_evaluator(judge, read_text(judge, path if evaluator is None else None))
    settings = path / (config or "config.yaml")
    if config is not None and not settings.is_file():
        raise ProblemError(f"{settings} is missing.")
    found = read_config(settings if settings.is_file() else None, path if config is None else None)
    if "max_code_length" in found.given and len(source) > found.whole("max_code_length", 1):
        raise ProblemError(
            f"{program} has {len(source)} characters and {settings} says max_code_length: "
            f"{found.whole('max_code_length', 1)}, so nearly every answer would be refused. Raise it, or leave it out: then "
            "programs may be twice as long as this one."
        )
    own = path / "problem.yaml"
    spec = load_yaml(own, EvaluatedSpec, path) if own.is_file() else EvaluatedSpec()
    listed = judge.parent / "requirements.txt"
    suffix = program.suffix
    language = found.given.get("language")
    return EvaluatedProblem(
        path=path,
        name=spec.name or re.sub(r"[^A-Za-z0-9_./-]+", "-", path.resolve().name) or "problem",
        language=str(language).lower() if language else LANGUAGES.get(suffix.lower(), suffix.lstrip(".").lower() or "text"),
        suffix=suffix,
        initial=source if source.endswith("\n") else source + "\n",
        evaluator=judge.name,
        files=needed(tree(judge.parent, MAX_FILES_MB), settings.name if settings.parent == judge.parent else None),
        config=found,
        spec=spec,
        requirements=_requirements(listed),
    )


def _find_initial(path: Path) -> Path:
    found = sorted(path.glob("initial_program*"))
    files = [one for one in found if one.is_file() and one.stem == "initial_program"]
    if len(files) == 1:
        return files[0]
    if len(files) > 1:
        names = ", ".join(one.name for one in files)
        raise ProblemError(f"{path} holds several initial programs: {names}. Name one with --initial.")
    if any(one.is_dir() for one in found):
        raise ProblemError(f"{found[0]} is a folder; programs of several files are not supported, only a single file is.")
    others = sorted(one.name for one in path.iterdir() if one.is_file() and one.suffix.lower() in LANGUAGES)
    hint = f" Files that are there: {', '.join(others[:10])}." if others else ""
    raise ProblemError(f"{path} has no initial_program.*; name the initial program with --initial.{hint}")


def _check_evaluator(path: Path, text: str) -> None:
    """Refuse a file that can't be an evaluator, before anything is started."""
    try:
        tree = ast.parse(text)
    except (SyntaxError, ValueError, RecursionError) as error:
        raise ProblemError(f"{path} is not Python: {error}.") from None
    names = {node.name for node in ast.walk(tree) if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef))}
    names |= {
        alias.asname or alias.name for node in ast.walk(tree) if isinstance(node, ast.ImportFrom) for alias in node.names
    }
    names |= {node.id for node in ast.walk(tree) if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store)}
    if not names & {"evaluate", "evaluate_stage1", "*"}:
        raise ProblemError(f"{path} defines no function evaluate(program_path), which returns a dict of metrics.")


def _requirements(path: Path) -> str | None:
    """Return the packages of a requirements.txt, or None where it names none."""
    if not path.is_file():
        return None
    try:
        wanted = python_requirements(read_text(path, path.parent, most_mb=1))
    except BadName as error:
        raise ProblemError(
            f"{path}, {error}. Expected lines such as `scipy>=1.11`, with extras, markers and hashes if need be."
        ) from None
    return "\n".join(wanted) + "\n" if wanted else None
