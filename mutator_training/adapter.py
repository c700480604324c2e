"""Train a LoRA adapter on recorded rollouts, in a process of its own so that its memory goes back.

`python -m mutator_training.adapter SPEC.json` is that process; `train` starts it. The adapter appears under its name by an
atomic rename, so there is never half of one.
"""

from __future__ import annotations

import json
import os
import resource
import shutil
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from evolve.errors import BadInput, EvolveError
from evolve.files import make_folder
from mutator_training import child
from mutator_training.credit import CREDIT
from mutator_training.estimators import ESTIMATORS, SEVERAL_ANSWERS, answer_credits, judged
from mutator_training.rollouts import Group, Selection, groups

Say = Callable[[str], None]
LORA = {
    "r": 16,
    "lora_alpha": 32,
    "lora_dropout": 0.0,
    "bias": "none",
    "target_modules": "all-linear",
    "task_type": "CAUSAL_LM",
}
SHOWN = {
    "set reward": "rollouts/set_reward",
    "coverage": "rollouts/coverage",
    "KL": "kl",
    "entropy": "entropy",
    "clipped": "clip_ratio/region_mean",
    "gradient": "grad_norm",
}
RESULT = "training.json"
OPTIMIZER = "optimizer.pt"
REWARD = "rollouts/set_reward"


MOST_DIFFERENCE, LEAST_EFFECTIVE = 0.05, 0.8
ALARM = (
    "ALARM: the trainer's log-probabilities differ from the sampler's by {mean} on average, {greatest} at most, over "
    "{tokens} tokens (effective sample size {effective} of them). Either the rollouts are off-policy, or the sampler draws "
    "from another distribution: top_p, top_k, min_p and penalties must be off, also in the model's generation_config.json."
)


class NoSignal(BadInput):
    """No group tells one completion from another, so that a step would follow nothing but the KL term."""


class TrainingError(EvolveError):
    """The training process failed; the text holds the end of what it said."""


@dataclass(frozen=True, slots=True)
class AdapterSpec:
    """What the process is told.

    Attributes:
        runs: folders of runs whose rollouts are used.
        base: folder of the base model.
        base_name: its name, for the model card.
        out: folder of the adapter that is made.
        start: folder of an adapter to go on from, or None.
        trainer: fields of `TrainerOptions`.
        selection: fields of `Selection`.
        lora: fields of PEFT's `LoraConfig` beside the defaults here.
        seed: of the training.
        keep_optimizer: whether the adapter carries the optimizer's state, which the next one that starts from it takes on.
        about: added to what `training.json` holds.
        board: folder of TensorBoard files, where versions that come from one another make one line; None is the
            adapter's own.
        processes: of the training, one per GPU, started by `accelerate launch`.
        needs_signal: refuse to train on groups that have none (`NoSignal`); else the adapter is made without a step.
        began: Unix time at which `train` started the process.
    """

    runs: Sequence[str]
    base: str
    base_name: str
    out: str
    start: str | None = None
    trainer: Mapping[str, Any] = field(default_factory=dict)
    selection: Mapping[str, Any] = field(default_factory=dict)
    lora: Mapping[str, Any] = field(default_factory=dict)
    seed: int = 0
    keep_optimizer: bool = False
    about: Mapping[str, Any] = field(default_factory=dict)
    board: str | None = None
    processes: int = 1
    needs_signal: bool = True
    began: float = 0.0


def train(spec: AdapterSpec, say: Say, stop: threading.Event | None = None) -> dict[str, Any]:
    """Train in a child process; return what `training.json` in the adapter's folder holds.

    Args:
        spec: what is trained, on what.
        say: told of each step.
        stop: ends the process when it is set.

    Raises:
        BadInput: the adapter's folder exists, or the runs hold no group to train on, or fewer than processes.
        TrainingError: the process failed.
    """
    out = Path(spec.out)
    if out.exists():
        raise BadInput(f"{out} exists; an adapter is never overwritten. Name another folder with --out.")
    make_folder(out.parent)
    kept, _ = usable(spec)
    at_once = min(len(kept), spec.trainer.get("groups_per_step", len(kept)))
    if spec.processes > at_once:
        raise BadInput(f"A step takes {at_once} groups, each whole in one process: {spec.processes} processes are too many.")
    estimator = spec.trainer.get("estimator", "vpo")
    if estimator in SEVERAL_ANSWERS and all(group.answers == 1 for group in kept):
        say(f"{estimator} rewards sets of answers, and these completions hold one each: ask for several with --answers")
    if spec.needs_signal and not has_signal(kept, spec):
        raise NoSignal(
            f"In none of {len(kept)} groups does {estimator} tell one completion from another: all are worth the same. More "
            "completions of a prompt, a higher temperature or harder problems give it something to learn from."
        )
    frames = any(not rollout.sampled.all() for group in kept for rollout in group.rollouts)
    if frames and spec.trainer.get("trainer", {}).get("mask_truncated_completions"):
        raise BadInput(
            "mask_truncated_completions would leave out every completion of the scaffold, which ends where the client ends "
            "it. --drop-cut leaves out those that ended at the token limit."
        )
    place = out.parent / f".{out.name}.spec.json"
    place.write_text(json.dumps(asdict(spec) | {"began": time.time()}), encoding="utf-8")
    log = out.parent / f"{out.name}.log"
    log.unlink(missing_ok=True)
    try:
        code = child.run("mutator_training.adapter", [str(place)], log, say, stop, processes=spec.processes)
    finally:
        place.unlink()
    if code != 0 or not (out / RESULT).is_file():
        raise TrainingError(f"The training ended with code {code}. {child.ending(log)}")
    found: dict[str, Any] = json.loads((out / RESULT).read_text(encoding="utf-8"))
    return found


