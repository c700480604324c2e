"""`evolve run` and `evolve resume`: from options to a search, and from its result to an exit code."""

from __future__ import annotations

import asyncio
import time
from dataclasses import replace
from pathlib import Path
from typing import Annotated, Any, Literal

import typer
from rich.console import Console

from evolve import problem as problems
from evolve import render
from evolve.arguments import (
    BaseUrl,
    Candidates,
    ConfigName,
    EvaluatorName,
    Initial,
    Json,
    Minutes,
    Model,
    Network,
    SandboxOption,
    StopWhen,
    Tokens,
    pairs,
)
from evolve.compose import BASELINE, RunOptions, new_folder, resume, start
from evolve.connection import FILE
from evolve.errors import BadInput, nearest
from evolve.evaluated import EvaluatedProblem
from evolve.options import Reason, Result
from evolve.problem import Problem
from evolve.progress import Display
from evolve.report import Report, baseline_summary
from evolve.selection import POLICIES
from evolve.serving import MutatorOptions
from evolve.settings import DEFAULT_CANDIDATES, replayed, run_seed, search_options, seed_of, service, workers_of
from evolve.settings import sampling as config_sampling
from evolve.suite import Entry, Share, problem_folders, resume_suite, run_folders, start_suite
from evolve.suite import summary as suite_summary

err = Console(stderr=True)

LORA_RANK = 16
"""Of the adapters that a run may train, unless --server max-lora-rank says otherwise."""


