"""Sandboxes and graders for problems: build the image that a problem needs, and decide how an evaluator is kept apart."""

from __future__ import annotations

import asyncio
import json
import math
import shutil
from collections.abc import AsyncIterator, Callable, Hashable, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from types import TracebackType
from typing import Any, Literal, Self

import docker

from evolve.cache import cache_folder, roots_folder
from evolve.clocks import NOTE
from evolve.errors import BadInput
from evolve.evaluated import EvaluatedProblem
from evolve.grading import EvaluatorGrader, TestGrader
from evolve.metrics import numeric
from evolve.problem import Problem
from evolve.score import Grader
from evolve.tested import TestedProblem
from sandbox.base import EngineUnavailable, Limits, Outcome
from sandbox.bubblewrap import BubblewrapSandbox
from sandbox.container import GVISOR
from sandbox.docker import DockerSandbox
from sandbox.engine import Engine, has_runtime, install
from sandbox.evaluator import Evaluator, EvaluatorSandbox
from sandbox.image.build import ensure_image, ensure_root
from sandbox.image.requirements import ensure_layer
from sandbox.pool import PooledSandbox

Say = Callable[[str], None]
SandboxKind = Literal["docker", "docker-reuse", "runsc", "bwrap"]
CLOSE = 1e-6
"""Relative difference up to which two evaluations of the initial program count as equal."""


@dataclass(frozen=True, slots=True)
class Isolation:
    """Whether candidates run apart from the evaluator, and why not."""

    separated: bool
    reason: str = ""


def engine() -> Engine:
    """Return the handle on this machine's Docker engine."""
    return Engine(cache_folder() / "docker")


def sandbox_with(
    limits: Limits,
    kind: SandboxKind,
    workers: int,
    run: str,
    say: Say,
    packages: Sequence[str] = (),
    builds: bool = False,
    requirements: str | None = None,
    cores: float = 1.0,
    network: bool = False,
) -> PooledSandbox:
    """Return a sandbox with these limits and packages, its image built if need be (blocking).

    Raises:
        EngineUnavailable: it can't be had here, or not with a network or Python packages of its own.
    """
    if network and kind in ("bwrap", "runsc"):
        raise EngineUnavailable(f"The sandbox {kind} has no network to allow; use --sandbox docker.")
    if kind == "bwrap":
        if requirements is not None:
            raise EngineUnavailable("requirements.txt needs an image layer of its own, so --sandbox docker.")
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
        if requirements is not None:
            image = ensure_layer(client, image, requirements, say)
    finally:
        client.close()
    return DockerSandbox(
        url,
        image,
        limits,
        size=workers,
        run=run,
        builds=builds,
        reuse=kind == "docker-reuse",
        runtime=runtime,
        cores=cores,
        network=network,
    )


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


class Pools:
    """Sandboxes that the runs of one process share: one for each kind with its limits, packages and so on.

    Args:
        run: name for the labels on containers.
        say: told what takes long.
    """

    def __init__(self, run: str, say: Say):
        self._run = run
        self._say = say
        self._stack = AsyncExitStack()
        self._pools: dict[Hashable, PooledSandbox] = {}
        self._opening = asyncio.Lock()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self._stack.aclose()

    async def get(
        self, limits: Limits, kind: SandboxKind, workers: int, packages: Sequence[str], builds: bool, **more: Any
    ) -> PooledSandbox:
        """Return a sandbox; see `sandbox_with`. It scores `workers` candidates at a time, whoever asks.

        Raises:
            SandboxError: there is none.
        """
        key = (limits, kind, workers, tuple(packages), builds, tuple(sorted(more.items())))
        async with self._opening:
            if key not in self._pools:
                self._say("starting the sandbox and proving that its limits hold")
                made = await asyncio.to_thread(
                    sandbox_with, limits, kind, workers, self._run, self._say, packages, builds, **more
                )
                self._pools[key] = await self._stack.enter_async_context(made)
        return self._pools[key]


