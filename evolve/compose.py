"""The composition root: build the real parts of a run, put them together, take them apart again."""

from __future__ import annotations

import asyncio
import fcntl
import os
import re
import shutil
import signal
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AsyncExitStack, contextmanager
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Literal

import docker
import numpy as np

from evolve import problem as problems
from evolve.cache import cache_folder, roots_folder
from evolve.database import Database
from evolve.errors import BadInput
from evolve.loop import Options, Progress, Reason, Result, Search
from evolve.models import DEFAULT_MODEL, resolve
from evolve.mutator import OpenAIMutator, Way
from evolve.problem import Problem
from evolve.scoring import Scorer
from evolve.server import VllmServer
from sandbox.base import EngineUnavailable, Limits, Sandbox
from sandbox.bubblewrap import BubblewrapSandbox
from sandbox.container import GVISOR
from sandbox.docker import DockerSandbox
from sandbox.engine import Engine, has_runtime, install
from sandbox.image.build import ensure_image, ensure_root

Say = Callable[[str], None]
SandboxKind = Literal["docker", "docker-reuse", "runsc", "bwrap"]


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
    """

    model: str | None = None
    base_url: str | None = None
    way: Way = "auto"
    sampling: Mapping[str, Any] = field(default_factory=dict)
    server: Mapping[str, Any] = field(default_factory=dict)
    patience: float = 300.0


@dataclass(frozen=True, slots=True)
class RunOptions:
    """All options of a run."""

    search: Options
    mutator: MutatorOptions
    workers: int = 2
    """Candidates that are scored at the same time."""
    sandbox: SandboxKind = "docker"

    def stored(self) -> dict[str, Any]:
        """Return the options as the database keeps them."""
        return asdict(self)

    @classmethod
    def restored(cls, stored: Mapping[str, Any]) -> RunOptions:
        """Return options that `stored` gave."""
        return cls(Options(**stored["search"]), MutatorOptions(**stored["mutator"]), stored["workers"], stored["sandbox"])


def engine() -> Engine:
    """Return the handle on this machine's Docker engine."""
    return Engine(cache_folder() / "docker")


def sandbox_for(problem: Problem, kind: SandboxKind, workers: int, run: str, say: Say) -> Sandbox:
    """Return the sandbox of a problem, its image built if need be (blocking)."""
    builds = problem.toolchain is not None
    return sandbox_with(problem.limits, kind, workers, run, say, problem.spec.packages, builds)


def sandbox_with(
    limits: Limits,
    kind: SandboxKind,
    workers: int,
    run: str,
    say: Say,
    packages: Sequence[str] = (),
    builds: bool = False,
) -> Sandbox:
    """Return a sandbox with these limits and Debian packages, its image built if need be (blocking)."""
    if kind == "bwrap":
        made = BubblewrapSandbox(ensure_root(roots_folder(), packages, say), limits, size=workers)
        if "unbounded" in made.level:
            say("no cgroup can be made here: memory and processes of a whole test are not bounded in this sandbox")
        return made
    url = engine().require()
    runtime = GVISOR if kind == "runsc" else None
    if runtime is not None and not has_runtime(url, runtime):
        raise EngineUnavailable(f"The Docker engine at {url} doesn't know gVisor. Run `evolve setup --sandbox runsc`.")
    client = docker.APIClient(base_url=url, version="auto", timeout=600)
    try:
        image = ensure_image(client, packages, say)
    finally:
        client.close()
    reuse = kind == "docker-reuse"
    return DockerSandbox(url, image, limits, size=workers, run=run, builds=builds, reuse=reuse, runtime=runtime)


def set_up(kind: SandboxKind, say: Say) -> None:
    """Install, start and build what a kind of sandbox needs (blocking; minutes the first time)."""
    if kind == "bwrap":
        if shutil.which("bwrap") is None or shutil.which("debootstrap") is None:
            install(["bubblewrap", "debootstrap"], "bubblewrap", say)
        say(f"the sandbox's root file system is ready ({ensure_root(roots_folder(), say=say)})")
        return
    url = engine().start_gvisor(say) if kind == "runsc" else engine().start(say)
    client = docker.APIClient(base_url=url, version="auto", timeout=600)
    try:
        ensure_image(client, say=say)
    finally:
        client.close()
    say(f"Docker engine and sandbox image are ready ({url})")


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
        problem = problems.load(Path(row.problem))
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
                made = await asyncio.to_thread(sandbox_for, problem, options.sandbox, options.workers, folder.name, say)
                scorer = Scorer(problem, await stack.enter_async_context(made), database.known)
                stack.push_async_callback(scorer.close)
                model = options.mutator.model or DEFAULT_MODEL
                search = Search(problem, options.search, database, scorer, model, observe)
                await search.begin()
                if search.reason() is None:
                    mutator = await _mutator(folder, problem, options.mutator, stack, say)
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


async def _mutator(
    folder: Path, problem: Problem, options: MutatorOptions, stack: AsyncExitStack, say: Say
) -> OpenAIMutator:
    """Return a connected mutator, its server started if need be."""
    common: dict[str, Any] = {
        "way": options.way,
        "language": problem.spec.language,
        "sampling": options.sampling,
        "patience": options.patience,
        "say": say,
    }
    if options.base_url is not None:
        key = os.environ.get("OPENAI_API_KEY", "none")
        client = OpenAIMutator(options.base_url, options.model, api_key=key, **common)
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
