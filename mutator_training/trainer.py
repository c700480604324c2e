"""The gradient step: TRL's GRPOTrainer on rollouts that the search has sampled already, with our advantages.

What differs from plain TRL (1.16), each shown by a test:

1. Rollouts come from a source, not from generation; nothing is sampled or scored again.
2. The advantages in the loss are exactly those of our estimator, uncentred ones included: TRL subtracts the group's mean
   from what a reward function returns, so they are put into the batch after it.
3. Ratio and clipping are against the stored log-probabilities of the behaviour policy. Without a vLLM of its own TRL keeps
   them but sets the ratio to 1.
4. The KL divergence is to the base model also when an adapter is trained further, where TRL takes it to a copy of that.
5. Tokens that the client wrote (frames of the scaffold) are masked out of the loss.
6. Every recorded group trains once an epoch: TRL drops the last ones where they fill no step. Groups are dealt evenly to the
   steps, and what a step lacks is filled with groups that have no token in the loss, whose share is taken out of the mean.

As in TRL's defaults, the KL term is weighted by the ratio (`use_bias_correction_kl`), so that its gradient is that of the KL
of the policy, not of the one that sampled.

The draws of everything depend on (seed, step) alone, so a resumed training is identical. With several processes
(`accelerate launch`) each has whole groups, so advantages need nothing from the others.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Literal

import numpy as np
import torch
from datasets import Dataset
from transformers import PreTrainedModel, PreTrainedTokenizerBase, TrainerCallback
from trl import import_utils

from mutator_training.estimators import DRAWN, ESTIMATORS, answer_credits, diagnose, judged
from mutator_training.rollouts import Group, Rollout
from mutator_training.simplex import Array

import_utils.is_vllm_available = lambda min_version=None: False  # its vLLM modes are not used; importing vLLM takes seconds
from trl import GRPOConfig, GRPOTrainer  # noqa: E402

FILLER = -1
"""In place of a prompt's id: a group that fills a step and trains nothing."""

BY_TOKENS = ("bnpo", "cispo", "dapo", "vespo")
"""Losses that are means over the tokens that count, where fillers have no part anyway."""

Source = Callable[[int, Sequence[int], "RolloutTrainer"], Sequence[Group]]
"""From step and rows of the dataset (one per group) to groups of G rollouts each."""


@dataclass(frozen=True, slots=True)
class TrainerOptions:
    """How a mutator is trained.

    Attributes:
        estimator: key of `ESTIMATORS`.
        estimator_options: passed to it.
        groups_per_step: groups of one optimizer step.
        micro_batch: completions of one forward and backward pass.
        epochs: passes over the rollouts.
        learning_rate: of AdamW, constant.
        beta: weight of the KL divergence (k3) to the base model.
        trainer: passed through to `GRPOConfig`; unknown keys fail there.
        credit: `completion` gives all tokens of a completion its advantage, as VPO is defined; `answer` gives each
            answer's tokens what it adds over others in its place (`estimators.answer_credits`), and the separators and the
            end that the model writes the completion's. Of completions whose answers' tokens are not known, all have the
            completion's.
        truncation: truncated importance sampling: the greatest weight of a token by which the trainer's probabilities
            correct the sampler's; None clips the ratio to the sampler's instead, as PPO does.
        target_kl: the training ends early when a step's KL divergence to the base model, in nats per token, is greater; None
            never ends it. It needs `beta` greater than 0, else TRL does not compute the divergence.
    """

    estimator: str = "vpo"
    estimator_options: Mapping[str, Any] = field(default_factory=dict)
    groups_per_step: int = 4
    micro_batch: int = 4
    epochs: float = 1.0
    learning_rate: float = 1e-5
    beta: float = 1e-3
    trainer: Mapping[str, Any] = field(default_factory=dict)
    credit: Literal["completion", "answer"] = "completion"
    truncation: float | None = None
    target_kl: float | None = None


class EndAtKL(TrainerCallback):  # type: ignore[misc]
    """Ends a training that has gone far enough from the base.

    Args:
        target: nats per token.
    """

    def __init__(self, target: float):
        self._target = target

    def on_log(self, args: Any, state: Any, control: Any, logs: Any = None, **_: Any) -> None:
        """See `TrainerOptions.target_kl`."""
        del args, state
        if logs and logs.get("kl", 0.0) > self._target:
            control.should_training_stop = True


