"""`evolve show` and `evolve export`: what a run recorded."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any, Literal

import typer
from rich.console import Console

from evolve import render
from evolve.arguments import (
    Json,
)
from evolve.compose import BASELINE
from evolve.connection import FILE
from evolve.errors import BadInput
from evolve.files import make_folder, writing
from evolve.report import Report, baseline_summary, program_suffix
from evolve.suite import run_folders
from evolve.suite import summary as suite_summary
from evolve.traces import programs, write_traces

err = Console(stderr=True)

VERSIONS = ("name", "state", "completions", "trained_on", "gate_before", "gate_after", "p_fall", "refresh_seconds")
"""What `evolve show RUN mutators` shows; --json gives all."""

TOP = ("id", "generation", "parent", "fitness", "passed", "visible_tests", "hidden_passed", "hidden_tests", "characters")
"""What `evolve show RUN top` shows; --json gives all."""


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
            found: Any = {
                "run": report.summary(),
                "program": report.program(identity),
                "suffix": program_suffix(run),
            }
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
        with writing(target) as file:
            file.write(best["source"])
        found = {"file": str(target), "program": best["id"], "fitness": best["fitness"]}
    else:
        make_folder(target)
        suffix = program_suffix(run)
        count = 0
        for identity, source in programs(run):
            with writing(target / f"{identity}{suffix}") as file:
                file.write(source)
            count += 1
        found = {"folder": str(target), "programs": count}
    render.show(found, as_json, lambda: render.say(", ".join(f"{name} {value}" for name, value in found.items())))