def training_megabytes(base: Path | None) -> float:
    """Return about how much GPU memory a training of a LoRA on a base model's folder takes.

    Twice the weights' files and 8 GB for activations and log-probabilities over the vocabulary: a guess on the safe side,
    not measured on a GPU, which decides whether the server may stay beside it.
    """
    files = [] if base is None else [*base.glob("*.safetensors"), *base.glob("*.bin"), *base.glob("*.gguf")]
    return 2.0 * sum(path.stat().st_size for path in files) / (1 << 20) + 8192.0


def is_alarming(found: Mapping[str, float]) -> bool:
    """Return whether a mismatch (`trainer.mismatch`) is more than the rounding of two implementations of one model."""
    return found["mean"] > MOST_DIFFERENCE or found["effective"] < LEAST_EFFECTIVE


def has_signal(kept: Sequence[Group], spec: AdapterSpec) -> bool:
    """Return whether some group's completions get different advantages."""
    name = spec.trainer.get("estimator", "vpo")
    options = spec.trainer.get("estimator_options", {})
    if any(np.ptp(ESTIMATORS[name](judged(name, group), **options)) > 0 for group in kept):
        return True
    per_answer = spec.trainer.get("credit") == "answer"
    return per_answer and any(one.any() for group in kept for one in answer_credits(name, group.matrices, options))


def usable(spec: AdapterSpec) -> tuple[list[Group], dict[str, int]]:
    """Return the groups of the commonest size, and what was left out, by reason.

    Raises:
        BadInput: there is none.
    """
    found: list[Group] = []
    left_out: Counter[str] = Counter()
    for run in spec.runs:
        rollouts = groups(Path(run), Selection(**spec.selection))
        found += rollouts.groups
        left_out.update(rollouts.left_out)
    sizes = Counter((len(group.rollouts), group.temperature) for group in found)
    if not sizes:
        raise BadInput(f"{', '.join(spec.runs)}: no group of rollouts to train on. Left out: {dict(left_out) or 'nothing'}.")
    (size, temperature), _ = max(sizes.items(), key=lambda item: (item[1] * item[0][0], item[0]))
    kept = [group for group in found if (len(group.rollouts), group.temperature) == (size, temperature)]
    other = sum(len(group.rollouts) for group in found) - size * len(kept)
    if other:
        left_out["in a group of another size or temperature"] += other
    return kept, dict(left_out)


