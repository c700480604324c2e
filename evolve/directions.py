"""Which metrics of an evaluator steer a search, and which way: pure functions of names.

An evaluator doesn't say whether more of a metric is better. `combined_score` is OpenEvolve's own word for *more is better*;
where it is given, it alone steers. Without it OpenEvolve takes the mean of all metrics; here a metric whose name says that
it is a cost is left out of it. problem.yaml decides everything else.
"""

from __future__ import annotations

import re
from collections.abc import Iterable

COMBINED = "combined_score"
COSTS = {
    "time", "times", "runtime", "latency", "duration", "seconds", "secs", "sec", "ms", "us", "ns", "error",
    "errors", "err", "loss", "losses", "cost", "costs", "memory", "mem", "bytes", "mb", "mse", "rmse", "mae",
    "mape", "penalty", "penalties", "violation", "violations", "regret", "perplexity", "failures", "misses",
    "overhead",
}  # fmt: skip
GAINS = {
    "score", "scores", "speedup", "reward", "accuracy", "quality", "efficiency", "success", "rate", "passed",
    "inverse", "inv", "neg", "negative", "saved", "saving", "savings", "reduction", "improvement",
}  # fmt: skip
_PARTS = re.compile(r"[A-Z]?[a-z]+|[A-Z]+")


def looks_like_a_cost(name: str) -> bool:
    """Return whether a metric's name says that less is better, such as `eval_time` or `msPerFrame`, but not `time_score`."""
    parts = {part.lower() for part in _PARTS.findall(name)}
    return bool(parts & COSTS) and not parts & GAINS


def steering(names: Iterable[str], features: Iterable[str]) -> list[str]:
    """Return which numeric metrics are objectives where problem.yaml names none; more of each is better."""
    given = list(names)
    if COMBINED in given:
        return [COMBINED]
    others = set(features)
    return [name for name in given if name not in others and not looks_like_a_cost(name)]


def line(names: Iterable[str]) -> str:
    """Return what a user adds to problem.yaml to make metrics steer."""
    return "objectives: {" + ", ".join(f"{name}: {{direction: min}}" for name in names) + "}"
