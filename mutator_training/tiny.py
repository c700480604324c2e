"""A language model of some hundred thousand parameters for operator tasks: its tokens, its pre-training, its sampling."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray
from tokenizers import Tokenizer, models, pre_tokenizers
from transformers import PreTrainedModel, PreTrainedTokenizerFast, Qwen2Config, Qwen2ForCausalLM

from mutator_training.operators import LENGTH, MODULUS, NAMES, VISIBLE, OperatorTask, every_output, every_program

PAD, BOS, EOS, NEXT, ONE, MANY = range(6)
SPECIAL = ["<pad>", "<s>", "</s>", "<next>", "<one>", "<many>"]
VALUE = len(SPECIAL)
OPERATION = VALUE + MODULUS
WORDS = [*SPECIAL, *map(str, range(MODULUS)), *NAMES]


@dataclass(frozen=True, slots=True)
class Shape:
    """Of the model and its pre-training.

    Attributes:
        layers, width, heads: of the transformer.
        steps, batch, learning_rate: of the pre-training.
        sharpness: of what it learns: a program is shown as an answer to a task in proportion to exp(sharpness x visible
            tests that it passes), so that the model ends up half competent, its answers vary, and the answers in one
            completion tell nothing about one another.
    """

    layers: int = 3
    width: int = 96
    heads: int = 4
    steps: int = 3000
    batch: int = 128
    learning_rate: float = 2e-3
    sharpness: float = 2.0


def tokenizer() -> PreTrainedTokenizerFast:
    """Return the tokenizer: one token for each value, operation and sign."""
    inner = Tokenizer(models.WordLevel({word: number for number, word in enumerate(WORDS)}, unk_token="<pad>"))
    inner.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    return PreTrainedTokenizerFast(tokenizer_object=inner, pad_token="<pad>", bos_token="<s>", eos_token="</s>")


def prompt(task: OperatorTask, answers: int) -> NDArray[np.int64]:
    """Return the tokens (9,) that ask for one answer, or for several different ones."""
    return np.array([ONE if answers == 1 else MANY, *(VALUE + value for value in task.visible)])


def longest(answers: int) -> int:
    """Return the most tokens of a completion of so many answers."""
    return answers * (LENGTH + 1)


def parse(tokens: Sequence[int], answers: int) -> list[tuple[int, ...]]:
    """Return the programs in a completion, at most `answers`; what isn't four operations is none."""
    found: list[tuple[int, ...]] = []
    current: list[int] = []
    for token in [*tokens, EOS]:
        if token in (NEXT, EOS):
            if len(current) == LENGTH and all(number >= 0 for number in current):
                found.append(tuple(current))
            current = []
            if token == EOS:
                break
        else:
            current.append(int(token) - OPERATION)
    return found[:answers]


def owners(tokens: Sequence[int], answers: int) -> list[int]:
    """Return which program of `parse` each token belongs to, -1 for what parts and ends them and for what is none."""
    found = [-1] * len(tokens)
    current: list[int] = []
    number = 0
    for place, token in enumerate([*tokens, EOS]):
        if token not in (NEXT, EOS):
            current.append(place)
            continue
        if len(current) == LENGTH and all(tokens[one] >= OPERATION for one in current) and number < answers:
            for one in current:
                found[one] = number
            number += 1
        current = []
        if token == EOS:
            break
    return found


def fresh(shape: Shape, seed: int) -> Qwen2ForCausalLM:
    """Return a random model of a shape."""
    torch.manual_seed(seed)
    config = Qwen2Config(
        vocab_size=len(WORDS),
        hidden_size=shape.width,
        intermediate_size=2 * shape.width,
        num_hidden_layers=shape.layers,
        num_attention_heads=shape.heads,
        num_key_value_heads=shape.heads,
        max_position_embeddings=128,
        tie_word_embeddings=True,
        bos_token_id=BOS,
        eos_token_id=EOS,
        pad_token_id=PAD,
    )
    return Qwen2ForCausalLM(config)


def pretrain(
    shape: Shape, answers: int, tasks: Sequence[OperatorTask], seed: int, say: Callable[[str], None]
) -> PreTrainedModel:
    """Train a model to answer tasks half right, with one answer and with several, until its steps are over.

    Args:
        shape: of the model and of this training.
        answers: of the format with several.
        tasks: to train on.
        seed: of everything.
        say: told of the progress.
    """
    rng = np.random.default_rng(seed)
    examples = _Examples(tasks, shape.sharpness)
    model = fresh(shape, seed)
    optimizer = torch.optim.AdamW(model.parameters(), lr=shape.learning_rate, weight_decay=0.01)
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, shape.learning_rate, total_steps=shape.steps, pct_start=0.1)
    model.train()
    for step in range(shape.steps):
        ids, labels = examples.batch(shape.batch, 1 if step % 2 else answers, rng)
        loss = model(input_ids=ids, labels=labels).loss
        optimizer.zero_grad()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        schedule.step()
        if (step + 1) % 250 == 0:
            say(f"pre-training, step {step + 1} of {shape.steps}: loss {loss.item():.3f} nats per token")
    return model


