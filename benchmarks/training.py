"""What our trainer costs beside plain TRL, and what a refresh costs beside its training.

    python -m benchmarks.training [--json] [--rounds 3] [--model smollm2-135m-instruct]

Trainer: the same model, LoRA, rollouts and GRPOConfig, once with `RolloutTrainer` and VPO, once with TRL's GRPOTrainer,
whose reward function returns numbers that lie ready; interleaved, tokens (prompt and completion) per second of `train()`.
Refresh: a search by `evolve run --train vpo` with that model on problems/csv_line; the seconds of each refresh that were
neither gradient steps nor the gate's generation and scoring, the start of the training process (imports, loading the model)
apart.
Swap: seconds to load an adapter of that run into its server under a new name, to answer a one-token request with it, and to
unload it. The estimator itself is measured by `benchmarks/estimators.py`.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
import warnings
from pathlib import Path
from typing import Any

import numpy as np

PROBLEM = Path(__file__).parent.parent / "problems" / "csv_line"
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
    from mutator_training.trainer import Job, TrainerOptions, build

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
                job = Job(model, tokenizer, given, GROUPS, SIZE, Path(name), options, number, 1.0, lora)
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


def refreshes(model: str, folder: Path, generations: int) -> dict[str, Any]:
    """Search with a refresh after every generation; return the seconds of the refreshes, and what of them was overhead."""
    from sqlalchemy import select

    from evolve import schema as s
    from evolve.connection import reading

    run = folder / "run"
    shape = ["-P", "2", "-G", "4", "-m", "2", "--budget", str(16 * (generations + 1)), "--seed", "1", "--no-retry"]
    given = ["--model", model, "--train", "vpo", "--sampling", "max_tokens=96", "--out", str(run)]
    command = [str(Path(sys.executable).parent / "evolve"), "run", str(PROBLEM), *shape, *given]
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
    with reading(run) as connection:
        events = list(connection.scalars(select(s.event.c.data).where(s.event.c.kind == "refreshed")))
    whole = [data for data in events if "train_seconds" in data]
    gate = [(data.get("gate") or {}).get("seconds", 0.0) for data in whole]
    overhead = [
        data["seconds"] - data["start_seconds"] - data["train_seconds"] - spent
        for data, spent in zip(whole, gate, strict=True)
    ]
    return {
        "refreshes": len(whole),
        "seconds": spread([data["seconds"] for data in whole]),
        "process_start": spread([data["start_seconds"] for data in whole]),
        "training": spread([data["train_seconds"] for data in whole]),
        "gate": spread(gate),
        "overhead": spread(overhead),
    }


async def swaps(model: str, folder: Path, rounds: int) -> dict[str, Any]:
    """Load, use and unload an adapter under new names; return the seconds of each."""
    import httpx2

    from evolve.models import resolve
    from evolve.server import VllmServer

    options = {"enable-lora": True, "max-lora-rank": 16, "max-loras": 3}
    adapter = folder / "run" / "adapters" / "v1"
    seconds: dict[str, list[float]] = {"load": [], "first_answer": [], "unload": []}
    path, log = resolve(model, lambda _: None), folder / "server.log"
    async with VllmServer(path, "base", log, options=options) as server, httpx2.AsyncClient(timeout=60) as client:
        client.headers["Authorization"] = f"Bearer {server.key}"
        for number in range(rounds + 1):
            name, marks = f"v{number}", [time.monotonic()]
            await server.load_adapter(name, adapter)
            marks.append(time.monotonic())
            body = {"model": name, "prompt": "def", "max_tokens": 1}
            (await client.post(f"{server.base_url}/completions", json=body)).raise_for_status()
            marks.append(time.monotonic())
            await server.unload_adapter(name)
            marks.append(time.monotonic())
            if number:  # the first round warms up
                for kind, before, after in zip(seconds, marks, marks[1:], strict=False):
                    seconds[kind].append(after - before)
    return {kind: spread(values) for kind, values in seconds.items()}


def spread(values: list[float]) -> dict[str, float]:
    """Return median, least and most."""
    return {"median": round(statistics.median(values), 3), "least": round(min(values), 3), "most": round(max(values), 3)}


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--json", action="store_true", help="print JSON alone")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--model", default="smollm2-135m-instruct")
    parser.add_argument("--refreshes", type=int, default=3, help="refreshes of the search")
    given = parser.parse_args()
    os.environ["TRL_EXPERIMENTAL_SILENCE"] = "1"
    warnings.simplefilter("ignore")
    with contextlib.redirect_stdout(sys.stderr):  # the trainers print what they log
        result: dict[str, Any] = {"cores": os.cpu_count(), "trainer": measure(given.model, given.rounds)}
    with tempfile.TemporaryDirectory(prefix="vector-evolve-refresh-") as name:
        result["refresh"] = refreshes(given.model, Path(name), given.refreshes)
        result["swap_seconds"] = asyncio.run(swaps(given.model, Path(name), 5))
    if not given.json:
        print("tokens per second of train(), interleaved; median, least and most of the rounds")
    print(json.dumps(result, indent=1))


if __name__ == "__main__":
    main()
