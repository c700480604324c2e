"""Print results on stdout: tables and programs for people, JSON for scripts."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import typer
from rich.console import Console
from rich.markup import escape
from rich.syntax import Syntax
from rich.table import Table

from evolve.doctor import Check
from evolve.visible import visible

out = Console()
MAX_CELL = 100


def show(value: Any, as_json: bool, text: Callable[[], None]) -> None:
    """Print `value` as JSON, or call `text` to print it for people."""
    if as_json:
        typer.echo(json.dumps(value, indent=1, default=str))
    else:
        text()


def say(text: str, console: Console = out) -> None:
    """Print a sentence."""
    console.print(visible(text), highlight=False, markup=False, soft_wrap=True)


def show_program(found: Mapping[str, Any]) -> None:
    """Print a run's summary and one of its programs, as `Report` gives them under `run` and `program`.

    Where stdout is no terminal, it gets the program's source alone and exactly, and stderr the rest.
    """
    source = found["program"]["source"]
    if sys.stdout.isatty() or source is None:
        _show_program(found, out)
        return
    _show_program({**found, "program": {**found["program"], "source": ""}}, Console(stderr=True))
    sys.stdout.flush()
    sys.stdout.buffer.write(source.encode("utf-8", "surrogatepass"))
    sys.stdout.buffer.flush()


def _show_program(found: Mapping[str, Any], console: Console) -> None:
    run, program = found["run"], found["program"]
    reason = f", {run['reason']}" if run["reason"] else ""
    say(
        f"{run['problem']}: {run['status']}{reason}; {run['candidates']} candidates in {run['generations']} generations, "
        f"{run['completion_tokens']} tokens, {run['seconds']:.0f} s",
        console,
    )
    if "baseline" in found:
        best = found["baseline"]
        say(
            f"Best of {best['candidates']} from the initial program alone ({best['completion_tokens']} tokens): score "
            f"{_cell(best['fitness'])}, here {_cell(program['fitness'])}",
            console,
        )
    hidden = ""
    if program.get("hidden_passed") is not None:
        hidden = f", {program['hidden_passed']} of {program['hidden_tests']} hidden tests"
    state = program["status"]
    if program["solved"]:
        state = "confirmed by the hidden tests" if program["confirmed"] else "solved, not confirmed"
    if state == "outdated":
        passes = "its score is set aside, because the problem has changed since"
    elif "metrics" in program:
        passes = f"score {_cell(program['fitness'])}" if program["fitness"] is not None else program["verdict"]
    else:
        passes = f"passes {program['passed']} of {program['visible_tests']} visible tests{hidden}"
    author = f"written by {program['mutator']}" if program["mutator"] else "the initial program"
    say(f"Program {program['id']} ({author}, generation {program['generation']}): {state}; {passes}", console)
    if program["source"] is None:
        say(f"no program: {program['reason']}", console)
        return
    language = Syntax.guess_lexer(f"program{found.get('suffix', '.txt')}")
    coloured = Syntax("", language, background_color="default").highlight(visible(program["source"]))
    console.print(coloured, soft_wrap=True, end="")  # a line is as long as it is
    if "metrics" in program:
        show_pairs("Its metrics", program["metrics"], console)
        return
    show_rows(
        "Verdict per visible test",
        [{"test": row["test"], "verdict": row["verdict"], "got": _got(row)} for row in program["tests"]],
        console=console,
    )


def show_check(found: Mapping[str, Any]) -> None:
    """Print what `evolve check` found."""
    texts = {name: ", ".join(map(str, value)) if isinstance(value, list) else value for name, value in found.items()}
    show_pairs("Problem", {name: value for name, value in texts.items() if name not in ("tests", "metrics", "roles")})
    if "metrics" in found:
        roles = found["roles"]
        metrics = [{"metric": name, "value": value, "role": roles[name]} for name, value in found["metrics"].items()]
        show_rows("Metrics of the initial program", metrics)
    if "tests" not in found:
        return
    rows = [
        {
            "test": row["test"],
            "hidden": "hidden" if row["hidden"] else "",
            "verdict": row["verdict"],
            "got": _got(row),
        }
        for row in found["tests"]
    ]
    show_rows("The initial program", rows)


def show_checks(checks: Sequence[Check]) -> None:
    """Print what `evolve doctor` found."""
    for check in checks:
        out.print(
            f"{'[green]ok  [/]' if check.works else '[red]FAIL[/]'} {escape(check.name)}: {escape(visible(check.found))}"
        )
        if not check.works:
            say(f"     {check.advice}")


def show_rows(title: str, rows: Sequence[Mapping[str, Any]], names: Sequence[str] = (), console: Console = out) -> None:
    """Print mappings with the same keys as a table; with names, only those of the keys."""
    table = Table(title=title, title_justify="left")
    kept = [name for name in rows[0] if not names or name in names] if rows else []
    for name in kept:
        table.add_column(name.replace("_", " "))
    for row in rows:
        table.add_row(*(_cell(row[name]) for name in kept))
    console.print(table)


def show_pairs(title: str, pairs: Mapping[str, Any], console: Console = out) -> None:
    """Print one mapping as a table of two columns."""
    table = Table(title=title, title_justify="left", show_header=False)
    for name, value in pairs.items():
        table.add_row(name.replace("_", " "), _nested(value) if isinstance(value, dict) else _cell(value))
    console.print(table)


def _nested(value: Mapping[str, Any]) -> str:
    """Return a mapping as lines of text, a mapping in it in one line."""
    lines = []
    for name, inner in value.items():
        one = ", ".join(f"{key} {item}" for key, item in inner.items()) if isinstance(inner, dict) else inner
        lines.append(f"{name}: {one}")
    return escape(visible("\n".join(map(str, lines))) or "-")


def _got(row: Mapping[str, Any]) -> str:
    """Return what a test gave: the answer, or the last line of the reason for there being none."""
    got: str = row["got"]
    return got or (row["detail"].strip().splitlines() or [""])[-1]


def _cell(value: Any) -> str:
    if isinstance(value, float):
        return f"{value:.4g}"
    text = "-" if value is None else visible(str(value))
    return escape(text if len(text) <= MAX_CELL else text[: MAX_CELL - 3] + "...")
