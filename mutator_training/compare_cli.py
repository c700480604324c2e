"""`evolve compare`: arms of training against each other, at equal numbers of scored answers, with several seeds."""

from __future__ import annotations

import time
from dataclasses import replace
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console

from evolve import render
from evolve.arguments import Json, pairs
from evolve.errors import BadInput, nearest
from evolve.progress import Display

MOST_ROWS = 20
"""Of the table on the terminal; the page has all."""


def compare(
    problems: Annotated[
        list[Path] | None, typer.Argument(help="Held-out problem folders, or folders of them; none for the toy.")
    ] = None,
    train: Annotated[
        list[Path] | None, typer.Option("--train", help="Problem folders to train on, or folders of them (repeatable).")
    ] = None,
    preset: Annotated[
        str | None, typer.Option(help="Sizes: toy, cpu, gpu or paper; default toy without PROBLEMS, else cpu.")
    ] = None,
    arms: Annotated[
        str | None,
        typer.Option(help="Comma-separated: base or estimators, each with settings such as vpo:m=8:beta=0.01."),
    ] = None,
    seeds: Annotated[int | None, typer.Option(min=1, help="Trainings of each arm.")] = None,
    train_steps: Annotated[int | None, typer.Option(min=1, help="Optimizer steps of a training.")] = None,
    prompts: Annotated[int | None, typer.Option(min=1, help="Prompts of a step.")] = None,
    group: Annotated[
        int | None, typer.Option(min=2, help="Scored answers per prompt and step, the same for all arms.")
    ] = None,
    answers: Annotated[
        int | None, typer.Option("--answers", "-m", min=1, help="Answers of a completion, where an arm has several.")
    ] = None,
    samples: Annotated[int | None, typer.Option(min=1, help="Answers sampled per held-out problem.")] = None,
    search_budget: Annotated[
        int | None, typer.Option(min=0, help="Candidates of the frozen search on each of the hardest problems; 0 for none.")
    ] = None,
    hardest: Annotated[
        int | None, typer.Option(min=0, help="How many problems are searched; the toy's default is 12.")
    ] = None,
    setting: Annotated[
        list[str] | None,
        typer.Option("--set", help="KEY=VALUE of the plan, such as learning_rate=1e-5 or model=... (repeatable)."),
    ] = None,
    jobs: Annotated[int | None, typer.Option(min=1, help="Arms and seeds under way at a time.")] = None,
    out: Annotated[
        Path | None, typer.Option(help="Folder of the comparison; an existing one goes on where it stopped.")
    ] = None,
    runs: Annotated[
        list[str] | None, typer.Option("--from", help="LABEL=RUN: compare runs that exist instead (repeatable).")
    ] = None,
    as_json: Json = False,
) -> None:
    """Train arms from one base on the same problems, sample and search on held-out ones, and report what differs."""
    from mutator_training.evidence import gather, gather_runs
    from mutator_training.page import PAGE, write_report
    from mutator_training.plan import PLAN, Plan, load, store

    folder = out or Path("runs") / f"compare-{time.strftime('%Y%m%d-%H%M%S')}"
    sizes = {
        "seeds": seeds,
        "train_steps": train_steps,
        "prompts": prompts,
        "group": group,
        "answers": answers,
        "samples": samples,
        "search_budget": search_budget,
        "hardest": hardest,
        "jobs": jobs,
        "arms": None if arms is None else [arm.strip() for arm in arms.split(",") if arm.strip()],
    }
    given: dict[str, Any] = {name: value for name, value in sizes.items() if value is not None}
    if runs:
        if problems or train or preset or given or setting:
            raise BadInput("--from compares runs that exist; only --out and --json go with it.")
        _report(write_report(gather_runs(runs), folder), folder / PAGE, as_json)
        return
    if (folder / PLAN).exists() and not (problems or train or preset or setting or set(given) - {"jobs", "seeds"}):
        plan = replace(load(folder), **given)
    else:
        plan = replace(_preset(preset, bool(problems)), **given)
        plan = _with(plan, pairs("--set", setting))
        plan = replace(plan, problems=_folders(problems or []), train=_folders(train or []))
    if plan.kind == "toy" and (plan.problems or plan.train):
        raise BadInput("The toy has problems of its own; give --preset cpu, gpu or paper for problem folders.")
    if plan.kind == "programs" and not (plan.problems and plan.train):
        raise BadInput("Expected held-out PROBLEMS and --train PROBLEMS, disjoint from them; only --preset toy has its own.")
    assert isinstance(plan, Plan) and plan.parsed
    if plan.kind == "programs":
        from mutator_training.folders import check_folders

        check_folders(plan)
    store(folder, plan)
    from mutator_training.comparison import run as work

    with Display(Console(stderr=True), folder / "compare.log") as display:
        display.say(f"comparison {folder}: {', '.join(plan.arms)}; {plan.seeds} seeds")
        work(folder, plan.jobs, display.say)
    _report(write_report(gather(folder), folder), folder / PAGE, as_json)


def _preset(name: str | None, has_problems: bool) -> Any:
    from mutator_training.presets import PRESETS

    chosen = name or ("cpu" if has_problems else "toy")
    if chosen not in PRESETS:
        raise BadInput(f"--preset: no preset {chosen!r}{nearest(chosen, PRESETS)} Known: {', '.join(PRESETS)}.")
    return PRESETS[chosen]


def _with(plan: Any, settings: dict[str, Any]) -> Any:
    """Return a plan with settings: its own fields, or options of its kind."""
    own = ("learning_rate", "beta", "temperature", "curve_every", "curve_samples")
    options = dict(plan.options)
    for name, value in settings.items():
        if name in own:
            plan = replace(plan, **{name: value})
        else:
            options[name] = value
    return replace(plan, options=options)


def _folders(given: list[Path]) -> list[str]:
    """Return problem folders, those in a folder of folders one by one.

    Raises:
        BadInput: one is no folder.
    """
    from evolve.suite import problem_folders

    found: list[str] = []
    for path in given:
        if not path.is_dir():
            raise BadInput(f"{path} is not a folder. Expected a problem folder or a folder of problem folders.")
        found += [str(one.resolve()) for one in problem_folders(path) or [path]]
    return found


def _report(found: dict[str, Any], page: Path, as_json: bool) -> None:
    def text() -> None:
        from mutator_training.page import HEAD, note, row

        shown = [one for one in found["differences"] if one["primary"] or one["claimed"]]
        rows = [dict(zip(HEAD, row(one), strict=True)) for one in shown[:MOST_ROWS]]
        render.show_rows("What the figures carry", rows)
        if len(shown) > MOST_ROWS:
            render.say(f"{len(shown) - MOST_ROWS} more are in the report.")
        for one in found["crossings"]:
            render.say(f"Crossing: {one}")
        render.say(f"{note(found)} The report: {page}")

    render.show(found, as_json, text)
