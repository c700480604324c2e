"""Refresh the mutator between two generations: train on what was sampled since the last time, gate, serve, record.

Adapters lie in the run's folder as `adapters/v1`, `v2`, ..., each published by an atomic rename and served under a name of
its own.
States in the database: `candidate` while the gate decides, `serving`, `rejected`, `retired`. A kill leaves at the worst a
candidate, which the next start rejects, or a folder that no row names, which is trained anew.
"""

from __future__ import annotations

import asyncio
import shutil
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Literal

from evolve.errors import BadInput, EvolveError, nearest
from evolve.refresher import Context
from mutator_training.adapter import OPTIMIZER, AdapterSpec, NoSignal, TrainingError, train, training_megabytes
from mutator_training.credit import check_credit
from mutator_training.estimators import ESTIMATORS
from mutator_training.gate import Gate, Verdict
from mutator_training.rollouts import SCALE, Scale

Trainer = Callable[[AdapterSpec, Callable[[str], None], threading.Event], dict[str, Any]]
FAILURES = 3
"""Failed or rejected refreshes in a row that end training for a run."""


@dataclass(frozen=True, slots=True)
class RefreshOptions:
    """How the mutator of a run is refreshed; stored with the run.

    Attributes:
        estimator: key of `ESTIMATORS`.
        every: generations between two refreshes.
        gate: whether a new version must be no worse than the old one.
        gate_prompts: recent prompts that both answer.
        learning_rate, beta, epochs, groups_per_step, micro_batch, credit, truncation, target_kl: see `TrainerOptions`.
        trainer: passed through to TRL's GRPOConfig.
        lora: passed through to PEFT's LoraConfig.
        processes: of the gradient steps, one per GPU.
    """

    estimator: str = "vpo"
    every: int = 1
    gate: bool = True
    gate_prompts: int = 2
    learning_rate: float = 1e-5
    beta: float = 1e-3
    epochs: float = 1.0
    groups_per_step: int = 4
    micro_batch: int = 2
    credit: Literal["completion", "answer"] = "completion"
    truncation: float | None = None
    target_kl: float | None = None
    trainer: Mapping[str, Any] = field(default_factory=dict)
    lora: Mapping[str, Any] = field(default_factory=dict)
    processes: int = 1

    @classmethod
    def checked(cls, given: Mapping[str, Any]) -> RefreshOptions:
        """Return options from the user's mapping.

        Raises:
            BadInput: a name is unknown.
        """
        for name in given:
            if name not in cls.__dataclass_fields__:
                known = ", ".join(cls.__dataclass_fields__)
                hint = nearest(name, cls.__dataclass_fields__)
                raise BadInput(f"--training: no option {name!r}{hint} Known: {known}.")
        options = cls(**given)
        if options.estimator not in ESTIMATORS:
            known = ", ".join(ESTIMATORS)
            raise BadInput(
                f"--train: no estimator {options.estimator!r}{nearest(options.estimator, ESTIMATORS)} Known: {known}."
            )
        check_credit(options.estimator, options.credit)
        return options