class RolloutTrainer(GRPOTrainer):  # type: ignore[misc]
    """GRPOTrainer on given rollouts; see the module.

    Args:
        source: gives the rollouts of each step.
        options: estimator and its options.
        kwargs: passed to GRPOTrainer.
    """

    def __init__(self, source: Source, options: TrainerOptions, **kwargs: Any):
        self._source = source
        self._options = options
        self._estimator = ESTIMATORS[options.estimator]
        self._is_recorded = isinstance(source, Stored)
        self.mismatch: dict[str, float] | None = None
        """Of recorded rollouts, before the first step; see `mismatch`."""
        super().__init__(reward_funcs=_reward, rollout_func=_rollouts, **kwargs)
        if "ref" in getattr(self.model, "peft_config", {}):
            self.model.delete_adapter("ref")  # then the reference is the model without adapters

    def _generate_and_score_completions(self, inputs: list[dict[str, Any]]) -> dict[str, Any]:
        """Take the groups of this step, let TRL make its batch of them, and put our advantages and ratios in."""
        size = self.num_generations
        rows = [int(row["row"]) for row in inputs[::size]]
        groups = self._source(self.state.global_step, rows, self)
        wrong = [len(group.rollouts) for group in groups if len(group.rollouts) != size]
        if wrong or len(groups) != len(rows):
            raise ValueError(
                f"expected {len(rows)} groups of {size} rollouts, got {len(groups)} with {wrong or 'all'} of it"
            )
        self._groups = groups
        real = sum(group.prompt != FILLER for group in groups)
        there = self.accelerator.gather(torch.tensor([[real, len(groups)]], device=self.accelerator.device)).sum(dim=0)
        self._weight = float(there[1] / there[0].clamp(min=1))
        output: dict[str, Any] = super()._generate_and_score_completions(inputs)
        device = output["completion_ids"].device
        if self._options.credit == "answer":
            given = [row for group in groups for row in self.token_advantages_of(group)]
            advantages = np.zeros(tuple(output["completion_ids"].shape))
            for place, row in enumerate(given):
                advantages[place, : len(row)] = row
        else:
            advantages = np.concatenate([self.advantages_of(group) for group in groups])
        output["advantages"] = torch.tensor(advantages, dtype=torch.float32, device=device)
        output["old_per_token_logps"] = output["sampling_per_token_logps"]
        if self._options.truncation is not None or (self.mismatch is None and self._is_recorded):
            self._correct(output)
        self._log_groups(groups)
        return output

    @torch.no_grad()  # type: ignore[untyped-decorator]
    def _correct(self, output: dict[str, Any]) -> None:
        """Compare the sampler's log-probabilities with this policy's; with truncation, correct the advantages by them."""
        ids = torch.cat([output["prompt_ids"], output["completion_ids"]], dim=1)
        mask = torch.cat([output["prompt_mask"], output["completion_mask"]], dim=1)
        size = self.args.per_device_train_batch_size
        mine, _, _ = self._get_per_token_logps_and_entropies(
            self.model, ids, mask, output["completion_ids"].size(1), batch_size=size
        )
        counts = (output["completion_mask"] * output.get("tool_mask", 1)).bool()
        difference = mine - output["sampling_per_token_logps"]
        if self.mismatch is None:
            self.mismatch = mismatch(difference[counts].double().cpu().numpy())
        if self._options.truncation is not None:
            weights = difference.exp().clamp(max=self._options.truncation)
            advantages = output["advantages"]
            output["advantages"] = (advantages if advantages.dim() == 2 else advantages[:, None]) * weights
            output["old_per_token_logps"] = mine

    def _compute_loss(self, model: Any, inputs: dict[str, Any]) -> Any:
        """Return TRL's loss as the mean over the completions that are there."""
        loss = super()._compute_loss(model, inputs)
        return loss if self.loss_type in BY_TOKENS else loss * self._weight

    def advantages_of(self, group: Group) -> Array:
        """Return one advantage per rollout of a group."""
        options = dict(self._options.estimator_options)
        if self._options.estimator in DRAWN:
            options.setdefault("seed", (int(self.args.seed), self.state.global_step, group.prompt))
        return self._estimator(judged(self._options.estimator, group), **options)

    def token_advantages_of(self, group: Group) -> list[Array]:
        """Return an advantage per token, (n,) of each rollout of a group: of its answer, else of the completion."""
        whole = self.advantages_of(group)
        credits_ = answer_credits(self._options.estimator, group.matrices, self._options.estimator_options)
        found = []
        for rollout, advantage, credit in zip(group.rollouts, whole, credits_, strict=True):
            row = np.full(len(rollout.token_ids), advantage)
            if rollout.owner is not None:
                mine = rollout.owner >= 0
                row[mine] = credit[rollout.owner[mine]]
            found.append(row)
        return found

    def _log_groups(self, groups: Sequence[Group]) -> None:
        found = [diagnose(group.matrices) for group in groups if group.prompt != FILLER]
        if not found:  # a process of several that had nothing in this step
            found = [diagnose(groups[0].matrices)]
        answers = sum(one.answers for one in found)
        figures = {
            "set_reward": float(np.mean([one.set_reward for one in found])),
            "coverage": float(np.mean([one.coverage for one in found])),
            "group_std": float(np.mean([one.spread for one in found])),
            "tied_groups": float(np.mean([one.tied for one in found])),
            "distinct_answers": sum(one.distinct for one in found) / max(1, answers),
            "answers": float(answers),
        }
        everywhere = self.accelerator.gather(torch.tensor([list(figures.values())], device=self.accelerator.device))
        for name, values in zip(figures, everywhere.T, strict=True):
            value = values.sum() if name == "answers" else values.mean()
            self._metrics["train"][f"rollouts/{name}"].append(float(value))


