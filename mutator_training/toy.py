"""The toy of a comparison: operator tasks and a model made here, trained by the real TRL path, searched by the real search.

The mutator is called in this process instead of through a server, and programs are checked in this process, because they are
four table look-ups and no code.
"""

from __future__ import annotations

import asyncio
import json
import resource
import shutil
import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import torch
from transformers import PreTrainedModel, TrainerCallback

from evolve.database import Database
from evolve.loop import Search
from evolve.options import Options
from evolve.scoring import Scorer
from mutator_training import tiny
from mutator_training.lab import Cell, Say
from mutator_training.metrics import best_at_k
from mutator_training.operator_search import OperatorGrader, OperatorProblem, OperatorPrompter, TinyMutator
from mutator_training.operators import MODULUS, VISIBLE, OperatorTask, split
from mutator_training.plan import Plan
from mutator_training.rollouts import Group, Rollout
from mutator_training.samples import MISSING, Samples
from mutator_training.trace import trace
from mutator_training.trainer import Job, RolloutTrainer, TrainerOptions, build

AT_ONCE = 2048
"""Completions that are sampled in one batch."""

CURVE_KS = (1, 4, 16, 64, 256)


@dataclass(frozen=True, slots=True)
class ToyOptions:
    """Of the toy.

    Attributes:
        held_out: tasks that are held out.
        split_seed: of the split and the pre-training.
        shape: fields of `tiny.Shape`.
    """

    held_out: int = 160
    split_seed: int = 0
    shape: Mapping[str, Any] = field(default_factory=dict)


