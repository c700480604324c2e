"""What a comparison does: arms, seeds, sizes. Stored as `plan.json` in its folder, so that it can go on after any stop."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any, Literal

from evolve.errors import BadInput
from evolve.files import make_folder
from mutator_training.arms import Arm, parse_all

PLAN = "plan.json"
Kind = Literal["toy", "programs"]


@dataclass(frozen=True, slots=True)
class Plan:
    """A comparison.

    Attributes:
        kind: `toy` for operator tasks with a model made here, `programs` for problem folders with a served model.
        arms: see `arms.parse`.
        seeds: trainings of each arm; each seed starts all arms from the same point.
        train_steps: optimizer steps.
        prompts: prompts of a step.
        group: scored answers per prompt and step; an arm with m answers samples group / m completions.
        answers: m of the arms that have several.
        samples: answers sampled per held-out problem.
        search_budget: candidates of the frozen search on each of the hardest problems; 0 for no search.
        hardest: how many problems are searched; None takes those that no arm solved in the samples.
        curve_every: steps between two evaluations during training; 0 for none.
        curve_samples: answers per held-out problem in each.
        learning_rate, beta: of the training, where an arm sets none.
        temperature: of the sampling in evaluations; training samples at 1.
        options: of the kind; see `toy.ToyOptions`, `folders.FolderOptions`.
        problems, train: folders of held-out and of training problems (`programs`).
        jobs: cells at a time.
    """

    kind: Kind = "toy"
    arms: Sequence[str] = ("base", "grpo", "vpo", "best_of_m")
    seeds: int = 3
    train_steps: int = 600
    prompts: int = 16
    group: int = 32
    answers: int = 4
    samples: int = 256
    search_budget: int = 256
    hardest: int | None = 12
    curve_every: int = 100
    curve_samples: int = 64
    learning_rate: float = 1e-4
    beta: float = 0.0
    temperature: float = 1.0
    options: dict[str, Any] = field(default_factory=dict)
    problems: Sequence[str] = ()
    train: Sequence[str] = ()
    jobs: int = 2

    @property
    def parsed(self) -> list[Arm]:
        """The arms. Raises BadInput."""
        return parse_all(self.arms, self.answers, self.group, self.samples)


def same(one: Plan, other: Plan) -> bool:
    """Whether two plans give the same figures; how many cells run at a time decides none."""
    return replace(one, jobs=1) == replace(other, jobs=1)


def store(folder: Path, plan: Plan) -> None:
    """Write a plan, or check it against the one that is there. More seeds make more cells and change none.

    Raises:
        BadInput: the folder holds another plan.
    """
    normal = Plan(**json.loads(json.dumps(asdict(plan))))
    path = folder / PLAN
    if path.exists():
        stored = load(folder)
        more = normal.seeds > stored.seeds
        if not same(replace(stored, seeds=normal.seeds) if more else stored, normal):
            given = asdict(normal)
            differing = [name for name, value in asdict(stored).items() if given[name] != value and name != "jobs"]
            raise BadInput(
                f"{folder} holds a comparison with another plan ({', '.join(differing)} differ). Give the same options to "
                "go on with it, or another --out."
            )
        if not more:
            return
    make_folder(folder)
    unborn = folder / f".{PLAN}"
    unborn.write_text(json.dumps(asdict(normal), indent=1), encoding="utf-8")
    unborn.rename(path)


def load(folder: Path) -> Plan:
    """Read the plan of a comparison.

    Raises:
        BadInput: there is none.
    """
    try:
        return Plan(**json.loads((folder / PLAN).read_text(encoding="utf-8")))
    except FileNotFoundError:
        raise BadInput(f"{folder} holds no comparison: there is no {PLAN}.") from None
