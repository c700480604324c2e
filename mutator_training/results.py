"""From a comparison's evidence to its figures: curves with 95 % intervals, paired differences, and the claims they carry."""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from dataclasses import asdict, replace
from typing import Any

import numpy as np

from mutator_training.evidence import Evidence
from mutator_training.metrics import ROUND, Difference, difference, interval, simultaneous
from mutator_training.samples import Measure, Samples, Side, Unit
from mutator_training.simplex import Array

POINTS = 33
"""Places on the axis of a search's budget."""


def results(evidence: Evidence) -> dict[str, Any]:
    """Return everything that `report.json` holds and the page shows."""
    sampled = bool(evidence.samples)
    ks = _ks(evidence)
    differences = _differences(evidence, ks)
    found: dict[str, Any] = {
        "about": dict(evidence.about),
        "arms": {arm: _arm(evidence, arm) for arm in evidence.arms},
        "seeds": evidence.seeds,
        "missing": list(evidence.missing),
        "curves": _curves(evidence, ks) if sampled else [],
        "differences": differences,
        "claims": claims(differences),
        "crossings": crossings(differences),
        "training": {arm: _training(evidence.trainings.get(arm, ())) for arm in evidence.arms},
        "search": _search(evidence),
    }
    return found


def _ks(evidence: Evidence) -> list[int]:
    if not evidence.samples:
        return []
    count = next(iter(evidence.samples.values()))[0].keys[0].size
    return sorted({1 << power for power in range(count.bit_length()) if 1 << power <= count} | {count})


def _arm(evidence: Evidence, arm: str) -> dict[str, Any]:
    """Return what is said about an arm alone: diversity, full completions, cost by stage."""
    found: dict[str, Any] = {"answers_per_completion": evidence.answers[arm], "cost": _costs(evidence.costs.get(arm, ()))}
    samples = evidence.samples.get(arm, ())
    if samples:
        described = [[asdict(one) for one in each.diversity()] for each in samples]
        found["diversity"] = {
            name: _rounded(interval(np.array([[one[name] for one in each] for each in described])))
            for name in described[0][0]
        }
        found["full_completions"] = round(float(np.mean([one.full() for one in samples])), 4)
        found["completions"] = int(samples[0].keys.shape[1])
        found["problems"] = len(samples[0].problems)
    return found


def _costs(per_seed: Sequence[Mapping[str, Mapping[str, Any]]]) -> dict[str, dict[str, dict[str, float]]]:
    """Return, by stage and figure, the mean over seeds, the least and the most."""
    found: dict[str, dict[str, dict[str, float]]] = {}
    for stage in ("train", "sample", "search"):
        rows = [one.get(stage, {}) for one in per_seed]
        names = [name for name, value in rows[0].items() if isinstance(value, (int, float))] if rows else []
        found[stage] = {
            name: {
                "mean": round(float(np.mean([row[name] for row in rows])), 2),
                "least": min(row[name] for row in rows),
                "most": max(row[name] for row in rows),
            }
            for name in names
        }
    return found


def sides(samples: Samples) -> list[Side]:
    """Return the sides that problems have: hidden tests may be none."""
    return ["visible", "hidden"] if samples.hidden.shape[-1] else ["visible"]


def _curves(evidence: Evidence, ks: Sequence[int]) -> list[dict[str, Any]]:
    found = []
    measures: tuple[Measure, ...] = ("pass", "best")
    units: tuple[Unit, ...] = ("answer", "completion")
    for arm, samples in evidence.samples.items():
        for measure, side, unit in itertools.product(measures, sides(samples[0]), units):
            values = np.array([one.curve(measure, side, unit, ks) for one in samples])
            here = [k for place, k in enumerate(ks) if not np.isnan(values[..., place]).any()]
            bands = [_share(values[..., place]) for place in range(len(here))]
            found.append({"arm": arm, "measure": measure, "side": side, "unit": unit, "ks": here, "bands": bands})
    return found


def _share(values: Any) -> list[float]:
    """Return the band of a share, or of what reaches further: the stretched interval of few problems can leave its range."""
    mean, low, high = interval(values)
    return _rounded((mean, max(low, min(0.0, values.min())), min(high, max(1.0, values.max()))))


def _rounded(band: Sequence[float]) -> list[float]:
    return [round(float(value), 5) for value in band]