def mismatch(difference: Array) -> dict[str, float]:
    """Describe by how much a trainer's log-probabilities of sampled tokens differ from the sampler's.

    Args:
        difference: (n,) the trainer's minus the sampler's.

    Returns:
        `tokens`; `mean`, the mean of the absolute difference; `greatest`; `effective`, the effective sample size of the
        importance weights as a share of n, (sum w)^2 / (n sum w^2).
    """
    if not difference.size:
        return {"tokens": 0, "mean": 0.0, "greatest": 0.0, "effective": 1.0}
    weights = np.exp(np.clip(difference, -30, 30))
    return {
        "tokens": int(difference.size),
        "mean": round(float(np.abs(difference).mean()), 5),
        "greatest": round(float(np.abs(difference).max()), 4),
        "effective": round(float(weights.sum() ** 2 / (len(weights) * (weights**2).sum())), 4),
    }


def _rollouts(prompts: list[Any], trainer: RolloutTrainer) -> dict[str, Any]:
    """Hand the groups of the step to TRL (its `rollout_func`)."""
    del prompts
    rollouts = [(group, rollout) for group in trainer._groups for rollout in group.rollouts]
    return {
        "prompt_ids": [group.prompt_ids.tolist() for group, _ in rollouts],
        "completion_ids": [rollout.token_ids.tolist() for _, rollout in rollouts],
        "logprobs": [rollout.logprobs.tolist() for _, rollout in rollouts],
        "env_mask": [rollout.sampled.astype(int).tolist() for _, rollout in rollouts],
    }


def _reward(completions: list[Any], trainer_state: Any = None, **_: Any) -> list[float]:
    """Stand in for the advantages, which are put into the batch afterwards."""
    del trainer_state
    return [0.0] * len(completions)


@dataclass(frozen=True, slots=True, eq=False)
class Job:
    """One training.

    Attributes:
        model: trained in place, in bfloat16 or float32; a model object, because a path would load float32.
        tokenizer: of the model.
        source: gives the rollouts; or recorded groups, each of which trains once an epoch.
        rows: how many groups the dataset has; the source is asked for them by number. Of no matter with recorded groups.
        group_size: G.
        folder: for checkpoints, logs and the result.
        options: estimator, learning rate and the like.
        seed: of the order of groups and everything else that is drawn.
        temperature: of the sampling; log-probabilities are taken under it.
        peft_config: of LoRA; None trains all weights.
        callbacks: of transformers' Trainer, for progress.
    """

    model: PreTrainedModel
    tokenizer: PreTrainedTokenizerBase
    source: Source | Sequence[Group]
    rows: int
    group_size: int
    folder: Path
    options: TrainerOptions = field(default_factory=TrainerOptions)
    seed: int = 0
    temperature: float = 1.0
    peft_config: Any = None
    callbacks: Sequence[TrainerCallback] = ()


