"""What is asked of this machine: check a problem, look for faults, set up, keep a model server warm."""

from __future__ import annotations

import asyncio
import contextlib
import signal
from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.console import Console

from evolve import problem as problems
from evolve import render
from evolve.arguments import (
    BaseUrl,
    ConfigName,
    EvaluatorName,
    Initial,
    Json,
    Model,
    Network,
    SandboxOption,
    pairs,
)
from evolve.compose import only_process, use
from evolve.doctor import examine, examine_run, examine_server
from evolve.errors import BadInput
from evolve.evaluated import EvaluatedProblem
from evolve.keys import keep
from evolve.models import DEFAULT_MODEL, resolve
from evolve.problem import Problem, TestedProblem
from evolve.progress import Display
from evolve.sandboxes import Pools, SandboxKind, Say, engine, grader, set_up

if TYPE_CHECKING:
    from evolve.server import VllmServer

err = Console(stderr=True)


def check(
    problem: Annotated[Path, typer.Argument(help="Problem folder.")],
    initial: Initial = None,
    evaluator: EvaluatorName = None,
    config: ConfigName = None,
    network: Network = False,
    sandbox: SandboxOption = "docker",
    accept: Annotated[
        bool, typer.Option("--accept", help="An initial program that gets nothing beside a fault is meant to: exit 0.")
    ] = False,
    as_json: Json = False,
) -> None:
    """Load a problem folder and score its initial program; say what of an OpenEvolve config is honoured and ignored.

    Exit 2 where it doesn't run, or where an evaluator gives it nothing and seems to have swallowed a fault.
    """
    loaded = problems.load(problem, initial, evaluator, config)
    with Display(err, None) as display:
        found = asyncio.run(_check(loaded, sandbox, display.say, network))
    render.show(found, as_json, lambda: render.show_check(found))
    _judge(loaded, found, accept)


def _judge(loaded: Problem, found: Mapping[str, Any], accept: bool) -> None:
    """Refuse what `_check` found where a search would start from nothing.

    Raises:
        BadInput: the initial program doesn't run, or the evaluator seems to have swallowed a fault.
    """
    if not found["runs"]:
        told = "; ".join(found.get("faults") or [found.get("detail") or ""]).strip()
        why = f" {found['verdict']}: {told}" if told else ""
        raise BadInput(f"The initial program of {loaded.name} doesn't run, so a search can't start from it.{why}")
    if found["fitness"] is not None and found["fitness"] <= 0 and isinstance(loaded, EvaluatedProblem):
        if not found["faults"]:
            render.say(NOTHING.format(name=loaded.name, fitness=found["fitness"]), err)
        elif not accept:
            raise BadInput(
                f"The initial program of {loaded.name} has the fitness {found['fitness']:g}, and the evaluator seems to "
                f"have swallowed a fault: {'; '.join(found['faults'])}. Mend that, or say --accept where it is meant so."
            )


LOOK_SECONDS = 5.0
"""Between two looks whether a warm server still answers."""

NOTHING = (
    "The initial program of {name} has the fitness {fitness:g}, and nothing that the evaluator printed tells of a fault. If "
    "it should have more, let the evaluator print what it catches, and look at it with this command."
)


async def _check(
    problem: Problem, kind: SandboxKind, say: Say, network: bool = False, pools: Pools | None = None
) -> dict[str, Any]:
    async with grader(problem, kind, 1, "check", say, network, pools=pools) as (opened, isolation):
        score = await opened.score(problem.initial)
        hidden = await opened.hidden(problem.initial)
    found = {
        "problem": problem.name,
        "language": problem.language,
        "runs": score.ran,
        "fitness": score.fitness,
        "sandbox": score.level,
    }
    if isinstance(problem, TestedProblem):
        tests = [
            {"test": test.id, "hidden": is_hidden, "verdict": result.verdict, "score": result.score, "got": result.got,
             "detail": result.detail}
            for group, results, is_hidden in ((problem.visible, score.results, False), (problem.hidden, hidden, True))
            for test, result in zip(group, results, strict=True)
        ]  # fmt: skip
        return found | {
            "objectives": len(problem.objectives),
            "visible_tests": len(problem.visible),
            "hidden_tests": len(problem.hidden),
            "tests": tests,
        }
    assert isinstance(problem, EvaluatedProblem) and isolation is not None
    result = score.results[0]
    return found | {
        "verdict": result.verdict,
        "detail": result.detail,
        "self_scored": not isolation.separated,
        "why": isolation.reason,
        "clocks": problem.clocks,
        "objectives": sorted(score.values or ()),
        "metrics": dict(score.metrics),
        "roles": problem.roles(score.metrics),
        "faults": list(score.faults),
        "artifacts": dict(score.artifacts),
        "honoured": {key: value for key, value in problem.config.given.items() if "key" not in key},
        "ignored": list(problem.config.ignored),
    }


