"""What `evolve show` prints: programs as they are, the same figures in every view."""

import json
import os
import pty
import random
import sqlite3
import subprocess
import sys
import time

import pytest
from typer.testing import CliRunner

from evolve.cli import app
from tests.evolve.test_directions import ERRORS, folder, returns
from tests.evolve.test_folders import Run

PIECES = ["x = 1", "\tif x:", "\t\ty = 'ünï 漢 🎲'", "# " + "w" * 300, "", "   ", "z = '\x1b[31m'", "[bold]a[/bold]",
          "t = \"\"\"\n  text  \n\"\"\"", "\x0c", "a\u2028b", "v = '\u0085'", "r = '\r'"]  # fmt: skip


def programs(count):
    draw = random.Random(7)
    for number in range(count):
        lines = [f"# {number}", *(draw.choice(PIECES) for _ in range(draw.randrange(1, 12)))]
        yield "\n".join(lines) + draw.choice(["", "\n", "\n\n", "  "])


@pytest.fixture
async def run(tmp_path):
    at = folder(tmp_path / "p", ERRORS)
    made = Run(tmp_path, "errors", [returns(f"{0.4 - i / 1000}") for i in range(200)], at, candidates=200)
    await made.go()
    return made


def test_a_pipe_gets_the_programs_source_exactly(run):
    connection = sqlite3.connect(run.folder / "run.sqlite")
    rows = connection.execute("select program.id, hash from program join source on hash = source_hash").fetchall()
    wanted = {}
    for (identity, key), text in zip(rows, programs(len(rows)), strict=True):
        connection.execute("update source set text = ? where hash = ?", (text, key))
        wanted[identity] = text
    connection.commit()
    connection.close()
    assert len(wanted) >= 200
    for identity, text in wanted.items():
        shown = CliRunner().invoke(app, ["show", str(run.folder), "program", str(identity)])
        assert shown.stdout_bytes == text.encode(), identity
    best = json.loads(CliRunner().invoke(app, ["show", str(run.folder), "--json"]).stdout)["program"]
    target = run.folder / "best.py"
    with target.open("wb") as file:
        done = subprocess.run([sys.executable, "-m", "evolve.cli", "show", str(run.folder), "best"], stdout=file,
                              stderr=subprocess.PIPE, timeout=60, check=True)  # fmt: skip
    assert target.read_bytes().decode() == wanted[best["id"]]
    assert b"candidates" in done.stderr


def on_a_terminal(arguments, columns):
    """Return what a command prints on a terminal of so many columns."""
    ours, theirs = pty.openpty()
    environment = os.environ | {"COLUMNS": str(columns), "TERM": "xterm-256color"}
    with subprocess.Popen([sys.executable, "-m", "evolve.cli", *arguments], stdout=theirs, stderr=subprocess.DEVNULL,
                          stdin=subprocess.DEVNULL, env=environment) as child:  # fmt: skip
        os.close(theirs)
        shown = b""
        while True:
            try:
                piece = os.read(ours, 65536)
            except OSError:
                break
            if not piece:
                break
            shown += piece
        child.wait(60)
    os.close(ours)
    return shown.decode()


async def test_a_terminal_gets_whole_lines_and_the_colours_of_the_language(tmp_path):
    wide = "        " + " + ".join(f"value_{i}" for i in range(60))
    at = folder(tmp_path / "p", ERRORS, f"def run():\n    try:\n{wide}\n    except NameError:\n        return 0.5\n")
    made = Run(tmp_path, "errors", [returns("0.9")], at, candidates=2)
    await made.go()
    shown = on_a_terminal(["show", str(made.folder), "best"], 60)
    plain = "".join(part.partition("m")[2] if place else part for place, part in enumerate(shown.split("\x1b[")))
    assert wide.strip() in plain
    assert "\x1b[" in shown


async def test_the_seconds_of_a_run_are_the_same_in_every_view_also_after_an_interrupt(run):
    connection = sqlite3.connect(run.folder / "run.sqlite")
    (elapsed,) = connection.execute("select elapsed from run").fetchone()
    events = connection.execute("select data from event where kind = 'generation'").fetchall()
    walls = sum(json.loads(data)["wall"] for (data,) in events)
    connection.close()
    summary = json.loads(CliRunner().invoke(app, ["show", str(run.folder), "--json"]).stdout)["run"]
    cost = json.loads(CliRunner().invoke(app, ["show", str(run.folder), "cost", "--json"]).stdout)
    assert cost["seconds"] == summary["seconds"] == round(elapsed, 1)
    assert cost["search_seconds"] == pytest.approx(walls, abs=0.01)
    assert cost["search_seconds"] <= elapsed + 0.1


async def test_time_that_brought_no_completion_is_counted(tmp_path):
    made = Run(tmp_path, "errors", [returns("0.9")], folder(tmp_path / "p", ERRORS), candidates=2)

    async def late(*arguments):
        time.sleep(0.3)  # noqa: ASYNC251
        raise RuntimeError("the server is gone")

    made.mutator.sample = late
    with pytest.raises(RuntimeError):
        await made.go()
    assert made.sql("select elapsed >= 0.3 from run") == [(1,)]
