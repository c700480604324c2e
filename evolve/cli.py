"""The command `evolve`: reads options, calls the parts, prints what they give.

Exit codes: 0 done; 1 the search ended without its stated goal (`--stop-when`); 2 bad input; 3 infrastructure;
130 interrupted.
"""

from __future__ import annotations

import asyncio
import json
import sys
import time
from dataclasses import asdict, replace
from pathlib import Path
from typing import Annotated, Any, Literal, NoReturn

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
)
from evolve.compose import BASELINE, RunOptions, new_folder, only_process, resume, start, use
from evolve.connection import FILE
from evolve.doctor import examine, examine_run
from evolve.errors import BadInput, EvolveError, nearest
from evolve.evaluated import EvaluatedProblem
from evolve.import_cli import import_app
from evolve.loop import Reason, Result
from evolve.models import DEFAULT_MODEL, resolve
from evolve.problem import Problem, TestedProblem
from evolve.progress import Display
from evolve.report import Report, baseline_summary, program_suffix
from evolve.sandboxes import SandboxKind, Say, engine, grader, set_up
from evolve.selection import POLICIES
from evolve.serving import MutatorOptions
from evolve.settings import DEFAULT_CANDIDATES, replayed, run_seed, search_options, seed_of, service, workers_of
from evolve.settings import sampling as config_sampling
from evolve.suite import Entry, Share, problem_folders, resume_suite, run_folders, start_suite
from evolve.suite import summary as suite_summary
from evolve.traces import programs, write_traces
from sandbox.base import SandboxError

app = typer.Typer(
    help="Search for programs with a language model, scored per test in sandboxes.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    add_completion=False,
)
mutator_app = typer.Typer(help="The model server.", no_args_is_help=True)
app.add_typer(mutator_app, name="mutator")
app.add_typer(import_app, name="import")

err = Console(stderr=True)


VERSIONS = ("name", "state", "completions", "trained_on", "gate_before", "gate_after", "p_fall", "refresh_seconds")
"""What `evolve show RUN mutators` shows; --json gives all."""

LORA_RANK = 16
"""Of the adapters that a run may train, unless --server max-lora-rank says otherwise."""

TOP = ("id", "generation", "parent", "fitness", "passed", "visible_tests", "hidden_passed", "hidden_tests", "characters")
"""What `evolve show RUN top` shows; --json gives all."""


def main() -> NoReturn:
    """Run the command; turn what went wrong into a message and an exit code."""
    try:
        code = app(standalone_mode=False)
    except (EvolveError, SandboxError) as error:
        err.print(f"error: {error}", style="bold red", highlight=False, markup=False, soft_wrap=True)
        sys.exit(error.exit_code if isinstance(error, EvolveError) else 3)
    except (KeyboardInterrupt, asyncio.CancelledError):
        err.print("interrupted; what was recorded is kept", highlight=False)
        sys.exit(130)
    except typer.Abort:
        sys.exit(130)
    except typer.TyperException as error:  # a wrong option or argument, with its own message
        show = getattr(error, "show", None)
        if show is None:
            err.print(str(error), highlight=False, markup=False)
        else:
            show()
        sys.exit(2)
    sys.exit(code if isinstance(code, int) else 0)


@app.command()
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


def _finish_suite(folder: Path, stop_when: str | None, as_json: bool) -> None:
    """Print how the runs of a suite ended and leave with the exit code."""
    rows = suite_summary(run_folders(folder))
    render.show(rows, as_json, lambda: render.show_rows(f"Problems of {folder}", rows))
    if any(row["status"] == "stopped" for row in rows):
        raise typer.Exit(130)
    if stop_when == "solved" and not all(row["solved"] for row in rows):
        raise typer.Exit(1)