def doctor(
    run: Annotated[Path | None, typer.Argument(help="A run whose database is looked at, instead of the machine.")] = None,
    base_url: BaseUrl = None,
    model: Model = None,
    as_json: Json = False,
) -> None:
    """Say what works on this machine, or whether a run's database is whole, and what to do about the rest.

    With --base-url: what a running model server can do, found with two short completions.
    """
    if base_url is not None:
        checks = asyncio.run(examine_server(base_url, model))
    else:
        checks = asyncio.run(examine(engine())) if run is None else examine_run(run)
    render.show([asdict(one) for one in checks], as_json, lambda: render.show_checks(checks))
    if not all(one.works for one in checks):
        raise typer.Exit(3)


def setup(model: Model = DEFAULT_MODEL, sandbox: SandboxOption = "docker") -> None:
    """Install and start what is missing: sandbox (with Docker: engine and image) and model. What is there is left alone."""

    def fetch() -> None:
        display.say(f"the model is ready ({resolve(model or DEFAULT_MODEL, display.say)})")

    async def both() -> None:
        await asyncio.gather(asyncio.to_thread(set_up, sandbox, display.say), asyncio.to_thread(fetch))

    with Display(err, None) as display:
        asyncio.run(both())


def stop_engine() -> None:
    """Stop the Docker engine that `evolve setup` started; others are left alone."""
    render.say("stopped" if engine().stop() else "no engine of ours is running")


def serve(
    model: Model = DEFAULT_MODEL,
    port: Annotated[int, typer.Option(min=1, max=65535)] = 8011,
    server: Annotated[list[str] | None, typer.Option("--server", help="KEY=VALUE for vLLM's command line.")] = None,
) -> None:
    """Keep a model server warm between runs, until Ctrl-C."""
    from evolve.cache import cache_folder
    from evolve.server import VllmServer

    async def stay() -> None:
        name = model or DEFAULT_MODEL
        path = resolve(name, display.say)
        log = cache_folder() / "server.log"
        async with VllmServer(path, Path(name).name, log, port, pairs("--server", server), display.say) as running:
            kept = keep(port, running.key)
            display.say(f"use it with --base-url {running.base_url}; end it with Ctrl-C")
            try:
                await _recover_until_interrupted(running)
            finally:
                kept.unlink(missing_ok=True)

    with Display(err, None) as display:
        asyncio.run(stay())
    raise typer.Exit(130)


async def _recover_until_interrupted(server: VllmServer) -> None:
    """Restart a server that dies, until SIGINT or SIGTERM; then return.

    The signal is remembered: a cancellation alone may get lost in a request that is under way.
    """
    loop, task = asyncio.get_running_loop(), asyncio.current_task()
    assert task is not None
    stopped, busy = asyncio.Event(), False

    def stop() -> None:
        stopped.set()
        if busy:
            task.cancel()

    for number in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(number, stop)
    while not stopped.is_set():
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(LOOK_SECONDS):
                await stopped.wait()
        if not stopped.is_set():
            busy = True
            try:
                await server.recover()
            except asyncio.CancelledError:
                if not stopped.is_set():
                    raise
            busy = False


def use_version(
    run: Annotated[Path, typer.Argument(help="Folder of the run.")],
    version: Annotated[str, typer.Argument(help="Name of a version, as `evolve show RUN mutators` has it, or its vN.")],
) -> None:
    """Let a run go on with an earlier version of its mutator."""
    with only_process(run):
        chosen = use(run, version)
    render.say(f"{run} goes on with {chosen}: `evolve resume {run}`")