def run(
    problem: Annotated[Path, typer.Argument(help="Problem folder.")],
    folder: Annotated[Path | None, typer.Option("--out", help="Folder of the run; default runs/NAME-TIME.")] = None,
    budget: Candidates = None,
    tokens: Tokens = None,
    minutes: Minutes = None,
    stop_when: StopWhen = None,
    model: Model = None,
    base_url: BaseUrl = None,
    adapter: Annotated[
        Path | None, typer.Option(help="LoRA adapter of the managed server's model, such as `evolve train` makes.")
    ] = None,
    train: Annotated[
        str | None, typer.Option(help="Refresh the mutator between generations with this estimator, such as vpo.")
    ] = None,
    refresh_every: Annotated[int, typer.Option(min=1, help="Generations between two refreshes.")] = 1,
    gate: Annotated[
        bool, typer.Option("--gate/--no-gate", help="Whether a new version must be no worse than the old one.")
    ] = True,
    training: Annotated[
        list[str] | None, typer.Option("--training", help="KEY=VALUE of the training, such as learning_rate=1e-5.")
    ] = None,
    prompts: Annotated[
        int | None, typer.Option("--prompts", "-P", min=1, help="Prompts of a generation, under way at a time; default 4.")
    ] = None,
    completions: Annotated[
        int | None, typer.Option("--completions", "-G", min=1, help="Completions of a prompt; default 4.")
    ] = None,
    answers: Annotated[
        int | None, typer.Option("--answers", "-m", min=1, help="Answers of a completion; default 2.")
    ] = None,
    way: Annotated[
        Literal["auto", "plain", "scaffold"],
        typer.Option(help="How several answers come into one completion."),
    ] = "auto",
    selection: Annotated[str | None, typer.Option(help=f"Parent policy: {', '.join(POLICIES)}; default lexicase.")] = None,
    inspirations: Annotated[
        int | None, typer.Option(min=0, help="Programs shown beside the parent that do what it can't; default 1.")
    ] = None,
    islands: Annotated[int | None, typer.Option(min=1, help="Islands of the population; default 1.")] = None,
    stagnation: Annotated[
        int | None,
        typer.Option(min=1, help="Restart an island from the others' best after so many candidates without a better one."),
    ] = None,
    edits: Annotated[
        Literal["auto", "diff", "full"] | None,
        typer.Option(
            help="Ask for whole programs (default), for SEARCH/REPLACE edits, or for edits until they fail too often."
        ),
    ] = None,
    retry: Annotated[
        bool | None,
        typer.Option("--retry/--no-retry", help="Answer a reply without a program once with the reason; default yes."),
    ] = None,
    baseline: Annotated[
        Literal["best-of-n"] | None,
        typer.Option(help="Afterwards sample as many candidates from the initial program alone, for comparison."),
    ] = None,
    replay: Annotated[
        Path | None,
        typer.Option(help="Give the completions of this recorded run again, with its seed and options."),
    ] = None,
    share: Annotated[
        Share,
        typer.Option(help="How a suite's budget is shared: equally, or what solved problems leave over goes to the others."),
    ] = "unsolved",
    initial: Initial = None,
    evaluator: EvaluatorName = None,
    config: ConfigName = None,
    network: Network = False,
    seed: Annotated[int | None, typer.Option(min=0, help="Seed of the run; default a random one, recorded.")] = None,
    workers: Annotated[int | None, typer.Option(min=1, help="Candidates scored at the same time; default 2.")] = None,
    sampling: Annotated[
        list[str] | None,
        typer.Option("--sampling", help="KEY=VALUE for every request, such as temperature=0.8."),
    ] = None,
    server: Annotated[
        list[str] | None,
        typer.Option("--server", help="KEY=VALUE for vLLM's command line, such as max-model-len=8192."),
    ] = None,
    allow_env: Annotated[
        list[str] | None,
        typer.Option(help="Variable of the environment that the folder's config may send as a key, such as OPENAI_API_KEY."),
    ] = None,
    patience: Annotated[float, typer.Option(min=0, help="Seconds to wait for a model server that fails.")] = 300.0,
    sandbox: SandboxOption = "docker",
    as_json: Json = False,
) -> None:
    """Search for a better program. The run is one folder; `evolve resume` goes on after any kind of stop.

    A folder of problem folders is searched as a suite: a run for each, one server for all, the budget shared.
    """
    if selection is not None and selection not in POLICIES:
        raise BadInput(f"--selection: no policy {selection!r}{nearest(selection, POLICIES)} Known: {', '.join(POLICIES)}.")
    names = {"initial": initial, "evaluator": evaluator, "config": config}
    given = {
        "prompts": prompts,
        "completions": completions,
        "answers": answers,
        "selection": selection,
        "inspirations": inspirations,
        "islands": islands,
        "stagnation": stagnation,
        "edits": edits,
        "retry": retry,
        "candidates": budget,
        "tokens": tokens,
        "minutes": minutes,
        "stop_when": stop_when,
    }
    wanted = MutatorOptions(
        model=model,
        base_url=base_url,
        way=way,
        sampling=pairs("--sampling", sampling),
        server=pairs("--server", server),
        patience=patience,
        replay=None if replay is None else str(replay),
        adapter=None if adapter is None else str(adapter.resolve()),
        lora_rank=LORA_RANK if train is not None else None,
        allow_env=allow_env or (),
    )

    refreshing = None
    if train is not None:
        refreshing = {"estimator": train, "every": refresh_every, "gate": gate, **pairs("--training", training)}
    elif training:
        raise BadInput("--training says how the mutator is trained; --train ESTIMATOR says that it is.")

    def options_of(loaded: Problem, display: Display) -> RunOptions:
        search, mutator = search_options(loaded, given), _mutator_options(loaded, wanted, display)
        if replay is not None:
            search = replayed(replay, given)
        return RunOptions(search, mutator, workers or workers_of(loaded), sandbox, network, names, refreshing, baseline)

    several = problem_folders(problem)
    if several:
        if train is not None:
            raise BadInput(
                "The runs of a suite would each train a mutator of their own. Train one on all the problems with "
                "`evolve train PROBLEM...`, or search them one by one."
            )
        if tokens is not None or minutes is not None or replay is not None:
            raise BadInput("A suite shares a --budget of candidates; --tokens, --minutes and --replay are for single runs.")
        place = folder or Path("runs") / f"{problem.resolve().name}-{time.strftime('%Y%m%d-%H%M%S')}"
        with Display(err, place / "suite.log") as display:
            loaded = [problems.load(one) for one in several]
            entries = [
                Entry(place / one.name, found, options_of(found, display), seed_of(found) if seed is None else seed + number)
                for number, (one, found) in enumerate(zip(several, loaded, strict=True))
            ]
            total = budget or DEFAULT_CANDIDATES * len(entries)
            asyncio.run(start_suite(entries, total, share, display.say, display.observe))
        _finish_suite(place, stop_when, as_json)
        return
    one = problems.load(problem, **names)
    place = folder or new_folder(one)
    with Display(err, place / "run.log") as display:
        number = seed_of(one) if seed is None else seed
        if replay is not None and seed is None:
            number = run_seed(replay)
        options = options_of(one, display)
        display.say(f"run {place}, seed {number}")
        result = asyncio.run(start(place, one, options, number, display.say, display.observe))
    _finish(place, result, stop_when, as_json)


