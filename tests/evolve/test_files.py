"""Places that users name: odd names, files where folders are wanted, users without a home, locales without UTF-8."""

import ast
import os
import sqlite3
import subprocess
import sys
from pathlib import Path

import pytest

import evolve
from evolve.cache import cache_folder
from evolve.connection import FILE, connect
from evolve.database import Database
from evolve.errors import BadInput
from evolve.files import make_folder, writing
from tests.evolve.test_directions import ERRORS, folder, returns
from tests.evolve.test_folders import Run

PACKAGES = [Path(evolve.__file__).parent, Path(evolve.__file__).parents[1] / "mutator_training"]


@pytest.mark.parametrize("name", ["a?b", "per%41cent", "a#b", "a b", "ünï", "x?mode=memory", "file:x", "'q'", "a;b"])
def test_a_run_is_where_its_folder_is_named(tmp_path, problem_folder, name):
    from evolve import problem as problems

    loaded = problems.load(problem_folder)
    Database.create(tmp_path / name, loaded, {"search": {}}, 0, {}).close()
    assert {path.name for path in tmp_path.iterdir() if path.name != problem_folder.name} == {name}
    assert sqlite3.connect(tmp_path / name / FILE).execute("select count(*) from run").fetchone() == (1,)
    connect(tmp_path / name / FILE).close()


def test_a_file_in_place_of_a_folder_is_the_users_mistake(tmp_path):
    (tmp_path / "taken").write_text("x")
    for place in (tmp_path / "taken", tmp_path / "taken" / "run"):
        with pytest.raises(BadInput, match=r"taken is a file"):
            make_folder(place)
    with pytest.raises(BadInput, match="can't be written"), writing(tmp_path):
        pass


def test_out_that_is_a_file_ends_the_command_with_2(tmp_path, problem_folder):
    (tmp_path / "taken").write_text("x")
    result = command("run", str(problem_folder), "--out", str(tmp_path / "taken"), "--sandbox", "docker")
    assert result.returncode == 2, result.stderr
    assert "is a file" in result.stderr and "Traceback" not in result.stderr


def test_a_user_without_a_home_is_told_what_to_set(monkeypatch):
    for name in ("VECTOR_EVOLVE_CACHE", "XDG_CACHE_HOME", "HOME"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr(Path, "home", lambda: (_ for _ in ()).throw(RuntimeError("Could not determine home directory.")))
    with pytest.raises(BadInput, match="VECTOR_EVOLVE_CACHE"):
        cache_folder()


def command(*arguments, **environment):
    run = [sys.executable, "-m", "evolve.cli", *arguments]
    return subprocess.run(run, capture_output=True, timeout=60, env={**os.environ, **environment}, check=False, text=True)


async def test_everything_is_written_as_utf_8_under_an_ascii_locale(tmp_path):
    at = folder(tmp_path / "p", ERRORS, "def run():\n    return 0.5  # é → 漢\n")
    run = Run(tmp_path, "errors", [returns("0.25  # ünï 漢")], at, candidates=2)
    await run.go()
    ascii_only = {"LC_ALL": "C", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0", "PYTHONIOENCODING": ""}
    for what, out in (("best", "best.py"), ("traces", "traces.jsonl"), ("all", "all")):
        result = command("export", str(run.folder), "--out", str(tmp_path / "deep" / out), "--what", what, **ascii_only)
        assert result.returncode == 0, result.stderr
    assert "ünï 漢" in (tmp_path / "deep" / "best.py").read_text(encoding="utf-8")
    shown = command("show", str(run.folder), "best", **ascii_only)
    assert shown.returncode == 0, shown.stderr


def test_no_text_is_read_or_written_in_an_encoding_of_the_locale():
    found = []
    for path in (path for package in PACKAGES for path in package.rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if not isinstance(node, ast.Call) or any(one.arg == "encoding" for one in node.keywords):
                continue
            name = getattr(node.func, "attr", getattr(node.func, "id", ""))
            modes = [one.value for one in node.args if isinstance(one, ast.Constant)]
            if (name in ("read_text", "write_text") and not _is_ours(node)) or (
                name == "open" and {"r", "w", "a"} & set(modes)
            ):
                found.append(f"{path.name}:{node.lineno}")
    assert not found


def _is_ours(node):
    return isinstance(node.func, ast.Name)  # `folder.read_text`, which is a function of this project


def test_the_patience_of_minus_one_ends_at_the_threshold(tmp_path):
    import asyncio

    text = "early_stopping_patience: -1\nconvergence_threshold: 0.8\n"
    replies = [returns(value) for value in ("0.9", "0.4", "0.15", "0.1")]
    at = folder(tmp_path / "p", ERRORS, config=text)
    run = Run(tmp_path, "errors", replies, at, candidates=40, completions=1, prompts=1)
    result = asyncio.run(run.go())
    assert result.reason == "the value that was asked for is reached"
    assert result.candidates == 3
