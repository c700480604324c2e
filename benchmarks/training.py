"""What our trainer costs beside plain TRL, and what a refresh costs beside its training.

    python -m benchmarks.training [--json] [--rounds 3] [--model smollm2-135m-instruct] [--run RUN]

Trainer: the same model, LoRA, rollouts and GRPOConfig, once with `RolloutTrainer` and VPO, once with TRL's GRPOTrainer,
whose reward function returns numbers that lie ready; interleaved, tokens (prompt and completion) per second of `train()`.
Refresh: with `--run`, the seconds of each refresh of that run that were neither training nor loading nor the gate's. The
estimator itself is measured by `benchmarks/estimators.py`.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import tempfile
import time
import warnings
from pathlib import Path
from typing import Any

import numpy as np

PROMPT, COMPLETION, GROUPS, SIZE, ANSWERS, TESTS = 256, 128, 2, 4, 2, 16


def rollouts(vocabulary: int, seed: int) -> list[Any]:
    """Return random groups: their contents don't matter to the time, their shapes do."""
    from mutator_training.rollouts import Group, Rollout

    rng = np.random.default_rng(seed)
    found = []
    for prompt in range(GROUPS):
        members = [
            Rollout(
                place,
                rng.integers(10, vocabulary, COMPLETION),
                np.full(COMPLETION, -2.0),
                np.ones(COMPLETION, dtype=bool),
                rng.integers(0, 2, (ANSWERS, TESTS)).astype(float),
                False,
            )
            for place in range(SIZE)
        ]
        found.append(Group(prompt, 1, "m", rng.integers(10, vocabulary, PROMPT), members, ANSWERS))
    return found


def measure(model_name: str, rounds: int) -> dict[str, Any]:
    """Train with both in turn; return tokens per second."""
    import torch
    from peft import LoraConfig
    from transformers import AutoModelForCausalLM, AutoTokenizer
    from trl import GRPOTrainer

    from evolve.models import resolve
    from mutator_training.adapter import LORA
    from mutator_training.trainer import Job, TrainerOptions, build, stored

    path = resolve(model_name, lambda _: None)
    tokenizer = AutoTokenizer.from_pretrained(path)
    tokens = GROUPS * SIZE * (PROMPT + COMPLETION)
    rates: dict[str, list[float]] = {"ours": [], "trl": []}
    with tempfile.TemporaryDirectory(prefix="vector-evolve-training-") as name:
        for number in range(rounds + 1):
            given = rollouts(len(tokenizer), number)
            for kind in ("ours", "trl") if number % 2 else ("trl", "ours"):
                model = AutoModelForCausalLM.from_pretrained(path, dtype=torch.bfloat16)
                options = TrainerOptions(groups_per_step=GROUPS, micro_batch=SIZE)
                lora = LoraConfig(**LORA)
                job = Job(model, tokenizer, stored(given), GROUPS, SIZE, Path(name), options, number, 1.0, lora)
                trainer = build(job)
                if kind == "trl":
                    trainer = GRPOTrainer(
                        model=AutoModelForCausalLM.from_pretrained(path, dtype=torch.bfloat16),
                        args=trainer.args,
                        processing_class=tokenizer,
                        train_dataset=trainer.train_dataset,
                        peft_config=LoraConfig(**LORA),
                        reward_funcs=lambda completions, **_: [float(index % 2) for index in range(len(completions))],
                        rollout_func=lambda prompts, _, given=given: {
                            "prompt_ids": [group.prompt_ids.tolist() for group in given for _ in group.rollouts],
                            "completion_ids": [one.token_ids.tolist() for group in given for one in group.rollouts],
                            "logprobs": [one.logprobs.tolist() for group in given for one in group.rollouts],
                        },
                    )
                started = time.monotonic()
                trainer.train()
                if number:  # the first round warms up
                    rates[kind].append(tokens / (time.monotonic() - started))
    ratios = [ours / trl for ours, trl in zip(rates["ours"], rates["trl"], strict=True)]
    return {
        "model": model_name,
        "tokens": tokens,
        "tokens_per_second": {kind: spread(values) for kind, values in rates.items()},
        "ours_over_trl": spread(ratios),
    }


def refreshes(run: Path) -> dict[str, Any]:
    """Return the seconds of a run's refreshes, and what of them was overhead."""
    from sqlalchemy import select

    from evolve import schema as s
    from evolve.connection import FILE, connect

    engine = connect(run / FILE, read_only=True)
    with engine.connect() as connection:
        events = list(connection.scalars(select(s.event.c.data).where(s.event.c.kind == "refreshed")))
    engine.dispose()
    whole = [data for data in events if "train_seconds" in data]
    gate = [(data.get("gate") or {}).get("seconds", 0.0) for data in whole]
    overhead = [
        data["seconds"] - data["train_seconds"] - data["load_seconds"] - spent
        for data, spent in zip(whole, gate, strict=True)
    ]
    return {
        "refreshes": len(whole),
        "seconds": spread([data["seconds"] for data in whole]),
        "training": spread([data["train_seconds"] for data in whole]),
        "gate": spread(gate),
        "overhead_with_process_start": spread(overhead),
    }


def spread(values: list[float]) -> dict[str, float]:
    """Return median, least and most."""
    return {"median": round(statistics.median(values), 3), "least": round(min(values), 3), "most": round(max(values), 3)}


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--json", action="store_true", help="print JSON alone")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--model", default="smollm2-135m-instruct")
    parser.add_argument("--run", type=Path, help="a run with --train, whose refreshes are looked at")
    given = parser.parse_args()
    os.environ["TRL_EXPERIMENTAL_SILENCE"] = "1"
    warnings.simplefilter("ignore")
    result: dict[str, Any] = {"cores": os.cpu_count(), "trainer": measure(given.model, given.rounds)}
    if given.run is not None:
        result["refresh"] = refreshes(given.run)
    if not given.json:
        print("tokens per second of train(), interleaved; median, least and most of the rounds")
    print(json.dumps(result, indent=1))


if __name__ == "__main__":
    main()
