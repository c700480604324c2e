"""Time of VPO's advantages for one group, beside its definition written as loops, interleaved in one run.

    python benchmarks/estimators.py [--rounds 30] [--json]

The loops draw K = 100 Dirichlet weights with the standard library and take, for each completion and weight, the best
answer's weighted score: what the paper's formula says. Every round has another group, so that binary rewards are never found
in a cache; in a run, where patterns of passing tests come again and again, they mostly are. Figures are milliseconds per
group, medians over the rounds with the smallest and the largest.
"""

from __future__ import annotations

import argparse
import json
import random
import statistics
import time
from collections.abc import Callable
from typing import Any

import numpy as np

from mutator_training.estimators import vpo

Group = list[list[list[float]]]


def loops(group: Group, draws: int = 100) -> list[float]:
    """Return the advantages of a group, as the definition reads."""
    k = len(group[0][0])
    rewards = [0.0] * len(group)
    for _ in range(draws):
        exponential = [random.expovariate(1.0) for _ in range(k)]
        total = sum(exponential)
        weights = [value / total for value in exponential]
        for index, answers in enumerate(group):
            rewards[index] += max(sum(w * r for w, r in zip(weights, answer, strict=True)) for answer in answers) / draws
    mean = sum(rewards) / len(rewards)
    deviation = statistics.pstdev(rewards)
    return [(reward - mean) / (deviation + 1e-6) for reward in rewards]


def milliseconds(work: Callable[[], Any]) -> float:
    """Return how long one call takes."""
    started = time.perf_counter()
    work()
    return 1000 * (time.perf_counter() - started)


def measure(kind: str, size: int, answers: int, objectives: int, rounds: int) -> dict[str, Any]:
    """Time both ways on the same groups; the first call of ours, which fills its caches, is reported apart."""
    rng = np.random.default_rng(0)
    ours: list[float] = []
    theirs: list[float] = []
    for _ in range(rounds + 1):
        scores = rng.random((size, answers, objectives))
        scores = (scores < 0.3).astype(float) if kind == "binary" else scores
        group: Group = scores.tolist()
        ours.append(milliseconds(lambda scores=scores: vpo(list(scores), concentration=1.0)))
        theirs.append(milliseconds(lambda group=group: loops(group)))
    ratios = [slow / fast for slow, fast in zip(theirs[1:], ours[1:], strict=True)]
    figures = {"ours_ms": ours[1:], "loops_ms": theirs[1:], "loops_over_ours": ratios}
    return {
        "rewards": kind,
        "completions": size,
        "answers": answers,
        "objectives": objectives,
        "first_call_ms": ours[0],
        **{name: {"median": statistics.median(v), "min": min(v), "max": max(v)} for name, v in figures.items()},
    }


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=30)
    parser.add_argument("--json", action="store_true")
    arguments = parser.parse_args()
    shapes = [("real", 16, 4, 64), ("binary", 16, 4, 64), ("real", 8, 3, 16), ("binary", 8, 3, 16), ("real", 64, 8, 100)]
    found = [measure(*shape, arguments.rounds) for shape in shapes]
    if arguments.json:
        print(json.dumps(found, indent=1))
    else:
        for one in found:
            print(
                f"{one['rewards']}, G={one['completions']}, m={one['answers']}, k={one['objectives']}: "
                f"ours {one['ours_ms']['median']:.2f} ms, loops {one['loops_ms']['median']:.1f} ms, "
                f"{one['loops_over_ours']['median']:.0f} times ({one['loops_over_ours']['min']:.0f} to "
                f"{one['loops_over_ours']['max']:.0f})"
            )
