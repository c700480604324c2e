"""From what the user gives to the options of a run: the command line over the folder's config over the defaults."""

from __future__ import annotations

import math
import secrets
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from evolve.answers import MAX_PROGRAM
from evolve.database import Database
from evolve.errors import BadInput
from evolve.evaluated import EvaluatedProblem
from evolve.foreign import ForeignConfig
from evolve.options import Options
from evolve.population import Shape
from evolve.problem import Problem
from evolve.selection import Ratios

DEFAULT_CANDIDATES = 100
ROOM_TO_GROW = 2
"""How much longer than the initial program a candidate may be, where nothing says how long."""
RATIOS = ("database.exploration_ratio", "database.exploitation_ratio", "database.elite_selection_ratio")


def search_options(problem: Problem, given: Mapping[str, Any]) -> Options:
    """Return the options of a search.

    Args:
        problem: whose config has defaults of its own.
        given: what the user decided by name of `Options`, None where nothing; beside them those of `Shape`.

    Raises:
        BadInput: a value can't be taken.
    """
    chosen = {name: value for name, value in given.items() if value is not None}
    shaped = {name: chosen.pop(name) for name in ("islands", "stagnation") if name in chosen}
    values: dict[str, Any] = {"longest": max(MAX_PROGRAM, ROOM_TO_GROW * len(problem.initial))}
    if isinstance(problem, EvaluatedProblem):
        values |= _of_config(problem)
    budgets = ("candidates", "tokens", "minutes", "generations")
    if any(name in chosen for name in budgets):
        values.pop("candidates", None)
        values["candidates"] = None
    elif "candidates" not in values:
        values["candidates"] = DEFAULT_CANDIDATES
    values |= chosen
    if shaped:
        values["population"] = replace(values.get("population", Shape()), **shaped)
    return Options(**values)


def _of_config(problem: EvaluatedProblem) -> dict[str, Any]:
    """Return what an OpenEvolve config says about the search; OpenEvolve's defaults where it says nothing."""
    config = problem.config
    values: dict[str, Any] = {
        "edits": "auto" if config.flag("diff_based_evolution") else "full",
        "edit_pattern": config.pattern,
        "inspirations": 0,
        "top": config.whole("prompt.num_top_programs"),
        "diverse": config.whole("prompt.num_diverse_programs"),
        "selection": "openevolve" if any(key in config.given for key in RATIOS) else "lexicase",
        "ratios": Ratios(*(config.number(key) for key in RATIOS)),
        "population": _shape(problem),
    }
    if "max_code_length" in config.given:
        values["longest"] = config.whole("max_code_length", 1)
    if "max_iterations" in config.given:
        values["candidates"] = config.whole("max_iterations", 1)
    if config.given.get("early_stopping_patience") is not None:
        patience = config.whole("early_stopping_patience", -math.inf)
        if patience > 0:
            values |= {"patience": patience, "better_by": config.number("convergence_threshold")}
        else:  # OpenEvolve's word for "when the metric is at the threshold"
            values["reach"] = config.number("convergence_threshold", -math.inf)
        metric = str(config.get("early_stopping_metric"))
        values["patience_metric"] = None if metric == "combined_score" else metric
    return values


def _shape(problem: EvaluatedProblem) -> Shape:
    config = problem.config
    islands = config.whole("database.num_islands", 1)
    bins = config.get("database.feature_bins")
    if isinstance(bins, Mapping):
        bins = {str(name): round(count) for name, count in bins.items()}
    elif isinstance(bins, bool) or not isinstance(bins, (int, float)) or bins < 1:
        raise BadInput(f"{config.path}: database.feature_bins must be a number or a mapping of numbers; came {bins!r}.")
    else:
        bins = round(bins)
    return Shape(
        islands=islands,
        capacity=max(islands, config.whole("database.population_size", 1)),
        archive=max(1, config.whole("database.archive_size")),
        migration_interval=max(1, config.whole("database.migration_interval")),
        migration_rate=config.number("database.migration_rate"),
        features=problem.features,
        bins=bins,
    )


def sampling(config: ForeignConfig) -> dict[str, Any]:
    """Return what a config says about sampling."""
    found = {}
    for key, name in (("llm.temperature", "temperature"), ("llm.top_p", "top_p")):
        if key in config.given:
            found[name] = config.number(key)
    if "llm.max_tokens" in config.given:
        found["max_tokens"] = config.whole("llm.max_tokens", 1)
    return found


def service(config: ForeignConfig) -> dict[str, Any]:
    """Return what a config says about requests: seconds that one may take, and how often one that fails is repeated."""
    found: dict[str, Any] = {}
    if "llm.timeout" in config.given:
        found["timeout"] = config.number("llm.timeout", 0.1)
    if "llm.retries" in config.given:
        found["retries"] = config.whole("llm.retries")
    return found


def seed_of(problem: Problem) -> int:
    """Return a seed that the user did not give."""
    if isinstance(problem, EvaluatedProblem) and "random_seed" in problem.config.given:
        return problem.config.whole("random_seed")
    return secrets.randbelow(1 << 31)


def workers_of(problem: Problem) -> int:
    """Return how many candidates are scored at the same time, where the user says nothing."""
    if isinstance(problem, EvaluatedProblem) and "evaluator.parallel_evaluations" in problem.config.given:
        return max(1, problem.config.whole("evaluator.parallel_evaluations"))
    return 2


def replayed(folder: Path, given: Mapping[str, Any]) -> Options:
    """Return the options of a recorded run, changed where the user says so."""
    database = Database.open(folder)
    try:
        stored = database.run().options["search"]
    finally:
        database.close()
    chosen = {name: value for name, value in given.items() if value is not None and name in Options.__dataclass_fields__}
    return replace(Options.restored(stored), **chosen)


def run_seed(folder: Path) -> int:
    """Return the seed of a recorded run."""
    database = Database.open(folder)
    try:
        return int(database.run().seed)
    finally:
        database.close()
