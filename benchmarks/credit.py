"""How many steps VPO takes with one credit for a completion and with credit per answer, on the paper's three-answer toy.

    python -m benchmarks.credit [--json] [--seeds 10] [--steps 200]

A model of some thousand parameters writes four of three letters, worth (1, 0), (0, 1) and (.6, .6); the best that a set can
be worth is .756 with all three, .750 without the third. Per credit and seed: the step at which the exact set reward, looked
at every five steps on 512 completions, first reaches .740, .750 and .753; `steps` where it never does. Differences are
paired by seed, with Student's 95 % interval.
"""

from __future__ import annotations

import argparse
import json
import os
import tempfile
from pathlib import Path
from typing import Any

import numpy as np
import torch
from scipy import stats
from transformers import TrainerCallback

from mutator_training.trainer import Job, TrainerOptions, build
from tests.mutator_training import tiny

LEVELS = (0.74, 0.75, 0.753)
CREDITS = ("completion", "answer")


def reached(credit: str, seed: int, steps: int) -> list[int]:
    """Train once; return the step at which each of `LEVELS` was reached."""
    model = tiny.model(seed)
    curve: list[tuple[int, float]] = []

    class Watch(TrainerCallback):  # type: ignore[misc]
        def on_step_end(self, args: Any, state: Any, control: Any, **_: Any) -> None:
            del args, control
            if state.global_step % 5 == 0:
                curve.append((state.global_step, tiny.best_of_m(model)))

    def live(step: int, rows: Any, trainer: Any) -> list[Any]:
        return [tiny.group(trainer.model, 16, 7919 * step + row + 100_003 * seed) for row in rows]

    options = TrainerOptions(estimator="vpo", groups_per_step=1, micro_batch=16, learning_rate=3e-3, beta=0.0, credit=credit)  # type: ignore[arg-type]
    with tempfile.TemporaryDirectory() as name:
        build(Job(model, tiny.tokenizer(), live, steps, 16, Path(name), options, seed, callbacks=(Watch(),))).train()
    return [next((step for step, worth in curve if worth >= level), steps) for level in LEVELS]


def main() -> None:
    """Train all and print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--seeds", type=int, default=10)
    parser.add_argument("--steps", type=int, default=200)
    given = parser.parse_args()
    os.environ["TRL_EXPERIMENTAL_SILENCE"] = "1"
    torch.set_num_threads(1)
    steps = {one: np.array([reached(one, seed, given.steps) for seed in range(given.seeds)]) for one in CREDITS}
    rows = []
    for place, level in enumerate(LEVELS):
        first, second = (steps[one][:, place] for one in CREDITS)
        gap = first - second
        half = float(stats.t.ppf(0.975, len(gap) - 1) * gap.std(ddof=1) / np.sqrt(len(gap)))
        rows.append(
            {
                "level": level,
                "completion": float(first.mean()),
                "answer": float(second.mean()),
                "fewer": float(gap.mean()),
                "low": float(gap.mean()) - half,
                "high": float(gap.mean()) + half,
                "seeds": given.seeds,
            }
        )
    if given.json:
        print(json.dumps(rows, indent=1))
        return
    for row in rows:
        print(
            f"set reward {row['level']:.3f}: {row['completion']:.1f} steps with credit=completion, {row['answer']:.1f} with "
            f"credit=answer; {row['fewer']:.1f} fewer (95 % interval {row['low']:.1f} to {row['high']:.1f}, "
            f"{row['seeds']} seeds)"
        )


if __name__ == "__main__":
    main()