@app.command("resume")
def resume_run(
    run: Annotated[Path, typer.Argument(help="Folder of the run.")],
    budget: Candidates = None,
    tokens: Tokens = None,
    minutes: Minutes = None,
    base_url: BaseUrl = None,
    as_json: Json = False,
) -> None:
    """Go on with a run after any kind of stop; a new budget replaces the old one of its kind."""
    several = run_folders(run)
    if several:
        if budget is not None or tokens is not None or minutes is not None or base_url is not None:
            raise BadInput(f"{run} is a suite, whose runs have their own budgets; resume one of its runs to change one.")
        with Display(err, run / "suite.log") as display:
            asyncio.run(resume_suite(several, display.say, display.observe))
        _finish_suite(run, None, as_json)
        return
    budgets = {"candidates": budget, "tokens": tokens, "minutes": minutes}
    given = {name: value for name, value in budgets.items() if value is not None}
    report = Report(run)
    stop_when = report.stop_when()
    report.close()
    with Display(err, run / "run.log") as display:
        result = asyncio.run(resume(run, given, base_url, display.say, display.observe))
    _finish(run, result, stop_when, as_json)


@app.command()
def show(
    run: Annotated[Path, typer.Argument(help="Folder of the run.")],
    what: Annotated[
        Literal["best", "top", "program", "tests", "mutators", "cost"], typer.Argument(help="What to show.")
    ] = "best",
    identity: Annotated[int | None, typer.Argument(metavar="ID", help="Which program, for `program`.")] = None,
    as_json: Json = False,
) -> None:
    """Show what a run found, by what, and at which cost; also while it runs."""
    if (what == "program") != (identity is not None):
        raise BadInput("`evolve show RUN program ID` takes the id of a program, the other views take none.")
    several = run_folders(run)
    if several:
        rows = suite_summary(several)
        render.show(rows, as_json, lambda: render.show_rows(f"Problems of {run}", rows))
        return
    report = Report(run)
    try:
        if what in ("best", "program"):
            found: Any = {"run": report.summary(), "program": report.program(identity)}
            if (run / BASELINE / FILE).is_file():
                found["baseline"] = baseline_summary(run / BASELINE)
            render.show(found, as_json, lambda: render.show_program(found))
        elif what == "top":
            rows = report.top()
            render.show(rows, as_json, lambda: render.show_rows(f"Best programs of {run}", rows, TOP))
        elif what == "tests":
            rows = report.tests()
            title = "Distinct programs that ran, per test or objective"
            render.show(rows, as_json, lambda: render.show_rows(title, rows))
        elif what == "mutators":
            rows = report.mutators()
            render.show(rows, as_json, lambda: render.show_rows(f"Versions of the mutator of {run}", rows, VERSIONS))
        else:
            costs = report.cost()
            render.show(costs, as_json, lambda: render.show_pairs(f"Cost of {run}", costs))
    finally:
        report.close()


@app.command()
def check(
    problem: Annotated[Path, typer.Argument(help="Problem folder.")],
    initial: Initial = None,
    evaluator: EvaluatorName = None,
    config: ConfigName = None,
    network: Network = False,
    sandbox: SandboxOption = "docker",
    as_json: Json = False,
) -> None:
    """Load a problem folder and score its initial program; say what of an OpenEvolve config is honoured and ignored."""
    loaded = problems.load(problem, initial, evaluator, config)
    with Display(err, None) as display:
        found = asyncio.run(_check(loaded, sandbox, network, display.say))
    render.show(found, as_json, lambda: render.show_check(found))
    if not found["runs"]:
        raise BadInput(f"The initial program of {loaded.name} doesn't run, so a search can't start from it.")


@app.command()
def export(
    run: Annotated[Path, typer.Argument(help="Folder of the run.")],
    target: Annotated[Path, typer.Option("--out", help="File, or folder for --all.")],
    what: Annotated[
        Literal["best", "all", "traces"],
        typer.Option("--what", help="The best program, all distinct programs, or a JSON line per completion for training."),
    ] = "best",
    as_json: Json = False,
) -> None:
    """Write what a run recorded to files."""
    if what == "traces":
        found: dict[str, Any] = {"file": str(target), "completions": write_traces(run, target)}
    elif what == "best":
        report = Report(run)
        best = report.program()
        report.close()
        target.write_text(best["source"])
        found = {"file": str(target), "program": best["id"], "fitness": best["fitness"]}
    else:
        target.mkdir(parents=True, exist_ok=True)
        suffix = program_suffix(run)
        count = 0
        for identity, source in programs(run):
            (target / f"{identity}{suffix}").write_text(source)
            count += 1
        found = {"folder": str(target), "programs": count}
    render.show(found, as_json, lambda: render.say(", ".join(f"{name} {value}" for name, value in found.items())))


