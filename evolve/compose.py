"""The composition root: build the real parts of a run, put them together, take them apart again."""

from __future__ import annotations

import asyncio
import fcntl
import os
import re
import signal
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AsyncExitStack, contextmanager
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from evolve import problem as problems
from evolve.completion import Mutator
from evolve.database import Database
from evolve.ensemble import Ensemble
from evolve.errors import BadInput
from evolve.evaluated import EvaluatedProblem
from evolve.loop import Options, Progress, Reason, Result, Search
from evolve.metrics_prompt import MetricsPrompter
from evolve.models import DEFAULT_MODEL, resolve
from evolve.mutator import OpenAIMutator, Way
from evolve.problem import Problem
from evolve.prompt import Prompter, TestPrompter
from evolve.sandboxes import Isolation, SandboxKind, Say, grader
from evolve.scoring import Scorer
from evolve.server import VllmServer
from evolve.tested import TestedProblem


@dataclass(frozen=True, slots=True)
class MutatorOptions:
    """How completions are had; stored with the run.

    Attributes:
        model: hub id, folder, .gguf file or packaged model; with `base_url`, the served name (None: the first).
        base_url: of a running OpenAI-compatible server; None starts vLLM as a child.
        way: plain, scaffold or auto.
        sampling: passed through to every request.
        server: passed through to vLLM's command line.
        patience: seconds for which a server that fails is asked again.
        timeout: seconds that a request may take.
        retries: how often a request that fails is repeated before the server counts as away.
        models: name, weight and base URL of several served models, one of which is drawn for each prompt; instead of `model`
            and `base_url`.
    """

    model: str | None = None
    base_url: str | None = None
    way: Way = "auto"
    sampling: Mapping[str, Any] = field(default_factory=dict)
    server: Mapping[str, Any] = field(default_factory=dict)
    patience: float = 300.0
    timeout: float = 600.0
    retries: int = 2
    models: Sequence[tuple[str, float, str]] = ()


@dataclass(frozen=True, slots=True)
class RunOptions:
    """All options of a run."""

    search: Options
    mutator: MutatorOptions
    workers: int = 2
    """Candidates that are scored at the same time."""
    sandbox: SandboxKind = "docker"
    network: bool = False
    """Whether an evaluator may use the network."""
    place: Mapping[str, Any] = field(default_factory=dict)
    """File names in the problem folder, where they are not the usual ones."""

    def stored(self) -> dict[str, Any]:
        """Return the options as the database keeps them."""
        return asdict(self)

    @classmethod
    def restored(cls, stored: Mapping[str, Any]) -> RunOptions:
        """Return options that `stored` gave."""
        return cls(
            Options.restored(stored["search"]),
            MutatorOptions(**stored["mutator"]),
            stored["workers"],
            stored["sandbox"],
            stored.get("network", False),
            stored.get("place", {}),
        )


def new_folder(problem: Problem) -> Path:
    """Return a fresh folder under `runs/` for a run that the user did not name."""
    stem = re.sub(r"[^A-Za-z0-9_.-]+", "-", problem.name)
    return Path("runs") / f"{stem}-{time.strftime('%Y%m%d-%H%M%S')}-{os.getpid()}"


@contextmanager
def only_process(folder: Path) -> Iterator[None]:
    """Hold a run for this process.

    Raises:
        BadInput: another process has it.
    """
    handle = os.open(folder, os.O_RDONLY)
    try:
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise BadInput(f"Another process is working on {folder}. End it first, or use another run.") from None
        yield
    finally:
        os.close(handle)


async def start(
    folder: Path,
    problem: Problem,
    options: RunOptions,
    seed: int,
    say: Say,
    observe: Callable[[Progress], None],
) -> Result:
    """Make a run and search.

    Raises:
        EvolveError, SandboxError: see their texts; what was recorded is kept.
    """
    state = np.random.default_rng(seed).bit_generator.state
    folder.mkdir(parents=True, exist_ok=True)
    with only_process(folder):
        database = Database.create(folder, problem, options.stored(), seed, state)
        database.record_event("start")
        return await _search(folder, problem, options, database, say, observe)


async def resume(
    folder: Path,
    budgets: Mapping[str, Any],
    base_url: str | None,
    say: Say,
    observe: Callable[[Progress], None],
) -> Result:
    """Go on with a run where it stopped.

    Args:
        folder: the run.
        budgets: fields of `Options` that replace the stored ones.
        base_url: a running server to use from now on, instead of the run's own choice.
        say: told what takes long.
        observe: shown the progress.

    Raises:
        BadInput: no run, or its problem has changed since.
        EvolveError, SandboxError: see their texts; what was recorded is kept.
    """
    database = Database.open(folder)
    with only_process(folder):
        row = database.run()
        problem = problems.load(Path(row.problem), **row.options.get("place", {}))
        if problem.digest != row.problem_digest:
            raise BadInput(
                f"{problem.path} has changed since the run began, so its scores could not be compared with the recorded "
                "ones. Undo the change, or start a new run."
            )
        stored = dict(row.options)
        stored["search"] = {**stored["search"], **budgets}
        if base_url is not None:
            stored["mutator"] = {**stored["mutator"], "base_url": base_url, "model": None}
        options = RunOptions.restored(stored)
        database.record_event("resume", **budgets)
        return await _search(folder, problem, options, database, say, observe)


