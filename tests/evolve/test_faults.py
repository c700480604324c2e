"""What an evaluator swallows is found again, with the line that mends it."""

import pytest

from evolve import problem as problems
from evolve.errors import ProblemError
from evolve.faults import faults
from evolve.machine_cli import NOTHING
from tests.evolve.test_cli import evolve
from tests.evolve.test_hostile_folders import evaluated


@pytest.mark.parametrize(
    ("text", "line"),
    [
        ("No module named 'torch'", "add `torch` to requirements.txt"),
        ("ModuleNotFoundError: No module named 'sklearn.cluster'", "add `scikit-learn` to requirements.txt"),
        ("Error: No module named cv2", "add `opencv-python-headless`"),
        ("[Errno 2] No such file or directory: 'cargo'", "packages: [cargo]"),
        ("the command 'Rscript x.R' could not be started: No such file or directory", "packages: [r-base-core]"),
        ("/bin/sh: 1: nasm: not found", "packages: [nasm]"),
        ("bash: frobnicate: command not found", "the Debian package that has frobnicate"),
        ("numpy.core._exceptions._ArrayMemoryError: Unable to allocate", "limits: {memory_mb: 4096}"),
        ("OSError: [Errno 12] Cannot allocate memory", "limits: {memory_mb: 4096}"),
        ("the command 'python x.py' was ended by signal 9", "limits: {memory_mb: 4096}"),
        ("the candidate's process ended: memory: used more than 1024 MB", "limits: {memory_mb: 4096}"),
        ("urlopen error [Errno -3] Temporary failure in name resolution", "--allow-network"),
        ("OSError: [Errno 30] Read-only file system: 'out.json'", "/tmp can be written to"),
        ("FileNotFoundError: [Errno 2] No such file or directory: '/data/big.csv'", "no file /data/big.csv"),
        ("KeyError: 'DATA_DIR'", "env: {DATA_DIR: ...}"),
        ("the command 'python3 x.py' ended with exit code 1", "exit code 1"),
        ("a jax.Thing can't cross to or from a separated candidate", "trust: shared_process"),
        ("the candidate raised ValueError: bad", "raised ValueError"),
        ("the candidate's process ended: timeout: not done after 3 s", "timeout"),
    ],
)
def test_signs_and_what_to_do(text, line):
    (found,) = faults(["before\n", text, "\nafter"], 1024)[:1]
    assert line in found


@pytest.mark.parametrize("text", ["", "score 0.5", "KeyError: 'x'", "memory 12 MB used", "no module", "exit code 0"])
def test_no_signs(text):
    assert faults([text], 1024) == ()


def test_faults_are_few_and_each_once():
    assert len(faults([f"No module named 'a{number}'\n" * 3 for number in range(50)], 1)) == 8


def test_env_must_be_names_and_texts(tmp_path):
    good = problems.load(evaluated(tmp_path / "good", problem__yaml='env: {MODE: "fast"}\n'))
    assert good.spec.env == {"MODE": "fast"}
    assert "problem.yaml: env" in good.parts
    for number, text in enumerate(('env: {"A=B": "x"}', "env: {A: 1}", 'env: {"": x}', "env: [A]")):
        with pytest.raises(ProblemError, match="env"):
            problems.load(evaluated(tmp_path / str(number), problem__yaml=text + "\n"))


class FakeCheck:
    """What `evolve check` finds, without a sandbox."""

    def __init__(self, fitness, told):
        self.found = {"fitness": fitness, "faults": told, "runs": True}

    async def __call__(self, *_):
        return self.found


@pytest.mark.parametrize(
    ("fitness", "told", "options", "code"),
    [
        (0.0, ["no module x"], [], 2),
        (0.0, ["no module x"], ["--accept"], 0),
        (0.0, [], [], 0),
        (-1.0, ["no module x"], [], 2),
        (0.5, ["no module x"], [], 0),
    ],
)
def test_check_refuses_nothing_beside_a_fault(monkeypatch, capsys, tmp_path, fitness, told, options, code):
    monkeypatch.setattr("evolve.machine_cli._check", FakeCheck(fitness, told))
    assert evolve(monkeypatch, "check", evaluated(tmp_path / "p"), *options, "--json") == code
    err = " ".join(capsys.readouterr().err.split())
    assert ("no module x" in err) is (code == 2)
    assert (NOTHING[-40:] in err) is (fitness <= 0 and not told)
