"""Train a mutator on a set of problems, on-policy: sample, score, one optimizer step, serve the new version, again.

It is the search with the selection policy `initial` and a refresh after every generation (the setting of arXiv 2605.22817),
over many problems at once: each problem has a run of its own, in which every step that draws it adds one generation of one
prompt. So everything that was sampled can be shown, exported and trained on like any other run.

The folder of a training holds `runs/PROBLEM`, `adapters/v1`, `v2`, ... (one per step, each by an atomic rename) and
`training.json`. Which problems a step draws depends on (seed, step) alone, and a step whose adapter is there is done: so a
training that was killed goes on where it stopped, and samples nothing twice.
"""

from __future__ import annotations

import asyncio
import json
import shutil
import threading
import time
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from evolve import problem as problems
from evolve.compose import RunOptions, Session, begin, go_on, only_process
from evolve.connection import FILE
from evolve.errors import BadInput, EvolveError
from evolve.files import make_folder
from evolve.models import DEFAULT_MODEL
from evolve.options import Options, Reason
from evolve.problem import Problem
from evolve.report import Report
from evolve.sandboxes import SandboxKind
from evolve.serving import MutatorOptions
from mutator_training.adapter import OPTIMIZER, RESULT, REWARD, AdapterSpec, card, train, training_megabytes


class Interrupted(EvolveError):
    """The user ended the training; what is done is kept."""

    exit_code = 130


@dataclass(frozen=True, slots=True)
class OnPolicyOptions:
    """How a mutator is trained on problems.

    Attributes:
        steps: optimizer steps, one per generation.
        prompts: problems of a step; a problem is drawn again when all have been.
        completions: G, of each prompt.
        answers: m, of each completion.
        trainer: fields of `TrainerOptions` beside the number of groups, which is `prompts`.
        lora: fields of PEFT's LoraConfig.
        tests: how many of the objectives, the first ones, training sees; None for all.
        seed: of the problems' order and of the runs.
        workers: candidates scored at the same time.
        sandbox: kind of sandbox.
        processes: of the gradient steps, one per GPU.
    """

    steps: int
    prompts: int = 4
    completions: int = 8
    answers: int = 1
    trainer: Mapping[str, Any] = field(default_factory=dict)
    lora: Mapping[str, Any] = field(default_factory=dict)
    tests: int | None = None
    seed: int = 0
    workers: int = 2
    sandbox: SandboxKind = "docker"
    processes: int = 1


@dataclass(frozen=True, slots=True)
class Place:
    """One problem of a training."""

    problem: Problem
    run: Path


def places(folders: Sequence[Path], folder: Path) -> list[Place]:
    """Load the problems of a training.

    Raises:
        BadInput: two have one name.
    """
    names = Counter(path.name for path in folders)
    twice = [name for name, count in names.items() if count > 1]
    if twice:
        raise BadInput(f"Two of the problem folders are called {twice[0]}; their runs would share a folder. Rename one.")
    return [Place(problems.load(path), folder / "runs" / path.name) for path in folders]


def drawn(count: int, prompts: int, step: int, seed: int) -> list[int]:
    """Return the problems (0 to count - 1) of a step, counted from 1: epoch after epoch in an order of its own."""
    first = (step - 1) * prompts
    order = []
    for place in range(first, first + prompts):
        epoch, position = divmod(place, count)
        order.append(int(np.random.default_rng([seed, epoch]).permutation(count)[position]))
    return order


async def train_on(
    given: Sequence[Place], folder: Path, options: OnPolicyOptions, mutator: MutatorOptions, session: Session
) -> Path:
    """Train, or go on with a training, and return the folder of the last adapter.

    Args:
        given: the problems.
        folder: of the training.
        options: how.
        mutator: how completions are had, by a server that is managed here.
        session: what the runs share.

    Raises:
        EvolveError, SandboxError: see their texts; the training can go on.
    """
    make_folder(folder)
    with only_process(folder):
        for step in range(1, options.steps + 1):
            if not _adapter(folder, step).is_dir():
                await _step(given, folder, options, mutator, session, step)
    _summarise(folder, options)
    return _adapter(folder, options.steps)


def _adapter(folder: Path, step: int) -> Path:
    return (folder / "adapters" / f"v{step}").resolve()