async def _search(
    folder: Path,
    problem: Problem,
    options: RunOptions,
    database: Database,
    say: Say,
    observe: Callable[[Progress], None],
) -> Result:
    task = asyncio.current_task()
    assert task is not None
    search: Search | None = None
    running = False

    def on_signal() -> None:
        nonlocal running
        if search is not None and running:
            say("stopping; what is recorded is kept (again to stop at once)")
            search.interrupt()
            running = False
        else:
            task.cancel()

    for number in (signal.SIGINT, signal.SIGTERM):
        asyncio.get_running_loop().add_signal_handler(number, on_signal)
    try:
        async with AsyncExitStack() as stack:
            stack.callback(database.close)
            database.set_status("running")
            try:
                say("starting the sandbox and proving that its limits hold")
                decided = database.last_event("isolation")
                opened, isolation = await stack.enter_async_context(
                    grader(
                        problem,
                        options.sandbox,
                        options.workers,
                        folder.name,
                        say,
                        options.network,
                        None if decided is None else Isolation(**decided),
                        database.best_fitness(),
                    )
                )
                if decided is None and isolation is not None:
                    database.record_event("isolation", **asdict(isolation))
                _check_level(database, opened.level)
                scorer = Scorer(opened, problem.language, database.known)
                stack.push_async_callback(scorer.close)
                model = options.mutator.model or DEFAULT_MODEL
                search = Search(problem, options.search, database, scorer, prompter(problem), model, observe)
                await search.begin()
                if search.reason() is None:
                    mutator = await _mutator(folder, problem, options.mutator, stack, say)
                    if isinstance(mutator, OpenAIMutator):
                        mutator.resume_with(database.last_format() or mutator.format)
                    running = True
                    await search.run(mutator)
                result = await search.finish()
            except asyncio.CancelledError:
                database.set_status("stopped", Reason.INTERRUPTED)
                raise
            except Exception as error:
                database.set_status("stopped", str(error)[:2000])
                database.record_event("fault", error=f"{type(error).__name__}: {error}"[:2000])
                raise
            stopped = result.reason is Reason.INTERRUPTED
            database.set_status("stopped" if stopped else "finished", result.reason)
            database.record_event("end", reason=result.reason, best=result.best, confirmed=result.confirmed)
            return result
    finally:
        for number in (signal.SIGINT, signal.SIGTERM):
            asyncio.get_running_loop().remove_signal_handler(number)


def prompter(problem: Problem) -> Prompter:
    """Return what asks for better programs of a problem."""
    if isinstance(problem, TestedProblem):
        return TestPrompter(problem)
    assert isinstance(problem, EvaluatedProblem)
    return MetricsPrompter(problem)


def _check_level(database: Database, level: str) -> None:
    """Refuse to mix scores of different isolation in one run."""
    recorded = database.level()
    if recorded is not None and recorded != level:
        raise BadInput(
            f"The scores of this run come from the sandbox {recorded!r}; here it would be {level!r}. Scores of different "
            "isolation are never mixed: resume on a machine where the first one works, or start a new run."
        )


async def _mutator(folder: Path, problem: Problem, options: MutatorOptions, stack: AsyncExitStack, say: Say) -> Mutator:
    """Return a connected mutator, its server started if need be."""
    common: dict[str, Any] = {
        "way": options.way,
        "language": problem.language,
        "sampling": options.sampling,
        "patience": options.patience,
        "timeout": options.timeout,
        "retries": options.retries,
        "say": say,
    }
    key = os.environ.get("OPENAI_API_KEY") or (problem.config.api_key if isinstance(problem, EvaluatedProblem) else None)
    if options.models:
        clients = [
            await stack.enter_async_context(OpenAIMutator(url, name, api_key=key or "none", **common))
            for name, _, url in options.models
        ]
        return Ensemble(clients, [weight for _, weight, _ in options.models])
    if options.base_url is not None:
        client = OpenAIMutator(options.base_url, options.model, api_key=key or "none", **common)
    else:
        name = options.model or DEFAULT_MODEL
        path = await asyncio.to_thread(resolve, name, say)
        say(f"model {name}: {path}")
        server = await stack.enter_async_context(
            VllmServer(path, Path(name).name, folder / "server.log", options=options.server, say=say)
        )
        client = OpenAIMutator(
            server.base_url, server.name, takes_seeds=server.takes_seeds, recover=server.recover, **common
        )
    connected = await stack.enter_async_context(client)
    if not connected.gives_token_ids:
        say(f"{options.base_url} gives no token ids: this run can search, but a mutator can't be trained from it")
    return connected