class ToyLab:
    """See `Lab`.

    Args:
        plan: of the comparison.
        folder: of the comparison.
        say: told of the progress.
    """

    def __init__(self, plan: Plan, folder: Path, say: Say):
        self._plan = plan
        self._base = folder / "base"
        self._say = say
        self._options = ToyOptions(**plan.options)
        self._shape = tiny.Shape(**self._options.shape)
        self._train, self._held_out = split(self._options.held_out, self._options.split_seed)

    @property
    def problems(self) -> list[str]:
        """See `Lab.problems`."""
        return [task.name for task in self._held_out]

    def prepare(self) -> dict[str, Any]:
        """See `Lab.prepare`: pre-train the base."""
        path = self._base / "cost.json"
        if not path.exists():
            started = time.monotonic()
            model = tiny.pretrain(self._shape, self._plan.answers, self._train, self._options.split_seed, self._say)
            unborn = self._base.with_name(".base")
            shutil.rmtree(unborn, ignore_errors=True)
            model.save_pretrained(unborn)
            tokens = self._shape.steps * self._shape.batch * (1 + VISIBLE + tiny.longest(self._plan.answers))
            cost = {
                "parameters": sum(parameter.numel() for parameter in model.parameters()),
                "seconds": round(time.monotonic() - started, 1),
                "trained_tokens": tokens,
            }
            (unborn / path.name).write_text(json.dumps(cost), encoding="utf-8")
            unborn.rename(self._base)
        found: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
        return found

    def close(self) -> None:
        """See `Lab.close`: nothing is shared."""

    def train(self, cell: Cell) -> dict[str, Any]:
        """See `Lab.train`."""
        if cell.arm.estimator is None:
            curve = [self._evaluated(cell, tiny.load(self._base), 0)]
            return {"steps": [], "curve": curve, "cost": {}}
        plan = self._plan
        work = cell.folder / "work"
        work.mkdir(parents=True, exist_ok=True)
        before = _curve(work)
        done = _finished(work, before)
        source = _Live(cell, plan, self._train, before[-1]["spent"] if done else None)
        trainer = build(self._job(cell, work, source))
        trainer.add_callback(_Curve(self, cell, trainer, source, work))
        if not before:
            first = self._evaluated(cell, trainer.model, 0) | {"spent": source.spent()}
            _write(work / "curve-000000.json", first)
        source.begin()
        trainer.train(resume_from_checkpoint=done)
        spent = source.spent()
        trainer.model.save_pretrained(cell.folder / "policy")
        steps = [row for row in trainer.state.log_history if "rollouts/set_reward" in row]
        curve = _curve(work)
        m, completions = cell.arm.answers, plan.train_steps * plan.prompts * cell.arm.completions(plan.group)
        cost = {
            "answers": completions * m,
            "completions": completions,
            "sampled_tokens": spent["tokens"],
            "trained_tokens": spent["tokens"] + completions * (1 + VISIBLE),
            "seconds": round(spent["seconds"], 2),
            "sampling_seconds": round(spent["sampling"], 2),
            "scoring_seconds": round(spent["scoring"], 2),
            "gradient_seconds": round(spent["seconds"] - spent["sampling"] - spent["scoring"], 2),
            "peak_memory_mb": _memory(),
        }
        shutil.rmtree(work)
        return {"steps": steps, "curve": curve, "cost": cost}

    def _job(self, cell: Cell, work: Path, source: _Live) -> Job:
        plan, arm = self._plan, cell.arm
        completions = arm.completions(plan.group)
        extra = {"concentration": arm.settings["concentration"]} if "concentration" in arm.settings else {}
        assert arm.estimator is not None
        options = TrainerOptions(
            estimator=arm.estimator,
            estimator_options=extra,
            groups_per_step=plan.prompts,
            micro_batch=plan.prompts * completions,
            learning_rate=arm.settings.get("learning_rate", plan.learning_rate),
            beta=arm.settings.get("beta", plan.beta),
            credit=arm.settings.get("credit", "completion"),
            trainer={
                "max_steps": plan.train_steps,
                "save_strategy": "steps" if plan.curve_every else "no",
                "save_steps": max(1, plan.curve_every),
                "save_total_limit": 2,
            },
        )
        model = tiny.load(self._base)
        return Job(model, tiny.tokenizer(), source, len(self._train), completions, work, options, cell.seed)

    def _evaluated(self, cell: Cell, model: PreTrainedModel, step: int) -> dict[str, Any]:
        """Return a row of the curve."""
        started = time.monotonic()
        plan = self._plan
        samples, kl, _ = self._sampled(cell, model, plan.curve_samples, 1_000_003 + step)
        ks = [k for k in CURVE_KS if k <= plan.curve_samples]
        visible, both = samples.values("pass", "visible"), samples.values("pass", "hidden")
        rows = visible.reshape(len(visible), -1)
        spread = samples.diversity()
        return {
            "step": step,
            "pass": {str(k): [round(best_at_k(row, k), 5) for row in rows] for k in ks},
            "distinct": float(np.mean([one.distinct for one in spread])),
            "distance": float(np.mean([one.distance for one in spread])),
            "kl": kl,
            "visible": float(samples.values("best", "visible").mean()),
            "hidden": float(samples.values("best", "hidden").mean()),
            "passed": float(visible.mean()),
            "confirmed": float(both.mean()),
            "seconds": round(time.monotonic() - started, 2),
        }

    def sample(self, cell: Cell) -> tuple[Samples, dict[str, Any]]:
        """See `Lab.sample`."""
        started = time.monotonic()
        samples, _, tokens = self._sampled(cell, self._policy(cell), self._plan.samples, 2_000_003)
        seconds = round(time.monotonic() - started, 2)
        completions = int(np.prod(samples.keys.shape[:2]))
        cost = {"answers": samples.keys.size, "completions": completions, "sampled_tokens": tokens, "seconds": seconds}
        return samples, cost

    def _policy(self, cell: Cell) -> PreTrainedModel:
        return tiny.load(self._base if cell.arm.estimator is None else cell.folder / "policy")

    def _sampled(self, cell: Cell, model: PreTrainedModel, answers: int, seed: int) -> tuple[Samples, float, int]:
        """Return answers to every held-out task, the KL divergence to the base in nats per token, and the tokens."""
        m, tasks = cell.arm.answers, self._held_out
        count = cell.arm.completions(answers)
        prompts = np.repeat(np.stack([tiny.prompt(task, m) for task in tasks]), count, axis=0)
        generator = torch.Generator().manual_seed(seed + 7919 * cell.seed)
        parts = [
            tiny.sample(model, prompts[start : start + AT_ONCE], tiny.longest(m), generator, self._plan.temperature)
            for start in range(0, len(prompts), AT_ONCE)
        ]
        ids = np.concatenate([part[0] for part in parts])
        keys = np.full((len(tasks), count, m), MISSING, dtype=np.int64)
        scores = np.zeros((len(tasks), count, m, MODULUS), dtype=np.float32)
        for row, tokens in enumerate(ids):
            task, place = divmod(row, count)
            for answer, program in enumerate(tiny.parse(tokens.tolist(), m)):
                keys[task, place, answer] = int("".join(map(str, program)))
                scores[task, place, answer] = tasks[task].scores(program)
        samples = Samples(self.problems, keys, scores[..., :VISIBLE], scores[..., VISIBLE:])
        return samples, tiny.divergence(model, tiny.load(self._base), prompts, ids), int((ids != tiny.PAD).sum())

    def search(self, cell: Cell, problems: Sequence[str]) -> tuple[dict[str, Any], dict[str, Any]]:
        """See `Lab.search`."""
        started = time.monotonic()
        model = self._policy(cell)
        found: dict[str, Any] = {}
        for task in self._held_out:
            if task.name in problems:
                folder = cell.folder / "search" / task.name
                shutil.rmtree(folder, ignore_errors=True)
                asyncio.run(self._search(cell, task, model, folder))
                found[task.name] = asdict(trace(folder))
        cost = {
            "answers": sum(one["all_candidates"] for one in found.values()),
            "sampled_tokens": sum(one["all_tokens"] for one in found.values()),
            "seconds": round(time.monotonic() - started, 2),
        }
        return found, cost

    async def _search(self, cell: Cell, task: OperatorTask, model: PreTrainedModel, folder: Path) -> None:
        """Run the search of `evolve run` on one task."""
        arm, budget = cell.arm, self._plan.search_budget
        options = Options(
            prompts=2,
            completions=max(1, 16 // arm.answers),
            answers=arm.answers,
            inspirations=0,
            retry=False,
            candidates=budget,
            stop_when="solved",
        )
        problem = OperatorProblem(task)
        state = np.random.default_rng(cell.seed).bit_generator.state
        database = Database.create(folder, problem, {"search": asdict(options)}, cell.seed, state)
        try:
            scorer = Scorer(OperatorGrader(task), problem.language, database.known)
            search = Search(problem, options, database, scorer, OperatorPrompter(task), "tiny")
            await search.begin()
            await search.run(TinyMutator(model, cell.arm.label, self._plan.temperature))
            result = await search.finish()
            database.events.record("end", reason=result.reason, best=result.best, confirmed=result.confirmed)
        finally:
            database.close()


class _Live:
    """Samples the groups of a step from the policy as it is; what it draws depends on (seed, step) alone.

    Args:
        cell: whose arm says how many answers a completion has, and how many tests training sees.
        plan: of the comparison.
        tasks: to train on, by row.
        spent: before a stop, as `spent` told it.
    """

    def __init__(self, cell: Cell, plan: Plan, tasks: Sequence[OperatorTask], spent: Mapping[str, Any] | None = None):
        self._cell = cell
        self._plan = plan
        self._tasks = tasks
        self._spent = dict(spent or {"tokens": 0, "sampling": 0.0, "scoring": 0.0, "seconds": 0.0})
        self._since: float | None = None

    def begin(self) -> None:
        """Count seconds from now on."""
        self._since = time.monotonic()

    def pause(self, seconds: float) -> None:
        """Leave out seconds that were none of the training's."""
        self._spent["seconds"] -= seconds

    def spent(self) -> dict[str, Any]:
        """Return sampled tokens and seconds so far: of sampling, of scoring, and in all."""
        now = 0.0 if self._since is None else time.monotonic() - self._since
        return self._spent | {"seconds": self._spent["seconds"] + now}

    def __call__(self, step: int, rows: Sequence[int], trainer: RolloutTrainer) -> list[Group]:
        started = time.monotonic()
        arm = self._cell.arm
        m, size = arm.answers, arm.completions(self._plan.group)
        tests = arm.settings.get("tests", VISIBLE)
        prompts = [tiny.prompt(self._tasks[row], m) for row in rows]
        generator = torch.Generator().manual_seed(1_000_000 * (self._cell.seed + 1) + step)
        ids, logprobs = tiny.sample(trainer.model, np.repeat(np.stack(prompts), size, axis=0), tiny.longest(m), generator)
        sampled = time.monotonic()
        groups = []
        for place, row in enumerate(rows):
            task = self._tasks[row]
            rollouts = []
            for number in range(place * size, (place + 1) * size):
                length = int((ids[number] != tiny.PAD).sum())
                programs = tiny.parse(ids[number].tolist(), m)
                scores = np.array([task.scores(program)[:tests] for program in programs]).reshape(-1, tests)
                everything = np.ones(length, dtype=bool)
                cut = ids[number][length - 1] != tiny.EOS
                owner = np.array(tiny.owners(ids[number][:length].tolist(), m), dtype=np.int64)
                mine = (ids[number][:length], logprobs[number][:length], everything, scores, cut, owner)
                rollouts.append(Rollout(number, *mine))
            groups.append(Group(row, step, "tiny", prompts[place], rollouts, m))
        self._spent["tokens"] += int((ids != tiny.PAD).sum())
        self._spent["sampling"] += sampled - started
        self._spent["scoring"] += time.monotonic() - sampled
        return groups


class _Curve(TrainerCallback):  # type: ignore[misc]
    """Evaluates the policy at each checkpoint; the evaluation's file says that the checkpoint is whole."""

    def __init__(self, lab: ToyLab, cell: Cell, trainer: RolloutTrainer, source: _Live, work: Path):
        self._lab = lab
        self._cell = cell
        self._trainer = trainer
        self._source = source
        self._work = work

    def on_save(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        """Evaluate."""
        del args, control
        row = self._lab._evaluated(self._cell, self._trainer.model, state.global_step)
        self._source.pause(row["seconds"])
        row["spent"] = self._source.spent()
        _write(self._work / f"curve-{state.global_step:06d}.json", row)
        passes = ", ".join(f"pass@{k} {np.mean(values):.3f}" for k, values in row["pass"].items())
        self._lab._say(f"{self._cell.arm.label}, seed {self._cell.seed}, step {state.global_step}: {passes}")


def _curve(work: Path) -> list[dict[str, Any]]:
    """Return the evaluations so far."""
    return [json.loads(path.read_text(encoding="utf-8")) for path in sorted(work.glob("curve-*.json"))]


def _finished(work: Path, curve: list[dict[str, Any]]) -> str | None:
    """Return the checkpoint of the last evaluation; what came after is forgotten."""
    while curve and not (work / f"checkpoint-{curve[-1]['step']}").is_dir():
        if curve[-1]["step"] == 0:
            return None
        (work / f"curve-{curve.pop()['step']:06d}.json").unlink()
    return str(work / f"checkpoint-{curve[-1]['step']}") if curve else None


def _write(path: Path, row: Mapping[str, Any]) -> None:
    unborn = path.with_name(f".{path.name}")
    unborn.write_text(json.dumps(row), encoding="utf-8")
    unborn.rename(path)


def _memory() -> int:
    return round(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024)