class MutatorRefresher:
    """Refreshes the mutator of one run.

    Args:
        given: fields of `RefreshOptions`.
        context: the parts of the run.
        trainer: makes an adapter's folder, whole or not at all.
    """

    def __init__(self, given: Mapping[str, Any], context: Context, trainer: Trainer = train):
        self._trainer = trainer
        self._options = RefreshOptions.checked(given)
        self._context = context
        self._adapters = (context.folder / "adapters").resolve()
        self._gate = Gate(context, self._options.gate_prompts)

    @property
    def every(self) -> int:
        """See `Refresher.every`."""
        return self._options.every

    async def restore(self) -> None:
        """Serve the version that the run used last. A candidate that no gate decided on is rejected."""
        context = self._context
        for row in context.database.versions.all():
            if row.state == "candidate":
                context.database.versions.set_state(row.name, "rejected")
        serving = [row for row in context.database.versions.all() if row.state == "serving" and row.adapter]
        if serving and serving[-1].name != context.mutator.name:
            await context.server.load_adapter(serving[-1].name, self._place(serving[-1].adapter))
            context.mutator.use(serving[-1].name)

    def _place(self, recorded: str) -> Path:
        """Return where an adapter lies, also when the run's folder was moved."""
        path = Path(recorded)
        return path if path.is_dir() else self._adapters / path.name

    async def refresh(self, prompt: int) -> None:
        """See `Refresher.refresh`."""
        context, database = self._context, self._context.database
        done = database.events.last("refreshed")
        if database.events.fruitless("refreshed", FAILURES) or (done is not None and done["prompt"] == prompt):
            return
        last = database.events.last("refresh")
        number = 1 + sum(row.adapter is not None for row in database.versions.all())
        name, folder = f"{context.folder.name}-v{number}", self._adapters / f"v{number}"
        shutil.rmtree(folder, ignore_errors=True)  # of a kill between publishing and recording
        scale = self._scale()
        started = time.monotonic()
        figures: dict[str, Any] = {"version": f"v{number}", "prompt": prompt, "accepted": False, **scale}
        try:
            result = await self._train(folder, 0 if last is None else int(last["prompt"]))
            figures |= {name: result[name] for name in KEPT if name in result}
            database.versions.record(name, context.base_name, str(folder))
            await context.server.load_adapter(name, folder)
        except NoSignal as error:
            context.say(f"nothing is trained: {error}")
            self._record(figures | {"skipped": str(error)[:1000]}, started)
            return
        except (TrainingError, BadInput, EvolveError) as error:
            context.say(f"v{number} was not made: {str(error).splitlines()[0]}")
            figures["error"] = str(error)[:1000]
            shutil.rmtree(folder, ignore_errors=True)
            database.versions.set_state(name, "rejected")
            self._record(figures, started)
            return
        await self._decide(name, prompt, figures, started)

    def _scale(self) -> dict[str, Any]:
        """Record the run's scale where it has none or has outgrown it; return its version, for the record."""
        database = self._context.database
        current, used = database.read(Scale.current), database.read(Scale.of)
        if current.seen is None:
            return {}
        version = used.version
        if version == 0 or used.outgrown_by(current):
            last = database.events.last(SCALE)
            version = 1 + (0 if last is None else int(last["version"]))
            database.events.record(SCALE, **current.recorded(version))
        return {"scale": version}

    async def _train(self, folder: Path, after: int) -> dict[str, Any]:
        """Train in a child process; the server gives cores or memory meanwhile, see `VllmServer.make_room`."""
        options, context = self._options, self._context
        adapters = {row.name: self._place(row.adapter) for row in context.database.versions.all() if row.adapter}
        start = adapters.get(context.mutator.name, context.adapter)
        spec = AdapterSpec(
            runs=[str(context.folder)],
            base=str(context.base),
            base_name=context.base_name,
            out=str(folder),
            start=None if start is None else str(start),
            trainer={name: getattr(options, name) for name in TRAINED} | {"trainer": dict(options.trainer)},
            selection={"after": after, "mutator": context.mutator.name},
            lora=dict(options.lora),
            seed=after,
            keep_optimizer=True,
            board=str(context.folder / "tensorboard"),
            processes=options.processes,
        )
        context.say(f"training {folder.name} with {options.estimator} on the prompts after {after}")
        stop = threading.Event()
        how = await context.server.make_room(training_megabytes(context.base))
        try:
            return {**await asyncio.to_thread(self._trainer, spec, context.say, stop), "server": how}
        finally:
            stop.set()  # the process ends when this one is cancelled
            await context.server.go_on()

    async def _decide(self, name: str, prompt: int, figures: dict[str, Any], started: float) -> None:
        """Let the gate decide, and switch or stay."""
        context, database = self._context, self._context.database
        old = context.mutator.name
        verdict = await self._gate.judge(name, prompt, self._changes()) if self._options.gate else Verdict(True)
        figures |= {"accepted": verdict.accepted, "gate": asdict(verdict)}
        if not verdict.accepted:
            context.mutator.use(old)
            database.versions.set_state(name, "rejected")
            context.say(f"{figures['version']} is rejected: {verdict.text}")
            self._record(figures, started)
            await self._drop(name)
            return
        figures["seconds"] = round(time.monotonic() - started, 2)
        database.versions.serve(name, "refreshed", **figures)
        context.mutator.use(name)
        await self._drop(old)
        context.say(f"{figures['version']} is served: {verdict.text}")

    def _changes(self) -> list[tuple[float, float]]:
        """Return how each version that leads to the one in use differed from the one before. See `gate.since_best`."""
        rows = self._context.database.events.all("refreshed", after="mutator-use")
        gates = [row["gate"] for row in rows if row["accepted"] and row.get("gate")]
        return [(gate.get("change", 0.0), gate.get("variance", 0.0)) for gate in gates]

    async def _drop(self, name: str) -> None:
        """Serve a version of this run no longer, and forget the state of its optimizer."""
        row = next((row for row in self._context.database.versions.all() if row.name == name), None)
        if row is not None and row.adapter:
            place = self._place(row.adapter)
            if place.parent == self._adapters:  # not what somebody else trained
                (place / OPTIMIZER).unlink(missing_ok=True)
            await self._context.server.unload_adapter(name)

    def _record(self, figures: dict[str, Any], started: float) -> None:
        figures["seconds"] = round(time.monotonic() - started, 2)
        self._context.database.events.record("refreshed", **figures)
        if self._context.database.events.fruitless("refreshed", FAILURES):
            self._context.say(f"{FAILURES} refreshes in a row were rejected or failed: this run goes on without training")


TRAINED = (
    "estimator",
    "epochs",
    "learning_rate",
    "beta",
    "groups_per_step",
    "micro_batch",
    "credit",
    "truncation",
    "target_kl",
)
KEPT = (
    "groups",
    "group_size",
    "completions",
    "left_out",
    "mismatch",
    "server",
    "trained_tokens",
    "train_seconds",
    "start_seconds",
    "peak_memory_mb",
)
