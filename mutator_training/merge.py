"""Merge an adapter into its base model: a folder of full weights that any server loads."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

from evolve.errors import BadInput


def merge(adapter: Path, out: Path, base: Path | None = None) -> Path:
    """Write base plus adapter as one model; it appears under its name when it is whole.

    Args:
        adapter: folder of the adapter.
        out: folder of the model that is made.
        base: folder of the base model; None takes the one that the adapter names.

    Raises:
        BadInput: there is no adapter, no base model, or `out` exists.
    """
    config = adapter / "adapter_config.json"
    if not config.is_file():
        raise BadInput(f"{adapter} is no LoRA adapter: it has no adapter_config.json. `evolve train` makes one.")
    if out.exists():
        raise BadInput(f"{out} exists; a model is never overwritten. Name another folder with --out.")
    place = base or Path(json.loads(config.read_text(encoding="utf-8")).get("base_model_name_or_path") or "")
    if not (place / "config.json").is_file():
        raise BadInput(f"The base model of {adapter} is not at {place}; give it with --model.")
    import torch
    from peft import PeftModel
    from transformers import AutoModelForCausalLM, AutoTokenizer

    model = AutoModelForCausalLM.from_pretrained(place, dtype=torch.bfloat16)
    unborn = out.parent / f".{out.name}.unborn"
    shutil.rmtree(unborn, ignore_errors=True)
    PeftModel.from_pretrained(model, adapter).merge_and_unload().save_pretrained(unborn)
    AutoTokenizer.from_pretrained(place).save_pretrained(unborn)
    unborn.rename(out)
    return out
