"""What a comparison has found so far, read from its files, or from runs that exist."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from sqlalchemy import select

from evolve import schema as s
from evolve.connection import reading
from evolve.errors import BadInput
from mutator_training.comparison import cells
from mutator_training.plan import load
from mutator_training.samples import Samples
from mutator_training.trace import Trace, trace


@dataclass(frozen=True, slots=True)
class Evidence:
    """Per arm, and in each list per seed.

    Attributes:
        arms: labels, in the order given.
        answers: m, by arm.
        about: what was done, for the page: the plan's fields, or the runs.
        samples: answers to held-out problems; empty when there are none.
        trainings: `Lab.train`'s results.
        searches: traces by problem.
        costs: by stage (train, sample, search).
        missing: cells that are not finished.
    """

    arms: Sequence[str]
    answers: Mapping[str, int]
    about: Mapping[str, Any]
    samples: Mapping[str, Sequence[Samples]]
    trainings: Mapping[str, Sequence[Mapping[str, Any]]]
    searches: Mapping[str, Sequence[Mapping[str, Trace]]]
    costs: Mapping[str, Sequence[Mapping[str, Mapping[str, Any]]]]
    missing: Sequence[str]

    @property
    def seeds(self) -> int:
        """Seeds that every arm has."""
        counts = [len(found) for kind in (self.samples, self.searches) for found in kind.values() if found]
        return min(counts, default=0)


def gather(folder: Path) -> Evidence:
    """Read a comparison, also an unfinished one: the seeds that every arm has finished.

    Raises:
        BadInput: no comparison, or no seed is finished.
    """
    plan = load(folder)
    arms = plan.parsed
    everything = cells(folder, plan)
    missing = [cell.folder.name for cell in everything if not (cell.folder / "sample.json").exists()]
    unfinished = {cell.seed for cell in everything if cell.folder.name in missing}
    seeds = [seed for seed in range(plan.seeds) if seed not in unfinished]
    if not seeds:
        raise BadInput(f"{folder}: no seed is finished for every arm; `evolve compare --out {folder}` goes on with it.")
    by_place = {(cell.arm.label, cell.seed): cell.folder for cell in everything}
    samples: dict[str, list[Samples]] = {}
    trainings: dict[str, list[dict[str, Any]]] = {}
    searches: dict[str, list[dict[str, Trace]]] = {}
    costs: dict[str, list[dict[str, Any]]] = {}
    searched = all((by_place[arm.label, seed] / "search.json").exists() for arm in arms for seed in seeds)
    for arm in arms:
        places = [by_place[arm.label, seed] for seed in seeds]
        samples[arm.label] = [Samples.load(place / "samples.npz") for place in places]
        trainings[arm.label] = [json.loads((place / "train.json").read_text(encoding="utf-8")) for place in places]
        costs[arm.label] = [
            {"train": training["cost"], "sample": json.loads((place / "sample.json").read_text(encoding="utf-8"))["cost"]}
            for place, training in zip(places, trainings[arm.label], strict=True)
        ]
        searches[arm.label] = []
        if searched:
            for place, cost in zip(places, costs[arm.label], strict=True):
                found = json.loads((place / "search.json").read_text(encoding="utf-8"))
                searches[arm.label].append({name: Trace(**one) for name, one in found["searches"].items()})
                cost["search"] = found["cost"]
    prepared = json.loads((folder / "prepare.json").read_text(encoding="utf-8"))
    about = json.loads((folder / "plan.json").read_text(encoding="utf-8")) | {"base": prepared["cost"]}
    answers = {arm.label: arm.answers for arm in arms}
    return Evidence([arm.label for arm in arms], answers, about, samples, trainings, searches, costs, missing)


def gather_runs(given: Sequence[str]) -> Evidence:
    """Read runs that exist, as searches of arms.

    Args:
        given: `LABEL=RUN` each; several runs of an arm on one problem are its seeds.

    Raises:
        BadInput: one has another form, or arms have different problems or numbers of runs.
    """
    found: dict[str, dict[str, list[tuple[int, Path, int]]]] = {}
    for one in given:
        label, equals, place = one.partition("=")
        if not equals or not label:
            raise BadInput(f"--from: expected LABEL=RUN, came {one!r}.")
        with reading(Path(place)) as connection:
            run = connection.execute(select(s.run)).one()
        answers = int(run.options.get("search", {}).get("answers", 1))
        problem = Path(run.problem).name
        found.setdefault(label, {}).setdefault(problem, []).append((int(run.seed), Path(place), answers))
    shapes = {label: {problem: len(runs) for problem, runs in arm.items()} for label, arm in found.items()}
    counts = {count for arm in shapes.values() for count in arm.values()}
    if len({tuple(sorted(arm)) for arm in shapes.values()}) > 1 or len(counts) > 1:
        raise BadInput(f"--from: every arm needs the same problems and as many runs of each; came {shapes}.")
    (seeds,) = counts
    searches = {
        label: [{problem: trace(sorted(runs)[seed][1]) for problem, runs in sorted(arm.items())} for seed in range(seeds)]
        for label, arm in found.items()
    }
    costs = {label: [{"search": _spent(one)} for one in per_seed] for label, per_seed in searches.items()}
    answers_of = {label: next(iter(arm.values()))[0][2] for label, arm in found.items()}
    return Evidence(list(found), answers_of, {"runs": list(given)}, {}, {}, searches, costs, [])


def _spent(searches: Mapping[str, Trace]) -> dict[str, int]:
    return {
        "answers": sum(one.all_candidates for one in searches.values()),
        "sampled_tokens": sum(one.all_tokens for one in searches.values()),
    }