class _Examples:
    """Draws tasks with answers.

    Args:
        tasks: drawn uniformly.
        sharpness: see `Shape`.
    """

    def __init__(self, tasks: Sequence[OperatorTask], sharpness: float):
        self._programs = every_program()
        self._visible = np.array([task.visible for task in tasks])
        reached = every_output()[:, :VISIBLE]
        self._passed = sum(
            (self._visible[:, None, place] == reached[None, :, place]).astype(np.uint8) for place in range(VISIBLE)
        )
        self._weights = np.exp(sharpness * np.arange(VISIBLE + 1.0))

    def batch(self, size: int, answers: int, rng: np.random.Generator) -> tuple[torch.Tensor, torch.Tensor]:
        """Return token ids and labels, prompts masked."""
        tasks = rng.integers(len(self._visible), size=size)
        ids = np.full((size, 1 + VISIBLE + longest(answers)), PAD)
        ids[:, 0] = ONE if answers == 1 else MANY
        ids[:, 1 : 1 + VISIBLE] = VALUE + self._visible[tasks]
        cumulative = self._weights[self._passed[tasks]].cumsum(axis=1)
        drawn = rng.random((size, answers)) * cumulative[:, -1:]
        for row, sums, marks in zip(ids, cumulative, drawn, strict=True):
            programs = self._programs[np.minimum(np.searchsorted(sums, marks), len(sums) - 1)]
            shown = np.full((answers, LENGTH + 1), NEXT)
            shown[:, :LENGTH] = OPERATION + programs
            shown[-1, LENGTH] = EOS
            row[1 + VISIBLE :] = shown.reshape(-1)
        labels = ids.copy()
        labels[:, : 1 + VISIBLE] = -100
        return torch.from_numpy(ids), torch.from_numpy(labels)


def load(folder: Path) -> PreTrainedModel:
    """Load a model that `save_pretrained` wrote."""
    return Qwen2ForCausalLM.from_pretrained(folder, dtype=torch.float32)


@torch.inference_mode()  # type: ignore[untyped-decorator]
def sample(
    model: PreTrainedModel,
    prompts: NDArray[np.int64],
    tokens: int,
    generator: torch.Generator,
    temperature: float = 1.0,
    begins: Sequence[int] = (),
) -> tuple[NDArray[np.int64], NDArray[np.float64]]:
    """Sample a completion of each of (n, p) prompts of one length.

    Args:
        model: the policy.
        prompts: (n, p).
        tokens: of a completion, at most.
        generator: of the draws.
        temperature: of the sampling.
        begins: tokens with which each program after the first begins; they are not drawn and have the log-probability 0.

    Returns:
        (n, tokens) ids, PAD after the end, and the log-probabilities of the sampled ones under the sampling distribution.
    """
    was_training = model.training
    model.eval()
    given = torch.from_numpy(np.asarray(prompts, dtype=np.int64))
    ids: list[torch.Tensor] = []
    logprobs: list[torch.Tensor] = []
    alive = torch.ones(len(given), dtype=torch.bool)
    cache = None
    given_first = torch.tensor(list(begins), dtype=torch.int64)
    left = torch.zeros(len(given), dtype=torch.int64)  # tokens of `begins` that are still to come
    for _ in range(tokens):
        output = model(input_ids=given, past_key_values=cache, use_cache=True)
        cache = output.past_key_values
        logits = (output.logits[:, -1].float() / temperature).log_softmax(-1)
        drawn = torch.multinomial(logits.exp(), 1, generator=generator)
        logprob = logits.gather(1, drawn)
        if len(begins):
            is_given = left > 0
            place = (len(begins) - left).clamp(max=len(begins) - 1)
            drawn = torch.where(is_given[:, None], given_first[place][:, None], drawn)
            logprob = torch.where(is_given[:, None], 0.0, logprob)
            left = torch.where(is_given, left - 1, torch.where(drawn[:, 0] == NEXT, len(begins), 0))
        given = torch.where(alive[:, None], drawn, PAD)
        ids.append(given)
        logprobs.append(torch.where(alive[:, None], logprob, 0.0))
        alive &= drawn[:, 0] != EOS
        if not alive.any():
            break
    model.train(was_training)
    width = len(ids)
    all_ids = np.full((len(given), tokens), PAD, dtype=np.int64)
    all_logprobs = np.zeros((len(given), tokens))
    all_ids[:, :width] = torch.cat(ids, 1).numpy()
    all_logprobs[:, :width] = torch.cat(logprobs, 1).double().numpy()
    return all_ids, all_logprobs


@torch.inference_mode()  # type: ignore[untyped-decorator]
def divergence(model: PreTrainedModel, base: PreTrainedModel, prompts: NDArray[np.int64], ids: NDArray[np.int64]) -> float:
    """Return the KL divergence of a model to its base in nats per token, exact over (at most 512) sampled texts."""
    places = np.linspace(0, len(ids) - 1, min(512, len(ids))).astype(int)
    text = torch.from_numpy(np.concatenate([prompts[places], ids[places]], axis=1))
    start = prompts.shape[1]
    ours, theirs = (one(input_ids=text).logits[:, start - 1 : -1].float().log_softmax(-1) for one in (model, base))
    kept = text[:, start:] != PAD
    return float((ours.exp() * (ours - theirs)).sum(-1)[kept].mean())