def _mutator_options(problem: Problem, given: MutatorOptions, display: Display) -> MutatorOptions:
    """Return how completions are had: what the user gave over what an OpenEvolve config says."""
    if not isinstance(problem, EvaluatedProblem):
        return given
    config = problem.config
    if config.ignored:
        display.say(f"{config.path}: without effect here: {', '.join(config.ignored)}")
    values: dict[str, Any] = {"sampling": {**config_sampling(config), **given.sampling}, **service(config)}
    if config.models and given.model is None and given.base_url is None and given.replay is None:
        values["models"] = [(name, weight, base) for name, weight, base in config.models if base is not None]
        names = ", ".join(f"{name} at {base}" for name, _, base in config.models)
        display.say(f"using the config's {names}; --model takes a local model instead")
    return replace(given, **values)


def resume_run(
    run: Annotated[Path, typer.Argument(help="Folder of the run.")],
    budget: Candidates = None,
    tokens: Tokens = None,
    minutes: Minutes = None,
    base_url: BaseUrl = None,
    accept_change: Annotated[
        bool,
        typer.Option("--accept-change", help="Go on where the problem has changed: the best programs are scored anew."),
    ] = False,
    as_json: Json = False,
) -> None:
    """Go on with a run after any kind of stop; a new budget replaces the old one of its kind."""
    several = run_folders(run)
    if several:
        if budget is not None or tokens is not None or minutes is not None or base_url is not None:
            raise BadInput(f"{run} is a suite, whose runs have their own budgets; resume one of its runs to change one.")
        with Display(err, run / "suite.log") as display:
            asyncio.run(resume_suite(several, display.say, display.observe, accept_change))
        _finish_suite(run, None, as_json)
        return
    budgets = {"candidates": budget, "tokens": tokens, "minutes": minutes}
    given = {name: value for name, value in budgets.items() if value is not None}
    report = Report(run)
    stop_when = report.stop_when()
    report.close()
    with Display(err, run / "run.log") as display:
        result = asyncio.run(resume(run, given, base_url, display.say, display.observe, accept_change))
    _finish(run, result, stop_when, as_json)


def _finish_suite(folder: Path, stop_when: str | None, as_json: bool) -> None:
    """Print how the runs of a suite ended and leave with the exit code."""
    rows = suite_summary(run_folders(folder))
    render.show(rows, as_json, lambda: render.show_rows(f"Problems of {folder}", rows))
    if any(row["status"] == "stopped" for row in rows):
        raise typer.Exit(130)
    if stop_when == "solved" and not all(row["solved"] for row in rows):
        raise typer.Exit(1)


def _finish(folder: Path, result: Result, stop_when: str | None, as_json: bool) -> None:
    """Print how a search ended and leave with its exit code."""
    report = Report(folder)
    try:
        found: dict[str, Any] = {
            "folder": str(folder), "run": report.summary(), "program": report.program(result.best), "cost": report.cost()
        }  # fmt: skip
    finally:
        report.close()
    if (folder / BASELINE / FILE).is_file():
        found["baseline"] = baseline_summary(folder / BASELINE)

    def text() -> None:
        render.show_program(found)
        render.show_pairs("Where the time went", found["cost"])
        render.say(f"Everything is in {folder}: `evolve show {folder}`")

    render.show(found, as_json, text)
    if result.reason is Reason.INTERRUPTED:
        raise typer.Exit(130)
    if stop_when == "solved" and not result.solved:
        raise typer.Exit(1)
