"""How often the gate rejects a version, by how much worse it is: its operating curve, by simulation.

    python -m benchmarks.gate [--json] [--rounds 400]

Two prompts, set rewards drawn from normal distributions with means .35 and .9 and standard deviation .1 (old version) and
the same minus the fall (new version), N completions of each version and prompt. `once` is the test of one refresh; `twelve`
is the share of series of up to twelve refreshes, each worse than the one before by the fall, in which some version is
rejected, by either test, and `at` the number of the refresh at which, in the mean over those series.
"""

from __future__ import annotations

import argparse
import json

import numpy as np

from mutator_training.gate import compare, has_fallen

MEANS, SPREAD = (0.35, 0.9), 0.1
FALLS = (0.0, 0.025, 0.05, 0.1, 0.2, 0.3)
SIZES = (2, 4, 8, 16)
SERIES = 12


def once(size: int, fall: float, rounds: int) -> float:
    """Return the share of single refreshes that are rejected."""
    rng = np.random.default_rng(1)
    rejected = 0
    for _ in range(rounds):
        before, after = ([rng.normal(mean - lower, SPREAD, size).tolist() for mean in MEANS] for lower in (0.0, fall))
        rejected += not compare(before, after).accepted
    return rejected / rounds


def twelve(size: int, fall: float, rounds: int) -> tuple[float, float]:
    """Return the share of series in which some version is rejected, and at which refresh in the mean."""
    rng = np.random.default_rng(2)
    rejected = []
    for _ in range(rounds):
        changes: list[tuple[float, float]] = []
        for number in range(SERIES):
            before = [rng.normal(mean - number * fall, SPREAD, size).tolist() for mean in MEANS]
            after = [rng.normal(mean - (number + 1) * fall, SPREAD, size).tolist() for mean in MEANS]
            verdict = compare(before, after)
            changes.append((verdict.change, verdict.variance))
            if not verdict.accepted or has_fallen(changes):
                rejected.append(number + 1)
                break
    return len(rejected) / rounds, float(np.mean(rejected)) if rejected else float("nan")


def main() -> None:
    """Simulate and print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--rounds", type=int, default=400)
    given = parser.parse_args()
    rows = [
        {
            "completions": size,
            "fall": fall,
            "once": once(size, fall, given.rounds),
            **dict(zip(("twelve", "at"), twelve(size, fall, given.rounds // 4), strict=True)),
        }
        for size in SIZES
        for fall in FALLS
    ]
    if given.json:
        print(json.dumps(rows, indent=1))
        return
    for row in rows:
        print(
            f"{row['completions']:>2} completions of each version and prompt, fall {row['fall']:.3f}: rejected "
            f"{row['once']:.0%} of {given.rounds}; within {SERIES} refreshes {row['twelve']:.0%} of "
            f"{given.rounds // 4} series, at number {row['at']:.1f}"
        )


if __name__ == "__main__":
    main()