async def _step(
    given: Sequence[Place],
    folder: Path,
    options: OnPolicyOptions,
    mutator: MutatorOptions,
    session: Session,
    step: int,
) -> None:
    started = time.monotonic()
    if step > 1:
        version = f"{folder.resolve().parent.name}-{folder.name}-v{step - 1}"
        await session.mutators.serve(version, _adapter(folder, step - 1))
    else:
        await session.mutators.serve_base()
    so_far = Counter(place for earlier in range(1, step + 1) for place in _drawn(given, options, earlier))
    now = sorted(set(_drawn(given, options, step)))
    await asyncio.gather(*(_generate(given[place], so_far[place], options, mutator, session) for place in now))
    sampled = time.monotonic()
    server = session.mutators.server
    assert server is not None
    version_before = session.mutators.version
    spec = AdapterSpec(
        runs=[str(given[place].run) for place in now],
        base=str(session.mutators.base),
        base_name=mutator.model or DEFAULT_MODEL,
        out=str(_adapter(folder, step)),
        start=None if step == 1 else str(_adapter(folder, step - 1)),
        trainer={**options.trainer, "groups_per_step": options.prompts, "epochs": 1.0},
        selection={
            "mutator": server.name if version_before is None else version_before[0],
            "tests": options.tests,
        },
        lora=dict(options.lora),
        seed=options.seed * 100_003 + step,
        keep_optimizer=True,
        board=str(folder / "tensorboard"),
        processes=options.processes,
        needs_signal=False,
        about={"sampling_seconds": round(sampled - started, 2)},
    )
    stop = threading.Event()
    how = await server.make_room(training_megabytes(session.mutators.base))
    if how == "ended":
        session.say("the model server is ended for the training and started again after it")
    try:
        result = await asyncio.to_thread(train, spec, session.say, stop)
    finally:
        stop.set()
        await server.go_on()
    (_adapter(folder, step - 1) / OPTIMIZER).unlink(missing_ok=True)
    reward = f"set reward {result['steps'][-1][REWARD]:.3f}" if result["steps"] else "no signal"
    session.say(
        f"step {step} of {options.steps}: {reward}, {result['completions']} completions, sampled and scored "
        f"in {sampled - started:.0f} s, trained in {time.monotonic() - sampled:.0f} s"
    )


def _drawn(given: Sequence[Place], options: OnPolicyOptions, step: int) -> list[int]:
    return drawn(len(given), options.prompts, step, options.seed)


async def _generate(
    place: Place, generations: int, options: OnPolicyOptions, mutator: MutatorOptions, session: Session
) -> None:
    """Bring a problem's run to so many generations of one prompt."""
    if (place.run / FILE).is_file():
        result = await go_on(place.run, session, budgets={"generations": generations})
    else:
        search = Options(
            prompts=1,
            completions=options.completions,
            answers=options.answers,
            selection="initial",
            inspirations=0,
            retry=False,
            candidates=None,
            generations=generations,
        )
        run = RunOptions(search, mutator, options.workers, options.sandbox)
        result = await begin(place.run, place.problem, run, options.seed, session)
    if result.reason is Reason.INTERRUPTED:
        raise Interrupted("interrupted; what was recorded is kept, and the same command goes on")


def _summarise(folder: Path, options: OnPolicyOptions) -> None:
    """Write what the whole training did into the last adapter's card, and beside the runs."""
    found = summary(folder, options.steps)
    last = _adapter(folder, options.steps)
    for path, text in ((folder / RESULT, json.dumps(found, indent=1)), (last / "README.md", card(found))):
        unborn = path.with_name(f".{path.name}")
        unborn.write_text(text, encoding="utf-8")
        unborn.rename(path)


def summary(folder: Path, steps: int) -> dict[str, Any]:
    """Return what a training did: the steps' rows one after another, counts and seconds added up."""
    results = [json.loads((_adapter(folder, step) / RESULT).read_text(encoding="utf-8")) for step in range(1, steps + 1)]
    runs = sorted(path for path in (folder / "runs").iterdir() if (path / FILE).is_file())
    totals = [spent(run) for run in runs]
    added = (
        "groups",
        "completions",
        "sampled_tokens",
        "trained_tokens",
        "sampling_seconds",
        "start_seconds",
        "train_seconds",
    )
    whole = {name: round(sum(result[name] for result in results), 2) for name in added}
    left_out: Counter[str] = Counter()
    for result in results:
        left_out.update(result["left_out"])
    rows = [{**row, "step": result["last_step"]} for result in results for row in result["steps"]]
    return {
        **results[-1],
        **whole,
        "runs": [str(run) for run in runs],
        "left_out": {reason: count for reason, count in left_out.items() if not reason.startswith("of another mutator")},
        "tokens_per_second": round(whole["trained_tokens"] / max(1e-9, whole["train_seconds"]), 1),
        "peak_memory_mb": max(result["peak_memory_mb"] for result in results),
        "answers": sum(one["candidates"] for one in totals),
        "scoring_seconds": round(sum(one["scoring_cpu_seconds"] for one in totals), 1),
        "steps": rows,
    }


def spent(run: Path) -> dict[str, Any]:
    """Return what a run cost; see `Report.cost`."""
    report = Report(run)
    try:
        return report.cost()
    finally:
        report.close()


def publish(adapter: Path, out: Path) -> None:
    """Copy an adapter to a folder that appears whole."""
    unborn = out.with_name(f".{out.name}.unborn")
    shutil.rmtree(unborn, ignore_errors=True)
    shutil.copytree(adapter, unborn, ignore=shutil.ignore_patterns(OPTIMIZER))
    unborn.rename(out)
