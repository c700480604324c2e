"""A comparison on problem folders with a served model: training, sampling and search are those of `evolve`."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine, Mapping, Sequence
from contextlib import AsyncExitStack
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
from sqlalchemy import Connection, select

from evolve import schema as s
from evolve.answers import fingerprint
from evolve.compose import RunOptions, Session, begin, go_on, session
from evolve.connection import FILE
from evolve.database import Database
from evolve.errors import BadInput
from evolve.models import DEFAULT_MODEL
from evolve.mutator import Way
from evolve.options import Options
from evolve.sandboxes import SandboxKind, grader
from evolve.serving import MutatorOptions, adapter_name
from evolve.tested import TestedProblem
from mutator_training.estimators import ESTIMATORS
from mutator_training.lab import Cell, Say
from mutator_training.on_policy import OnPolicyOptions, Place, places, publish, spent, summary, train_on
from mutator_training.plan import Plan
from mutator_training.samples import MISSING, Samples
from mutator_training.trace import trace

Result = TypeVar("Result")


@dataclass(frozen=True, slots=True)
class FolderOptions:
    """Of a comparison on problem folders.

    Attributes:
        model: hub id, folder, .gguf file or packaged model.
        max_tokens: of a completion.
        way: how several answers come into one completion. A run of one prompt is too short for `auto` to decide.
        sampling: passed through to every request, beside temperature and max_tokens.
        server: passed through to vLLM's command line.
        lora: passed through to PEFT's LoraConfig.
        trainer: passed through to TRL's GRPOConfig.
        micro_batch: completions of one forward and backward pass.
        workers: candidates scored at the same time.
        sandbox: kind of sandbox.
    """

    model: str = DEFAULT_MODEL
    max_tokens: int = 512
    way: Way = "scaffold"
    sampling: Mapping[str, Any] = field(default_factory=dict)
    server: Mapping[str, Any] = field(default_factory=dict)
    lora: Mapping[str, Any] = field(default_factory=dict)
    trainer: Mapping[str, Any] = field(default_factory=dict)
    micro_batch: int = 2
    workers: int = 2
    sandbox: SandboxKind = "docker"

    @classmethod
    def checked(cls, given: Mapping[str, Any]) -> FolderOptions:
        """Return options.

        Raises:
            BadInput: a name is unknown.
        """
        unknown = sorted(set(given) - set(cls.__dataclass_fields__))
        if unknown:
            raise BadInput(f"--set: no setting {', '.join(unknown)}. Known: {', '.join(cls.__dataclass_fields__)}.")
        return cls(**given)


def check_folders(plan: Plan) -> None:
    """Check that a plan's problems can be compared on.

    Raises:
        BadInput: a folder is broken, has an evaluator instead of tests, or is on both sides; or a setting is unknown.
    """
    FolderOptions.checked(plan.options)
    for side in (plan.problems, plan.train):
        for place in places([Path(path) for path in side], Path()):
            if not isinstance(place.problem, TestedProblem):
                raise BadInput(f"{place.problem.path} has an evaluator; comparisons are on problems with tests.")
    both = {Path(path).resolve() for path in plan.problems} & {Path(path).resolve() for path in plan.train}
    if both:
        raise BadInput(f"{sorted(both)[0]} is both held out and trained on.")


class FolderLab:
    """See `Lab`. One model server serves all cells of a process.

    Args:
        plan: of the comparison.
        folder: of the comparison.
        say: told of the progress.
    """

    def __init__(self, plan: Plan, folder: Path, say: Say):
        self._plan = plan
        self._folder = folder
        self._say = say
        self._options = FolderOptions.checked(plan.options)
        self._held_out = [Path(path) for path in plan.problems]
        self._stack = AsyncExitStack()
        self._runner = asyncio.Runner()
        self._session: Session | None = None

    @property
    def problems(self) -> list[str]:
        """See `Lab.problems`."""
        return [path.name for path in self._held_out]

    def prepare(self) -> dict[str, Any]:
        """See `Lab.prepare`: the base is served as it is."""
        return {}

    def close(self) -> None:
        """See `Lab.close`."""
        with self._runner:
            self._runner.run(self._stack.aclose())

    def _run(self, work: Coroutine[Any, Any, Result]) -> Result:
        return self._runner.run(work)

    async def _opened(self) -> Session:
        if self._session is None:
            options = self._mutator(self._plan.temperature)
            self._session = await self._stack.enter_async_context(session(self._folder, options, self._say, lambda _: None))
        return self._session

    def _mutator(self, temperature: float) -> MutatorOptions:
        options = self._options
        return MutatorOptions(
            model=options.model,
            way=options.way,
            sampling={**options.sampling, "temperature": temperature, "max_tokens": options.max_tokens},
            server=options.server,
            lora_rank=int(options.lora.get("r", 16)),
        )

    def train(self, cell: Cell) -> dict[str, Any]:
        """See `Lab.train`."""
        if cell.arm.estimator is None:
            return {"steps": [], "curve": [], "cost": {}}
        return self._run(self._train(cell))

    async def _train(self, cell: Cell) -> dict[str, Any]:
        plan, arm, given = self._plan, cell.arm, self._options
        assert arm.estimator in ESTIMATORS
        opened = await self._opened()
        concentration = {name: arm.settings[name] for name in ("concentration",) if name in arm.settings}
        options = OnPolicyOptions(
            steps=plan.train_steps,
            prompts=plan.prompts,
            completions=arm.completions(plan.group),
            answers=arm.answers,
            trainer={
                "estimator": arm.estimator,
                "estimator_options": concentration,
                "learning_rate": arm.settings.get("learning_rate", plan.learning_rate),
                "beta": arm.settings.get("beta", plan.beta),
                "micro_batch": given.micro_batch,
                "credit": arm.settings.get("credit", "completion"),
                "trainer": dict(given.trainer),
            },
            lora=given.lora,
            tests=arm.settings.get("tests"),
            seed=cell.seed,
            workers=given.workers,
            sandbox=given.sandbox,
        )
        folder = cell.folder / "training"
        learning = places([Path(path) for path in plan.train], folder)
        last = await train_on(learning, folder, options, self._mutator(1.0), opened)
        policy = cell.folder / "policy"
        if not policy.is_dir():
            publish(last, policy)
        found = summary(folder, plan.train_steps)
        cost = {
            "answers": found["answers"],
            "completions": found["completions"],
            "sampled_tokens": found["sampled_tokens"],
            "trained_tokens": found["trained_tokens"],
            "seconds": round(sum(found[part] for part in ("sampling_seconds", "start_seconds", "train_seconds")), 1),
            "sampling_seconds": found["sampling_seconds"],
            "scoring_seconds": found["scoring_seconds"],
            "gradient_seconds": found["train_seconds"],
            "peak_memory_mb": found["peak_memory_mb"],
        }
        return {"steps": found["steps"], "curve": [], "cost": cost}

    def sample(self, cell: Cell) -> tuple[Samples, dict[str, Any]]:
        """See `Lab.sample`."""
        return self._run(self._sample(cell))

    async def _sample(self, cell: Cell) -> tuple[Samples, dict[str, Any]]:
        plan, arm = self._plan, cell.arm
        opened = await self._opened()
        await self._serve(cell, opened)
        options = Options(
            prompts=1,
            completions=arm.completions(plan.samples),
            answers=arm.answers,
            selection="initial",
            inspirations=0,
            retry=False,
            candidates=None,
            generations=1,
        )
        held_out = places(self._held_out, cell.folder / "samples")
        await asyncio.gather(*(self._searched(place, options, cell, opened) for place in held_out))
        found = [await self._answers(place, cell, opened) for place in held_out]
        samples = Samples(
            self.problems,
            np.stack([keys for keys, _, _ in found]),
            _joined([visible for _, visible, _ in found]),
            _joined([hidden for _, _, hidden in found]),
        )
        return samples, _cost([place.run for place in held_out])

    async def _serve(self, cell: Cell, opened: Session) -> None:
        """Let the cell's mutator answer from now on."""
        if cell.arm.estimator is None:
            await opened.mutators.serve_base()
        else:
            policy = (cell.folder / "policy").resolve()
            if opened.mutators.version is None or opened.mutators.version[1] != policy:
                await opened.mutators.serve(adapter_name(policy), policy)

    async def _searched(self, place: Place, search: Options, cell: Cell, opened: Session) -> None:
        """Run a search of a cell to its end."""
        if (place.run / FILE).is_file():
            await go_on(place.run, opened)
            return
        given = self._options
        options = RunOptions(search, self._mutator(self._plan.temperature), given.workers, given.sandbox)
        await begin(place.run, place.problem, options, cell.seed, opened)

    async def _answers(
        self, place: Place, cell: Cell, opened: Session
    ) -> tuple[np.ndarray[Any, Any], np.ndarray[Any, Any], np.ndarray[Any, Any]]:
        """Return keys (C, m), visible scores (C, m, k) and hidden scores (C, m, h) of one problem's answers."""
        problem, arm = place.problem, cell.arm
        assert isinstance(problem, TestedProblem)
        count = arm.completions(self._plan.samples)
        keys = np.full((count, arm.answers), MISSING, dtype=np.int64)
        visible = np.zeros((count, arm.answers, len(problem.visible)), dtype=np.float32)
        hidden = np.zeros((count, arm.answers, len(problem.hidden)), dtype=np.float32)
        database = Database.open(place.run)
        try:
            rows = database.read(_scored)
        finally:
            database.close()
        known: dict[str, np.ndarray[Any, Any]] = {}
        async with grader(
            problem, self._options.sandbox, self._options.workers, place.run.name, self._say, pools=opened.pools
        ) as (opened_grader, _):
            for row in rows:
                twin = fingerprint(row.text, problem.language)
                if twin not in known:
                    known[twin] = np.array([one.score for one in await opened_grader.hidden(row.text)], dtype=np.float32)
                at = (row.completion, row.answer)
                keys[at] = int(twin[:15], 16)
                if row.scores is not None:
                    visible[at] = row.scores[: len(problem.visible)]
                    hidden[at] = known[twin]
        return keys, visible, hidden

    def search(self, cell: Cell, problems: Sequence[str]) -> tuple[dict[str, Any], dict[str, Any]]:
        """See `Lab.search`."""
        return self._run(self._search(cell, problems))

    async def _search(self, cell: Cell, problems: Sequence[str]) -> tuple[dict[str, Any], dict[str, Any]]:
        plan, arm = self._plan, cell.arm
        opened = await self._opened()
        await self._serve(cell, opened)
        options = Options(
            prompts=2,
            completions=max(1, 2 * plan.answers // arm.answers),
            answers=arm.answers,
            candidates=plan.search_budget,
            stop_when="solved",
        )
        chosen = [path for path in self._held_out if path.name in problems]
        held_out = places(chosen, cell.folder / "search")
        await asyncio.gather(*(self._searched(place, options, cell, opened) for place in held_out))
        found = {place.run.name: asdict(trace(place.run)) for place in held_out}
        return found, _cost([place.run for place in held_out])


def _cost(runs: Sequence[Path]) -> dict[str, Any]:
    """Return what runs cost that went on together, whatever stopped them in between."""
    found = [spent(run) for run in runs]
    return {
        "answers": sum(one["candidates"] for one in found),
        "completions": sum(one["completions"] for one in found),
        "sampled_tokens": sum(one["completion_tokens"] for one in found),
        "scoring_seconds": round(sum(one["scoring_cpu_seconds"] for one in found), 2),
        "seconds": max(one["seconds"] for one in found),
    }


def _scored(connection: Connection) -> list[Any]:
    """Return the programs of a run that its completions hold, with their places."""
    query = (
        select(
            s.completion.c.position.label("completion"),
            s.program.c.position.label("answer"),
            s.program.c.scores,
            s.source.c.text,
        )
        .select_from(s.program)
        .join(s.completion, s.program.c.completion_id == s.completion.c.id)
        .join(s.source, s.program.c.source_hash == s.source.c.hash)
        .order_by(s.program.c.id)
    )
    return list(connection.execute(query))


def _joined(parts: Sequence[np.ndarray[Any, Any]]) -> np.ndarray[Any, Any]:
    """Stack (C, m, k_p) arrays of problems; NaN where one has fewer tests."""
    widest = max(part.shape[-1] for part in parts)
    whole = np.full((len(parts), *parts[0].shape[:-1], widest), np.nan, dtype=np.float32)
    for row, part in zip(whole, parts, strict=True):
        row[..., : part.shape[-1]] = part
    return whole
