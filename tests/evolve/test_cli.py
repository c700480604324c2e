"""The command: messages and exit codes."""

import json
import subprocess
import sys

import pytest

from evolve import cli
from tests.conftest import write_problem


def evolve(monkeypatch, *arguments):
    monkeypatch.setattr(sys, "argv", ["evolve", *map(str, arguments)])
    with pytest.raises(SystemExit) as done:
        cli.main()
    return done.value.code


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["run", "nowhere"], "not a folder"),
        (["run", "PROBLEM", "--selection", "lexicas"], "did you mean 'lexicase'?"),
        (["run", "PROBLEM", "--sampling", "hot"], "KEY=VALUE"),
        (["run", "PROBLEM", "--budget", "0"], "--budget"),
        (["run", "PROBLEM", "--wrong"], "--wrong"),
        (["resume", "nowhere"], "not a run"),
        (["show", "nowhere"], "not a run"),
        (["show", "nowhere", "program"], "takes the id"),
        (["check", "nowhere"], "not a folder"),
        (["import", "humaneval", "--only", "999"], "no task HumanEval/999"),
    ],
)
def test_bad_input_is_exit_code_2(monkeypatch, capsys, problem_folder, arguments, message):
    arguments = [problem_folder if argument == "PROBLEM" else argument for argument in arguments]
    assert evolve(monkeypatch, *arguments) == 2
    assert message in " ".join(capsys.readouterr().err.split())


def test_no_docker_is_exit_code_3(monkeypatch, capsys, tmp_path, problem_folder):
    monkeypatch.delenv("DOCKER_HOST", raising=False)
    monkeypatch.setattr("sandbox.engine.fault", lambda _: "none")
    assert evolve(monkeypatch, "run", problem_folder, "--out", tmp_path / "run") == 3
    assert "evolve setup" in " ".join(capsys.readouterr().err.split())
    assert evolve(monkeypatch, "check", problem_folder) == 3
    assert evolve(monkeypatch, "doctor", "--json") == 3
    checks = {one["name"]: one for one in json.loads(capsys.readouterr().out)}
    assert not checks["docker"]["works"]
    assert "evolve setup" in checks["docker"]["advice"]


def test_help(monkeypatch, capsys):
    assert evolve(monkeypatch, "--help") == 0
    assert "resume" in capsys.readouterr().out


def test_the_problem_is_checked_before_anything_starts(monkeypatch, capsys, tmp_path):
    folder = write_problem(tmp_path / "p", files={"tests.jsonl": "{"})
    assert evolve(monkeypatch, "run", folder, "--out", tmp_path / "run") == 2
    assert not (tmp_path / "run" / "run.sqlite").exists()
    assert "line 1" in " ".join(capsys.readouterr().err.split())


def test_the_command_with_its_training_half_imports_no_training_package():
    code = (
        "import sys, mutator_training.cli; print([n for n in ('torch', 'trl', 'scipy', 'openevolve') if n in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


@pytest.mark.parametrize("given", [["--sampling", "top_p=0.8"], ["--server", "generation-config=auto"]])
def test_a_run_that_would_train_on_another_distribution_is_refused_before_it_exists(
    monkeypatch, capsys, tmp_path, problem_folder, given
):
    assert evolve(monkeypatch, "run", problem_folder, "--out", tmp_path / "run", "--train", "vpo", *given) == 2
    assert "can't be trained on that" in " ".join(capsys.readouterr().err.split())
    assert not (tmp_path / "run" / "run.sqlite").exists()