@asynccontextmanager
async def grader(
    problem: Problem,
    kind: SandboxKind,
    workers: int,
    run: str,
    say: Say,
    network: bool = False,
    isolation: Isolation | None = None,
    best: float | None = None,
    pools: Pools | None = None,
    required: Sequence[str] | None = None,
) -> AsyncIterator[tuple[Grader, Isolation | None]]:
    """Open the sandbox of a problem and yield what grades its programs.

    Args:
        problem: what is graded.
        kind: of the sandbox.
        workers: candidates graded at the same time.
        run: name of the run, a label on its containers.
        say: told what takes long, and when candidates can't be kept apart from the evaluator.
        network: whether an evaluator may use the network.
        isolation: of an evaluator, as decided earlier; None decides it now with the initial program.
        best: fitness of the run's best program so far.
        pools: of this process; None opens a sandbox for this alone.
        required: see `EvaluatorGrader`.

    Raises:
        SandboxError: there is no sandbox.
        BadInput: a network is asked for where nothing could use it.
    """
    if isinstance(problem, TestedProblem) and network:
        raise BadInput("--allow-network is for evaluators; programs with tests never have a network.")
    async with AsyncExitStack() as stack:
        shared = pools if pools is not None else await stack.enter_async_context(Pools(run, say))
        if isinstance(problem, TestedProblem):
            builds = problem.toolchain is not None
            opened = TestGrader(problem, await shared.get(problem.limits, kind, workers, problem.spec.packages, builds))
            stack.callback(opened.close)
            yield opened, None
            return
        assert isinstance(problem, EvaluatedProblem)
        pool = await shared.get(
            problem.limits,
            kind,
            workers,
            problem.packages,
            True,
            requirements=problem.requirements,
            cores=problem.cores,
            network=network,
        )
        if isolation is None:
            isolation = await decide(problem, pool)
            if not isolation.separated:
                say(f"candidates share the evaluator's process, so they could forge their metrics: {isolation.reason}")
        if isolation.separated and (named := problem.clocks):
            say(NOTE.format(names=", ".join(named)))
        judge = EvaluatorSandbox(pool, _evaluator(problem, isolation.separated))
        yield EvaluatorGrader(problem, judge, best, required), isolation


async def decide(problem: EvaluatedProblem, pool: PooledSandbox) -> Isolation:
    """Find out with the initial program whether a candidate can be kept apart from the evaluator."""
    if problem.spec.trust == "shared_process":
        return Isolation(False, "problem.yaml says so")
    if problem.language != "python":
        return Isolation(False, f"programs in {problem.language} are run by the evaluator itself")
    apart, together = (EvaluatorSandbox(pool, _evaluator(problem, separated)) for separated in (True, False))
    first = await apart.evaluate(problem.initial)
    shared = await together.evaluate(problem.initial)
    if shared.verdict is not None:
        return Isolation(True)  # it fails either way, which is for the search to say
    if first.verdict is not None:
        reason = (first.detail.strip().splitlines() or [str(first.verdict)])[-1]
        return Isolation(False, f"kept apart, the initial program gives {first.verdict}: {reason}")
    if _alike(first, shared):
        return Isolation(True)
    if not _alike(first, await apart.evaluate(problem.initial)) or not _alike(
        shared, await together.evaluate(problem.initial)
    ):
        return Isolation(True)  # the metrics vary by themselves
    return Isolation(False, "kept apart, the initial program gets other metrics")


def _alike(one: Outcome, other: Outcome) -> bool:
    """Return whether two outcomes have the same numeric metrics."""
    if one.verdict is not None or other.verdict is not None:
        return one.verdict is other.verdict
    first, second = (numeric(json.loads(outcome.answer)["metrics"]) for outcome in (one, other))
    return set(first) == set(second) and all(
        math.isclose(first[name], second[name], rel_tol=CLOSE, abs_tol=CLOSE) for name in first
    )


def _evaluator(problem: EvaluatedProblem, separated: bool) -> Evaluator:
    return Evaluator(
        problem.files,
        problem.evaluator,
        problem.program,
        problem.thresholds,
        separated,
        problem.spec.values == "checked",
        problem.spec.env,
    )