def build(job: Job) -> RolloutTrainer:
    """Return the trainer of a job, ready for `train()`.

    Raises:
        TypeError: `options.trainer` holds a key that GRPOConfig doesn't know.
        ValueError: there are more processes than groups in a step, or a target for a KL divergence that is not computed.
    """
    options = job.options
    if options.target_kl is not None and options.beta <= 0:
        raise ValueError("target_kl needs beta greater than 0: without it the KL divergence is not computed")
    processes = int(os.environ.get("WORLD_SIZE", "1"))
    if callable(job.source):
        source, rows, at_once = job.source, job.rows, min(options.groups_per_step, job.rows)
    else:
        dealt = Stored(job.source, options.groups_per_step, processes, job.seed)
        source, rows, at_once = dealt, dealt.steps * dealt.width, dealt.width
    groups = at_once // processes  # of a process, so that they stay whole
    if groups == 0 or options.groups_per_step < processes:
        raise ValueError(f"groups_per_step is {options.groups_per_step}, less than the {processes} processes")
    batch = groups * job.group_size
    micro = max(1, min(options.micro_batch, batch))
    while batch % micro:
        micro -= 1
    values: dict[str, Any] = {
        "output_dir": str(job.folder),
        "seed": job.seed,
        "num_generations": job.group_size,
        "per_device_train_batch_size": micro,
        "gradient_accumulation_steps": batch // micro,
        "num_train_epochs": options.epochs,
        "learning_rate": options.learning_rate,
        "lr_scheduler_type": "constant",
        "beta": options.beta,
        "scale_rewards": "none",
        "loss_type": "dr_grpo" if options.estimator == "dr_grpo" else "grpo",
        "shuffle_dataset": callable(job.source),
        "bf16": next(job.model.parameters()).dtype == torch.bfloat16,
        "temperature": job.temperature,
        "logging_steps": 1,
        "save_strategy": "no",
        "report_to": "none",
        "remove_unused_columns": False,
        "gradient_checkpointing": False,
        "use_cpu": not torch.cuda.is_available(),
        "dataloader_pin_memory": torch.cuda.is_available(),
        "disable_tqdm": True,
    }
    if isinstance(source, Stored):
        values["max_completion_length"] = source.longest  # what Dr. GRPO divides by
    config = GRPOConfig(**{**values, **options.trainer})
    return RolloutTrainer(
        source,
        options,
        model=job.model,
        args=config,
        processing_class=job.tokenizer,
        train_dataset=Dataset.from_list([{"prompt": str(row), "row": row} for row in range(rows)]),
        peft_config=job.peft_config,
        callbacks=[*job.callbacks, *([] if options.target_kl is None else [EndAtKL(options.target_kl)])],
    )


class Stored:
    """A source of recorded groups, all of one size, each once an epoch.

    The rows of the dataset are places in steps of equal width; which group stands where depends on (seed, epoch) alone.

    Args:
        groups: at least one.
        per_step: of an optimizer step, at most.
        processes: that share a step.
        seed: of their order.
    """

    def __init__(self, groups: Sequence[Group], per_step: int, processes: int = 1, seed: int = 0):
        self._groups = list(groups)
        self._seed = seed
        self.steps = -(-len(groups) // per_step)
        width = -(-len(groups) // self.steps)
        self.width = -(-width // processes) * processes
        self.longest = max(len(rollout.token_ids) for group in groups for rollout in group.rollouts)
        first = groups[0]
        no_answer = first.rollouts[0].scores[:0]
        nothing = Rollout(0, first.rollouts[0].token_ids[:1], np.zeros(1), np.zeros(1, dtype=bool), no_answer, False)
        self._filler = replace(
            first, prompt=FILLER, prompt_ids=first.prompt_ids[:1], rollouts=[nothing] * len(first.rollouts)
        )

    def __call__(self, step: int, rows: Sequence[int], trainer: RolloutTrainer) -> Sequence[Group]:
        """Return the groups of some places."""
        del step
        epoch = int((trainer.state.epoch or 0.0) + 1e-6)
        order = np.random.default_rng([self._seed, epoch]).permutation(len(self._groups))
        found = []
        for row in rows:
            at, slot = divmod(row, self.width)
            place = at + slot * self.steps
            found.append(self._groups[order[place]] if place < len(order) else self._filler)
        return found