def _differences(evidence: Evidence, ks: Sequence[int]) -> list[dict[str, Any]]:
    """Return the paired differences of every two arms, the primary endpoint's first.

    They are in pass@k and best@k per answer, where arms cost the same, and in what searches reach. The primary endpoint,
    chosen before any figure is seen, is pass@k at the greatest k on the hidden side, where there is one; its intervals hold
    together over the pairs of arms, those of all differences over all of them.
    """
    rows = [*(_sample_differences(evidence, ks) if ks else []), *_search_differences(evidence)]
    if not rows:
        return []
    primary = _primary(rows, ks)
    family = simultaneous([pair for _, pair in rows])
    own = simultaneous([pair for row, pair in rows if _is(row, primary)])
    found: list[dict[str, Any]] = []
    for (row, pair), joint in zip(rows, family, strict=True):
        is_primary = _is(row, primary)
        low, high = own.pop(0) if is_primary else joint
        one = difference(*pair)
        claimed = bool(one.seeds > 1 and (low > ROUND or high < -ROUND))
        said = _said(replace(one, claimed=claimed))
        bounds = {"joint_low": round(low, 5), "joint_high": round(high, 5)}
        found.append({**row, "primary": is_primary, **said, **bounds})
    return sorted(found, key=lambda one: not one["primary"])


def _primary(rows: Sequence[tuple[dict[str, Any], Any]], ks: Sequence[int]) -> tuple[str, str]:
    """Return measure and side of the primary endpoint."""
    if not ks:
        return "solved in search", "visible"
    measure = f"pass@{ks[-1]}"
    return measure, "hidden" if any(_is(row, (measure, "hidden")) for row, _ in rows) else "visible"


def _is(row: Mapping[str, Any], endpoint: tuple[str, str]) -> bool:
    return (row["measure"], row["side"]) == endpoint


def _sample_differences(evidence: Evidence, ks: Sequence[int]) -> list[tuple[dict[str, Any], tuple[Array, Array]]]:
    """Return what is compared in samples, and the two arms' values."""
    found = []
    measures: tuple[Measure, ...] = ("pass", "best")
    first_samples = next(iter(evidence.samples.values()))[0]
    for measure, side in itertools.product(measures, sides(first_samples)):
        curves = {
            arm: np.array([one.curve(measure, side, "answer", ks) for one in samples])
            for arm, samples in evidence.samples.items()
        }
        for first, second in itertools.combinations(evidence.arms, 2):
            for place, k in enumerate(ks):
                row = {"first": first, "second": second, "measure": f"{measure}@{k}", "side": side}
                found.append((row, (curves[first][..., place], curves[second][..., place])))
    return found


def _search_differences(evidence: Evidence) -> list[tuple[dict[str, Any], tuple[Array, Array]]]:
    """Return what is compared in searches, and the two arms' values."""
    if not all(evidence.searches.get(arm) for arm in evidence.arms):
        return []
    found = []
    for name in ("solved in search", "best score in search"):
        values = {arm: _ends(evidence.searches[arm], name) for arm in evidence.arms}
        for first, second in itertools.combinations(evidence.arms, 2):
            row = {"first": first, "second": second, "measure": name, "side": "visible"}
            found.append((row, (values[first], values[second])))
    return found


def _ends(searches: Sequence[Mapping[str, Any]], name: str) -> Array:
    rows = [
        [float(one.solved_at is not None) if name.startswith("solved") else one.best[-1] for one in each.values()]
        for each in searches
    ]
    return np.array(rows)


def _said(one: Difference) -> dict[str, Any]:
    """Return a difference for the report; its p-value keeps its digits, which may be after many zeros."""
    whole = asdict(one)
    return {
        name: round(value, 5) if isinstance(value, float) and name != "sign_p" else value for name, value in whole.items()
    }


def claims(differences: Sequence[Mapping[str, Any]]) -> list[str]:
    """Return, in words, the differences whose joint interval leaves 0 out; the same sentence whichever arm comes first."""
    found = []
    for one in differences:
        if not one["claimed"]:
            continue
        ahead, behind = (one["first"], one["second"]) if one["mean"] > 0 else (one["second"], one["first"])
        low, high = sorted((abs(one["joint_low"]), abs(one["joint_high"])))
        better, worse = (one["better"], one["worse"]) if one["mean"] > 0 else (one["worse"], one["better"])
        tests = "" if one["measure"].endswith("search") else f" on {one['side']} tests"
        found.append(
            f"{ahead} is ahead of {behind} in {one['measure']}{tests} by {abs(one['mean']):.3f} (simultaneous 95 % interval "
            f"{low:.3f} to {high:.3f}; {one['problems']} problems, {one['seeds']} seeds; ahead on {better} problems, behind "
            f"on {worse}, sign test p = {one['sign_p']:.2g})"
        )
    return found


