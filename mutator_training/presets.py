"""Sizes of comparisons that have been tried: one dial from a laptop's minutes to the paper's machines."""

from __future__ import annotations

from mutator_training.plan import Plan

PRESETS: dict[str, Plan] = {
    "toy": Plan(),
    "cpu": Plan(
        kind="programs",
        arms=("base", "grpo", "vpo"),
        seeds=1,
        train_steps=6,
        prompts=4,
        group=6,
        answers=3,
        samples=12,
        search_budget=24,
        hardest=2,
        curve_every=0,
        learning_rate=2e-5,
        beta=1e-3,
        temperature=0.8,
        options={"model": "qwen2.5-coder-0.5b-instruct", "max_tokens": 320, "lora": {"r": 16, "lora_alpha": 32}},
        jobs=1,
    ),
    "gpu": Plan(
        kind="programs",
        arms=("base", "grpo", "vpo", "best_of_m"),
        seeds=1,
        train_steps=20,
        prompts=8,
        group=24,
        answers=3,
        samples=48,
        search_budget=96,
        hardest=4,
        curve_every=0,
        learning_rate=1e-5,
        beta=1e-3,
        temperature=0.8,
        options={"model": "Qwen/Qwen2.5-Coder-1.5B-Instruct", "max_tokens": 768, "lora": {"r": 16, "lora_alpha": 32}},
        jobs=1,
    ),
    "paper": Plan(
        kind="programs",
        arms=("base", "grpo", "vpo", "best_of_m", "random_weighting"),
        seeds=3,
        train_steps=300,
        prompts=64,
        group=24,
        answers=3,
        samples=90,
        search_budget=1600,
        hardest=None,
        curve_every=0,
        learning_rate=1e-6,
        beta=1e-3,
        temperature=0.8,
        options={"model": "Qwen/Qwen2.5-Coder-7B-Instruct", "max_tokens": 4096, "lora": {"r": 64, "lora_alpha": 128}},
        jobs=1,
    ),
}
"""`toy` and `cpu` run on two cores; `gpu` is meant for one GPU of 80 GB, `paper` for four."""
