"""Sizes of comparisons: one dial from a laptop's minutes to the paper's machines."""

from __future__ import annotations

from dataclasses import replace

from mutator_training.plan import Plan

FOLDERS = Plan(
    kind="programs",
    arms=("base", "grpo", "vpo", "best_of_m"),
    seeds=1,
    answers=3,
    curve_every=0,
    beta=1e-3,
    temperature=0.8,
    jobs=1,
)

PRESETS: dict[str, Plan] = {
    "toy": Plan(),
    "cpu": replace(
        FOLDERS,
        arms=("base", "grpo", "vpo"),
        train_steps=6,
        prompts=4,
        group=6,
        samples=12,
        search_budget=24,
        hardest=2,
        learning_rate=1e-4,
        options={"model": "qwen2.5-coder-0.5b-instruct", "max_tokens": 320, "lora": {"r": 16, "lora_alpha": 32}},
    ),
    "gpu": replace(
        FOLDERS,
        train_steps=20,
        prompts=8,
        group=24,
        samples=48,
        search_budget=96,
        hardest=4,
        learning_rate=1e-5,
        options={"model": "Qwen/Qwen2.5-Coder-1.5B-Instruct", "max_tokens": 768, "lora": {"r": 16, "lora_alpha": 32}},
    ),
    "paper": replace(
        FOLDERS,
        arms=("base", "grpo", "vpo", "best_of_m", "random_weighting"),
        seeds=3,
        train_steps=300,
        prompts=64,
        group=24,
        samples=90,
        search_budget=1600,
        hardest=None,
        learning_rate=1e-5,  # of a LoRA; the paper's 1e-6 is for full weights
        options={"model": "Qwen/Qwen2.5-Coder-7B-Instruct", "max_tokens": 4096, "lora": {"r": 64, "lora_alpha": 128}},
    ),
}
"""`toy` and `cpu` run on two cores; `gpu` is meant for one GPU of 80 GB, `paper` for four."""