def crossings(differences: Sequence[Mapping[str, Any]]) -> list[str]:
    """Return the pairs of which one arm is ahead at the smallest k and the other at the largest, both claimed."""
    found = []
    groups: dict[tuple[str, str, str, str], list[Mapping[str, Any]]] = {}
    for one in differences:
        measure, at, _ = one["measure"].partition("@")
        if at:
            groups.setdefault((one["first"], one["second"], measure, one["side"]), []).append(one)
    for (first, second, _, side), rows in groups.items():
        start, end = rows[0], rows[-1]
        if start["claimed"] and end["claimed"] and start["mean"] * end["mean"] < 0:
            early, late = (first, second) if start["mean"] > 0 else (second, first)
            found.append(
                f"{early} is ahead of {late} in {start['measure']}, {late} is ahead of {early} in {end['measure']} "
                f"({side} tests)"
            )
    return found


def _training(trainings: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Return the evaluations during training with bands, and the trainer's own figures as means over seeds."""
    found: dict[str, Any] = {"curve": [], "steps": []}
    curves = [training["curve"] for training in trainings]
    for rows in zip(*curves, strict=False):
        one: dict[str, Any] = {"step": rows[0]["step"]}
        for k in rows[0]["pass"]:
            one[f"pass@{k}"] = _share(np.array([row["pass"][k] for row in rows]))
        for name, value in rows[0].items():
            if isinstance(value, (int, float)) and name not in ("step", "seconds"):
                values = [row[name] for row in rows]
                one[name] = [round(float(each), 5) for each in (np.mean(values), min(values), max(values))]
        found["curve"].append(one)
    for rows in zip(*(training["steps"] for training in trainings), strict=False):
        names = [name for name in SHOWN if all(name in row for row in rows)]
        found["steps"].append({name: round(float(np.mean([row[name] for row in rows])), 5) for name in names})
    return found


SHOWN = (
    "step",
    "rollouts/set_reward",
    "rollouts/coverage",
    "rollouts/tied_groups",
    "rollouts/distinct_answers",
    "kl",
    "entropy",
    "grad_norm",
    "clip_ratio/region_mean",
)
"""Figures of the trainer that are kept; `kl` only where it is in the loss."""


def _search(evidence: Evidence) -> dict[str, Any]:
    """Return, per arm, solved problems (of all, mean over seeds) and best score against candidates and tokens."""
    if not all(evidence.searches.get(arm) for arm in evidence.arms):
        return {}
    everything = [one for arm in evidence.arms for each in evidence.searches[arm] for one in each.values()]
    spent = max(one.all_candidates for one in everything)
    tokens = max(one.all_tokens for one in everything)
    found: dict[str, Any] = {
        "problems": list(evidence.searches[evidence.arms[0]][0]),
        "candidates": [round(value) for value in np.linspace(0, spent, POINTS)],
        "tokens": [round(value) for value in np.linspace(0, tokens, POINTS)],
        "arms": {},
    }
    for arm in evidence.arms:
        searches = evidence.searches[arm]
        solved = [[one.solved_at for one in each.values()] for each in searches]
        solved_tokens = [[one.solved_tokens for one in each.values()] for each in searches]
        best = [
            np.array([[one.best_at(spent) for one in each.values()] for each in searches]) for spent in found["candidates"]
        ]
        found["arms"][arm] = {
            "solved_by_candidates": [_share(_by(solved, limit)) for limit in found["candidates"]],
            "solved_by_tokens": [_share(_by(solved_tokens, limit)) for limit in found["tokens"]],
            "best_by_candidates": [_share(values) for values in best],
            "confirmed": round(float(np.mean([one.confirmed for each in searches for one in each.values()])), 4),
        }
    return found


def _by(solved: Sequence[Sequence[int | None]], limit: int) -> Array:
    return np.array([[float(at is not None and at <= limit) for at in each] for each in solved])