@app.command()
def doctor(
    run: Annotated[Path | None, typer.Argument(help="A run whose database is looked at, instead of the machine.")] = None,
    as_json: Json = False,
) -> None:
    """Say what works on this machine, or whether a run's database is whole, and what to do about the rest."""
    checks = asyncio.run(examine(engine())) if run is None else examine_run(run)
    render.show([asdict(one) for one in checks], as_json, lambda: render.show_checks(checks))
    if not all(one.works for one in checks):
        raise typer.Exit(3)


@app.command()
def setup(model: Model = DEFAULT_MODEL, sandbox: SandboxOption = "docker") -> None:
    """Install and start what is missing: sandbox (with Docker: engine and image) and model. What is there is left alone."""

    def fetch() -> None:
        display.say(f"the model is ready ({resolve(model or DEFAULT_MODEL, display.say)})")

    async def both() -> None:
        await asyncio.gather(asyncio.to_thread(set_up, sandbox, display.say), asyncio.to_thread(fetch))

    with Display(err, None) as display:
        asyncio.run(both())


@mutator_app.command("use")
def use_version(
    run: Annotated[Path, typer.Argument(help="Folder of the run.")],
    version: Annotated[str, typer.Argument(help="Name of a version, as `evolve show RUN mutators` has it, or its vN.")],
) -> None:
    """Let a run go on with an earlier version of its mutator."""
    with only_process(run):
        chosen = use(run, version)
    render.say(f"{run} goes on with {chosen}: `evolve resume {run}`")


@app.command("stop-engine")
def stop_engine() -> None:
    """Stop the Docker engine that `evolve setup` started; others are left alone."""
    render.say("stopped" if engine().stop() else "no engine of ours is running")


@mutator_app.command("serve")
def serve(
    model: Model = DEFAULT_MODEL,
    port: Annotated[int, typer.Option(min=1, max=65535)] = 8011,
    server: Annotated[list[str] | None, typer.Option("--server", help="KEY=VALUE for vLLM's command line.")] = None,
) -> None:
    """Keep a model server warm between runs, until Ctrl-C."""
    from evolve.cache import cache_folder
    from evolve.server import VllmServer

    async def keep() -> None:
        name = model or DEFAULT_MODEL
        path = resolve(name, display.say)
        log = cache_folder() / "server.log"
        async with VllmServer(path, Path(name).name, log, port, pairs("--server", server), display.say) as running:
            display.say(f"use it with --base-url {running.base_url}; end it with Ctrl-C")
            while True:
                await asyncio.sleep(5)
                await running.recover()

    with Display(err, None) as display:
        asyncio.run(keep())


async def _check(problem: Problem, kind: SandboxKind, network: bool, say: Say) -> dict[str, Any]:
    async with grader(problem, kind, 1, "check", say, network) as (opened, isolation):
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
        "objectives": sorted(score.values or ()),
        "metrics": dict(score.metrics),
        "artifacts": dict(score.artifacts),
        "honoured": {key: value for key, value in problem.config.given.items() if "key" not in key},
        "ignored": list(problem.config.ignored),
    }


def pairs(option: str, given: list[str] | None) -> dict[str, Any]:
    """Return KEY=VALUE pairs as a mapping; values are JSON where they can be, else text."""
    found: dict[str, Any] = {}
    for pair in given or []:
        key, separator, value = pair.partition("=")
        if not separator or not key:
            raise BadInput(f"{option} takes KEY=VALUE, not {pair!r}.")
        try:
            found[key] = json.loads(value)
        except ValueError:
            found[key] = value
    return found


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


if __name__ == "__main__":
    main()
