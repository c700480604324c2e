"""Operator tasks and the tiny model as the parts of a search: the loop is that of `evolve run`.

Programs are graded in this process, because they are four table look-ups and no code. The mutator keeps the first operations
of the parent in every answer and lets the model write on from there.
"""

from __future__ import annotations

import json
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from transformers import PreTrainedModel

from evolve.completion import Completion, Format, Message
from evolve.parts import digest
from evolve.prompt import View
from evolve.score import Score
from mutator_training import tiny
from mutator_training.operators import LENGTH, NAMES, VISIBLE, OperatorTask
from sandbox.base import Verdict
from sandbox.judge import TestResult

LEVEL = "in-process"
INITIAL = (0, 0, 0, 0)


class OperatorProblem:
    """An operator task as the search sees it.

    Args:
        task: the wanted output.
    """

    def __init__(self, task: OperatorTask):
        self.path = Path("operators") / task.name
        self.name = task.name
        self.language = "text"
        self.initial = _text(INITIAL)
        self.entry: str | None = None
        self.dimensions = [(f"x={value}", "test") for value in range(VISIBLE)]
        self.parts = {"the wanted output": "-".join(map(str, task.wanted))}
        self.digest = digest(self.parts)

    def scales(self, names: Sequence[str]) -> dict[int, tuple[float, float]]:
        """See `Problem.scales`."""
        del names
        return {}


class OperatorGrader:
    """Checks programs of operators in this process: they are table look-ups, not code.

    Args:
        task: the wanted output.
    """

    level = LEVEL

    def __init__(self, task: OperatorTask):
        self._task = task

    async def score(self, source: str) -> Score:
        """See `Grader.score`."""
        scores = self._scores(source)[:VISIBLE]
        results = tuple(_result(score) for score in scores)
        return Score(results, scores, True, LEVEL, float(scores.mean()), bool(scores.all()))

    async def hidden(self, source: str) -> tuple[TestResult, ...]:
        """See `Grader.hidden`."""
        return tuple(_result(score) for score in self._scores(source)[VISIBLE:])

    def _scores(self, source: str) -> Any:
        words = source.split()
        return self._task.scores([NAMES.index(word) for word in words if word in NAMES] if len(words) == LENGTH else [])


def _result(score: float) -> TestResult:
    return TestResult(Verdict.PASS if score else Verdict.WRONG, float(score))


def _text(program: Sequence[int]) -> str:
    return " ".join(NAMES[operation] for operation in program) + "\n"


class OperatorPrompter:
    """Hands a task and the parent to the tiny mutator.

    Args:
        task: the wanted output.
    """

    def __init__(self, task: OperatorTask):
        self._task = task

    def build(self, view: View) -> list[Message]:
        """See `Prompter.build`."""
        content = {"wanted": self._task.wanted, "parent": view.parent.source.split()}
        return [{"role": "user", "content": json.dumps(content)}]


class TinyMutator:
    """A `Mutator` on a model in this process: every answer keeps the first 0 to 3 operations of the parent.

    Args:
        model: the policy.
        name: of the arm.
        temperature: of the sampling.
    """

    format: Format = "plain"

    def __init__(self, model: PreTrainedModel, name: str, temperature: float):
        self.name = name
        self._model = model
        self._temperature = temperature

    @property
    def room(self) -> None:
        """See `Mutator.room`."""
        return

    async def sample(self, messages: Sequence[Message], positions: Sequence[int], m: int, seed: int) -> list[Completion]:
        """See `Mutator.sample`."""
        started = time.monotonic()
        content = json.loads(messages[-1]["content"])
        task = OperatorTask("", tuple(content["wanted"]))
        kept = int(np.random.default_rng(seed).integers(LENGTH))
        prefix = [tiny.OPERATION + NAMES.index(word) for word in content["parent"][:kept]]
        prompts = np.repeat([[*tiny.prompt(task, m), *prefix]], len(positions), axis=0)
        generator = torch.Generator().manual_seed(seed)
        ids, _ = tiny.sample(self._model, prompts, tiny.longest(m) - kept, generator, self._temperature, prefix)
        found = []
        for row in ids:
            programs = tiny.parse([*prefix, *row.tolist()], m)
            text = "\n".join(f"```text\n{_text(program)}```" for program in programs)
            length = int((row != tiny.PAD).sum())
            given = sum(min(kept, length - int(place) - 1) for place in np.flatnonzero(row == tiny.NEXT))
            tokens = length - given  # what the model drew
            seconds = time.monotonic() - started
            found.append(
                Completion(
                    text=text,
                    format=self.format,
                    wanted=m,
                    finish_reason="stop" if tiny.EOS in row else "length",
                    prompt_tokens=prompts.shape[1],
                    completion_tokens=tokens,
                    seconds=seconds,
                    temperature=self._temperature,
                    mutator=self.name,
                    seed=seed,
                )
            )
        return found
