"""A model that vLLM serves in no time, and a problem on which even its answers differ."""

import json
from pathlib import Path

import pytest
import torch

from evolve.cache import cache_folder
from evolve.models import resolve


@pytest.fixture(scope="session")
def tiny(tmp_path_factory):
    """A random model with a real tokenizer, and a random adapter of it."""
    from peft import LoraConfig, get_peft_model
    from transformers import AutoTokenizer, Qwen2Config, Qwen2ForCausalLM

    folder = tmp_path_factory.mktemp("models")
    source = resolve("smollm2-135m-instruct", print)
    assert source.is_relative_to(cache_folder())
    tokenizer = AutoTokenizer.from_pretrained(source)
    torch.manual_seed(1)
    config = Qwen2Config(
        vocab_size=len(tokenizer), hidden_size=128, intermediate_size=256, num_hidden_layers=2, num_attention_heads=4,
        num_key_value_heads=2, max_position_embeddings=4096, tie_word_embeddings=True, initializer_range=0.2,
        bos_token_id=tokenizer.bos_token_id, eos_token_id=tokenizer.eos_token_id,
    )  # fmt: skip
    model = Qwen2ForCausalLM(config).to(torch.bfloat16)
    model.save_pretrained(folder / "tiny")
    tokenizer.save_pretrained(folder / "tiny")
    lora = LoraConfig(r=8, lora_alpha=16, target_modules="all-linear", init_lora_weights=False, task_type="CAUSAL_LM")
    get_peft_model(model, lora).save_pretrained(folder / "v1")
    return folder


CHECKER = """def check(input, expected, got):
    return (sum(map(ord, got)) * int(input) % 97) / 96
"""


def write_letters(folder: Path) -> Path:
    """A problem whose answers are texts that are worth something at random: even a random model's completions differ."""
    tests = [{"id": str(number), "stdin": str(number), "expected": ""} for number in (1, 2, 3)]
    tests.append({"id": "h", "stdin": "5", "expected": "", "hidden": True})
    files = {
        "problem.yaml": json.dumps({"name": folder.name, "statement": "Write letters.", "entry": "stdin",
                                    "language": "text", "comparison": "checker"}),
        "initial_program.txt": "abc\n",
        "tests.jsonl": "\n".join(map(json.dumps, tests)),
        "checker.py": CHECKER,
    }  # fmt: skip
    folder.mkdir(parents=True)
    for name, text in files.items():
        (folder / name).write_text(text)
    return folder