def _work(spec: AdapterSpec) -> None:
    """Load, train, save. Runs in the process of its own."""
    import torch
    from peft import LoraConfig, PeftModel
    from torch.utils.tensorboard import SummaryWriter
    from transformers import AutoModelForCausalLM, AutoTokenizer, TrainerCallback

    from mutator_training.trainer import Job, TrainerOptions, build

    kept, left_out = usable(spec)
    options = TrainerOptions(**spec.trainer)
    model = AutoModelForCausalLM.from_pretrained(spec.base, dtype=torch.bfloat16)
    tokenizer = AutoTokenizer.from_pretrained(spec.base)
    config: Any = LoraConfig(**{**LORA, **spec.lora})
    if spec.start is not None:
        model, config = PeftModel.from_pretrained(model, spec.start, is_trainable=True), None

    out = Path(spec.out)
    unborn = out.parent / f".{out.name}.unborn"
    first = os.environ.get("RANK", "0") == "0"
    if first:
        shutil.rmtree(unborn, ignore_errors=True)
    before = _steps_before(spec)
    board = SummaryWriter(spec.board or str(unborn / "tensorboard")) if first else None

    class Tell(TrainerCallback):  # type: ignore[misc]
        def on_log(self, args: Any, state: Any, control: Any, logs: Any = None, **_: Any) -> None:
            del args, control
            if board is not None and logs and "rollouts/set_reward" in logs:
                for name, value in logs.items():
                    if isinstance(value, (int, float)):
                        board.add_scalar(name, value, before + state.global_step)
                texts = [f"{name} {logs[key]:.4g}" for name, key in SHOWN.items() if key in logs]
                child.tell(f"step {state.global_step} of {state.max_steps}: {', '.join(texts)}")

    trainer = build(
        Job(
            model,
            tokenizer,
            kept,
            len(kept),
            len(kept[0].rollouts),
            unborn / "work",
            options,
            spec.seed,
            kept[0].temperature,
            config,
            (Tell(),),
        )
    )
    start_seconds = time.time() - spec.began
    carried = None if spec.start is None else Path(spec.start) / OPTIMIZER
    if carried is not None and carried.is_file():
        trainer.create_optimizer()
        trainer.optimizer.load_state_dict(torch.load(carried, weights_only=True))
        for group in trainer.optimizer.param_groups:
            group["lr"] = group["initial_lr"] = options.learning_rate
    loaded = time.monotonic()
    if has_signal(kept, spec):
        trainer.train()
    else:
        child.tell("no group has signal, so the weights stay as they are")
    trained = time.monotonic()
    if first and trainer.mismatch is not None and is_alarming(trainer.mismatch):
        child.tell(ALARM.format(**trainer.mismatch))
    if board is None:
        return
    board.close()
    trainer.model.save_pretrained(unborn)
    if spec.keep_optimizer and trainer.optimizer is not None:
        torch.save(trainer.optimizer.state_dict(), unborn / OPTIMIZER)
    done = options.epochs * trainer.state.global_step / max(1, trainer.state.max_steps)  # less where it ended early
    tokens = sum(len(group.prompt_ids) + len(rollout.token_ids) for group in kept for rollout in group.rollouts)
    sampled = sum(int(rollout.sampled.sum()) for group in kept for rollout in group.rollouts)
    steps = [row for row in trainer.state.log_history if "rollouts/set_reward" in row]
    result = {
        "base": spec.base_name,
        "runs": list(spec.runs),
        "estimator": options.estimator,
        "options": asdict(options) | {"lora": {**LORA, **spec.lora}, "seed": spec.seed, "temperature": kept[0].temperature},
        "groups": len(kept),
        "group_size": len(kept[0].rollouts),
        "completions": sum(len(group.rollouts) for group in kept),
        "left_out": left_out,
        "sampled_tokens": sampled,
        "trained_tokens": round(tokens * done),
        "start_seconds": round(start_seconds, 2),
        "mismatch": trainer.mismatch,
        "credit": options.credit,
        "train_seconds": round(trained - loaded, 2),
        "tokens_per_second": round(tokens * done / max(1e-9, trained - loaded), 1),
        "peak_memory_mb": round(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024),
        "steps": steps,
        "last_step": before + trainer.state.global_step,
        **spec.about,
    }
    shutil.rmtree(unborn / "work", ignore_errors=True)
    (unborn / RESULT).write_text(json.dumps(result, indent=1), encoding="utf-8")
    (unborn / "README.md").write_text(card(result), encoding="utf-8")
    unborn.rename(out)


def _steps_before(spec: AdapterSpec) -> int:
    """Return the optimizer steps that the adapter to start from has behind it."""
    path = Path(spec.start or "") / RESULT
    found: dict[str, Any] = json.loads(path.read_text(encoding="utf-8")) if spec.start is not None and path.is_file() else {}
    return int(found.get("last_step", 0))


def card(result: Mapping[str, Any]) -> str:
    """Return the model card of an adapter."""
    first, last = (result["steps"][0], result["steps"][-1]) if result["steps"] else ({}, {})
    lines = [
        "# A mutator's adapter",
        "",
        f"LoRA for `{result['base']}`, trained with `{result['estimator']}` on rollouts of a program search.",
        "",
        f"- data: {result['completions']} completions in {result['groups']} groups of {result['group_size']}, "
        f"{result['sampled_tokens']} sampled tokens, from {len(result['runs'])} runs",
        f"- left out: {result['left_out'] or 'nothing'}",
        f"- cost: {result['train_seconds']} s, {result['trained_tokens']} tokens ({result['tokens_per_second']} tokens/s), "
        f"{result['peak_memory_mb']} MB",
        f"- set reward of the rollouts, first and last step: {first.get(REWARD)}, {last.get(REWARD)}",
        f"- sampler against trainer before the first step: {result.get('mismatch')}",
        f"- credit: {CREDIT[result.get('credit', 'completion')]}",
        f"- options: `{json.dumps(result['options'])}`",
        "",
        "Load it with PEFT, with vLLM (`--enable-lora`), or with `evolve run --adapter FOLDER`.",
        "",
    ]
    return "\n".join(lines)


if __name__ == "__main__":
    _work(AdapterSpec(**json.loads(Path(sys.argv[1]).read_text(encoding="utf-8"))))
    sys.stdout.flush()
    sys.stderr.flush()
    if "WORLD_SIZE" not in os.environ:
        os._exit(0)  # everything is on disk; the libraries' own end takes a second
