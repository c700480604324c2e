"""Problem folders from anybody: nothing of them runs on this machine, nothing outside of them is read."""

import contextlib
import json
import os
import random
import re
import socket
import subprocess
import sys
import time
from pathlib import Path

import pytest

from evolve import problem as problems
from evolve.cli import main
from evolve.errors import ProblemError
from evolve.metrics import MOST, InvalidMetrics, checked, numeric
from sandbox.base import EngineUnavailable
from sandbox.image.build import image_tag
from sandbox.image.names import BadName, debian_packages, python_requirements
from sandbox.image.requirements import ensure_layer
from tests.conftest import write_problem

SECRET = "root:x:0:0"
EVALUATOR = "def evaluate(path): return {'score': 1.0}\n"


def evaluated(folder, **files):
    folder.mkdir(parents=True, exist_ok=True)
    for name, text in ({"initial_program.py": "x = 1\n", "evaluator.py": EVALUATOR} | files).items():
        if text is not None:
            (folder / name.replace("__", ".")).write_text(text)
    return folder


REQUIREMENTS = {
    "a build backend of the folder": "evil @ file:///tmp/evil",
    "an index of its own": "--index-url https://evil.example\nnumpy",
    "no index": "--no-index\nnumpy",
    "links to a folder": "--find-links /tmp/evil\nevil",
    "source builds": "--no-binary :all:\nnumpy",
    "a short option": "-r other.txt",
    "constraints": "-c other.txt",
    "an editable path": "-e .",
    "a path": "./evil",
    "an absolute path": "/tmp/evil.whl",
    "an address": "https://evil.example/evil.whl",
    "a repository": "git+https://evil.example/evil.git",
    "a name with an address": "evil @ git+https://evil.example/evil.git",
    "an option behind a name": "numpy --config-settings=x=y",
    "an option behind a backslash": "numpy \\\n  --global-option=x",
    "a variable": "${EVIL}",
    "a command": "numpy; touch /tmp/evil",
    "a very long file": "numpy\n" * 20_000,
}


@pytest.mark.parametrize("name", REQUIREMENTS)
def test_requirements_are_packages_by_name(tmp_path, name):
    folder = evaluated(tmp_path / "p", requirements__txt=REQUIREMENTS[name])
    with pytest.raises(ProblemError, match=r"requirements\.txt, "):
        problems.load(folder)


def test_requirements_that_are_taken():
    text = (
        "# needs\nnumpy>=1.26,<3  # numbers\n\nscipy[dev]==1.11.* ; python_version < '4' \\\n"
        f"  --hash=sha256:{'0' * 64}\r\nPyYAML\n"
    )
    assert [re.split("[<>=;[]", line)[0] for line in python_requirements(text)] == ["numpy", "scipy", "PyYAML"]
    assert "--hash=sha256:" in python_requirements(text)[1]


PACKAGES = [
    "-oDPkg::Pre-Invoke::=touch /tmp/evil",
    "g++ curl",
    "../evil.deb",
    "/tmp/evil.deb",
    "G++",
    "g++=1.0",
    "a",
    "$(touch x)",
    "x\ny",
    "--allow-unauthenticated",
]


@pytest.mark.parametrize("package", PACKAGES)
def test_debian_packages_are_names(tmp_path, package):
    with pytest.raises(BadName):
        debian_packages([package])
    with pytest.raises(BadName):
        image_tag([package])
    with pytest.raises(ProblemError, match="no name of a Debian package"):
        problems.load(write_problem(tmp_path / "p", spec={"packages": [package]}))
    with pytest.raises(ProblemError, match="no name of a Debian package"):
        problems.load(evaluated(tmp_path / "q", **{"problem.yaml": json.dumps({"packages": [package]})}))


TESTED = ("problem.yaml", "initial_program.py", "tests.jsonl")
EVALUATED = ("evaluator.py", "config.yaml", "problem.yaml", "requirements.txt", "data.csv", "folder")


@pytest.mark.parametrize("name", [*TESTED, *EVALUATED])
def test_links_that_leave_the_folder_are_refused(tmp_path, name):
    folder = write_problem(tmp_path / "p") if name in TESTED else evaluated(tmp_path / "p")
    (folder / name).unlink(missing_ok=True)
    (folder / name).symlink_to("/etc" if name == "folder" else "/etc/passwd")
    with pytest.raises(ProblemError, match="outside of the problem folder") as error:
        problems.load(folder)
    assert SECRET not in str(error.value)


def test_links_inside_the_folder_are_files_like_others(tmp_path):
    folder = evaluated(tmp_path / "p", **{"data.csv": "1\n"})
    (folder / "same.csv").symlink_to("data.csv")
    assert problems.load(folder).files["same.csv"] == b"1\n"


@pytest.mark.parametrize("name", ["problem.yaml", "initial_program.py", "tests.jsonl", "checker.py"])
def test_fifos_are_no_files(tmp_path, name):
    folder = write_problem(
        tmp_path / "p", spec={"comparison": "checker"}, files={"checker.py": "def check(i, e, g): return 1\n"}
    )
    (folder / name).unlink()
    os.mkfifo(folder / name)
    started = time.monotonic()
    with pytest.raises(ProblemError):
        problems.load(folder)
    assert time.monotonic() - started < 5


def test_what_is_no_regular_file_beside_an_evaluator_is_refused(tmp_path):
    folder = evaluated(tmp_path / "p")
    os.mkfifo(folder / "pipe")
    with pytest.raises(ProblemError, match="no regular file"):
        problems.load(folder)
    (folder / "pipe").unlink()
    listener = socket.socket(socket.AF_UNIX)
    listener.bind(str(folder / "sock"))
    with pytest.raises(ProblemError):
        problems.load(folder)
    listener.close()


def test_huge_files_are_refused_by_their_size(tmp_path):
    folder = write_problem(tmp_path / "p")
    with (folder / "tests.jsonl").open("w") as file:
        file.truncate(300 << 20)
    with pytest.raises(ProblemError, match=r"300\.0 MB; at most 256 are read"):
        problems.load(folder)
    folder = evaluated(tmp_path / "q")
    with (folder / "data.bin").open("w") as file:
        file.truncate(33 << 20)
    with pytest.raises(ProblemError, match="more than 32 MB"):
        problems.load(folder)


def test_very_many_files_are_refused(tmp_path):
    folder = evaluated(tmp_path / "p")
    (folder / "many").mkdir()
    for number in range(5001):
        (folder / "many" / str(number)).touch()
    with pytest.raises(ProblemError, match="5000 files"):
        problems.load(folder)


LAUGHS = "a0: &a0 [x, x, x, x, x, x, x, x, x, x]\n" + "".join(
    f"a{number + 1}: &a{number + 1} [{', '.join([f'*a{number}'] * 10)}]\n" for number in range(9)
)
YAML = {
    "a billion laughs": LAUGHS,
    "an alias of itself": "a: &a [*a]\n",
    "a tag that runs code": "a: !!python/object/apply:os.system [touch /tmp/evil]\n",
    "very deep": "a: " + "[" * 5000 + "\n",
    "a list": "- 1\n",
    "very long": "# " + "x" * (2 << 20) + "\n",
    "no text": "\0",
}  # fmt: skip


@pytest.mark.parametrize("name", YAML)
def test_yaml_that_is_an_attack(tmp_path, name):
    started = time.monotonic()
    with pytest.raises(ProblemError):
        problems.load(write_problem(tmp_path / "p", files={"problem.yaml": YAML[name]}))
    with pytest.raises(ProblemError):
        problems.load(evaluated(tmp_path / "q", **{"config.yaml": YAML[name]}))
    assert time.monotonic() - started < 10


@pytest.mark.parametrize("name", ["a\nb", "a\x1b[2Jb", "a\u202eb"])
def test_names_that_are_no_plain_text(tmp_path, name):
    folder = evaluated(tmp_path / "p")
    (folder / name).write_text("x")
    with pytest.raises(ProblemError) as error:
        problems.load(folder)
    assert "\x1b" not in str(error.value)
    assert "\u202e" not in str(error.value)


def test_a_run_in_its_problem_folder_is_no_part_of_it(tmp_path):
    folder = evaluated(tmp_path / "p")
    before = problems.load(folder).digest
    for place in (folder, folder / "first", folder / "suite" / "one"):
        (place / "adapters").mkdir(parents=True)
        (place / "run.sqlite").write_text("x")
        (place / "run.sqlite-wal").write_text("x")
        (place / "run.log").write_text("x")
        (place / "adapters" / "v1").write_text("x")
    assert problems.load(folder).digest == before


def requirement(text):
    return lambda folder: evaluated(folder, requirements__txt=text)


def spec(**changes):
    return lambda folder: write_problem(folder, spec=changes)


def config(text):
    return lambda folder: evaluated(folder, config__yaml=text)


def link(name, target):
    def make(folder):
        whole = write_problem(folder) if name in TESTED else evaluated(folder)
        (whole / name).unlink(missing_ok=True)
        (whole / name).symlink_to(target)

    return make


def special(name, make_it, whole=evaluated):
    def make(folder):
        place = whole(folder) / name
        place.unlink(missing_ok=True)
        make_it(place)

    return make


def large(place):
    with place.open("w") as file:
        file.truncate(300 << 20)


COMMANDS = {
    **{f"requirements: {name}": requirement(text) for name, text in REQUIREMENTS.items()},
    **{f"packages: {name!r}": spec(packages=[name]) for name in PACKAGES},
    **{f"a link at {name}": link(name, "/etc/passwd") for name in (*TESTED, "evaluator.py", "config.yaml", "data.csv")},
    "a link to a folder": link("folder", "/etc"),
    "a link to a device": link("data.bin", "/dev/zero"),
    "a link to a process's memory": link("data.bin", "/proc/self/environ"),
    "a FIFO as the program": special("initial_program.py", os.mkfifo, write_problem),
    "a FIFO as the tests": special("tests.jsonl", os.mkfifo, write_problem),
    "a FIFO beside the evaluator": special("pipe", os.mkfifo),
    "a FIFO as the evaluator": special("evaluator.py", os.mkfifo),
    "very large tests": special("tests.jsonl", large, write_problem),
    "a very large program": special("initial_program.py", large),
    "a very large config": special("config.yaml", large),
    "very large data": special("data.bin", large),
    **{f"YAML: {name}": config(text) for name, text in YAML.items()},
    "a name that clears the screen": special("a\x1b[2Jb", lambda place: place.write_text("x")),
    "a problem's name that clears the screen": spec(name="\x1b[2J"),
    "a name that leaves the folder": spec(name="../../x\n"),
}


def test_at_least_25_hostile_folders():
    assert len(COMMANDS) >= 25


@pytest.mark.parametrize("name", COMMANDS)
def test_check_refuses_a_hostile_folder_before_anything_runs(tmp_path, name, monkeypatch, capsys):
    """Through the command: exit code 2, one message that is plain text, no process, no file outside, in bounded time."""

    def refused(*_, **__):
        raise AssertionError("something was started")

    COMMANDS[name](tmp_path / "p")
    before = sorted(path.name for path in tmp_path.iterdir())
    monkeypatch.setattr(subprocess, "Popen", refused)
    monkeypatch.setattr(os, "system", refused)
    monkeypatch.setattr(socket, "socket", refused)
    monkeypatch.setattr(sys, "argv", ["evolve", "check", str(tmp_path / "p")])
    started = time.monotonic()
    with pytest.raises(SystemExit) as ended:
        main()
    told = capsys.readouterr().err
    assert ended.value.code == 2, told
    assert told.startswith("error: ") and "Traceback" not in told
    assert SECRET not in told and "\x1b" not in told
    assert not Path("/tmp/evil").exists()
    assert sorted(path.name for path in tmp_path.iterdir()) == before
    assert time.monotonic() - started < 10


@pytest.mark.slow
def test_packages_are_fetched_in_a_container_and_nothing_of_them_runs_here(docker_url, image, tmp_path, monkeypatch):
    import docker

    started = []
    real = subprocess.Popen.__init__

    def popen(self, command, *rest, **more):
        started.append(command)
        real(self, command, *rest, **more)

    monkeypatch.setattr(subprocess.Popen, "__init__", popen)
    client = docker.APIClient(base_url=docker_url, version="auto", timeout=600)
    try:
        with pytest.raises(EngineUnavailable, match=r"requirements\.txt, line 1"):
            ensure_layer(client, image, f"evil @ file://{tmp_path}", lambda _: None)
        assert started == []
        layer = ensure_layer(client, image, "tqdm==4.67.1\n", lambda _: None)
        assert all("install" not in command for command in started)
        made = client.create_container(
            layer, command=["python3", "-c", "import tqdm; print(tqdm.__version__)"], network_disabled=True
        )
        client.start(made)
        client.wait(made)
        assert client.logs(made) == b"4.67.1\n"
        client.remove_container(made, force=True)
        assert not any(one["Command"].startswith("python3 -I -c") for one in client.containers(all=True))
    finally:
        client.close()


@pytest.mark.slow
def test_100_000_problem_files_at_random(tmp_path):
    rng = random.Random(5)
    pieces = [
        "name",
        "statement",
        "entry",
        "packages",
        "limits",
        ":",
        " ",
        "\n",
        "- ",
        "[",
        "]",
        "{",
        "}",
        "&a",
        "*a",
        "!!x",
        "1",
        "x",
        "'",
        '"',
        "|",
        "#",
    ]
    tests = [
        '{"id": "a", "args": [1], "expected": 1}',
        "{",
        "[]",
        "null",
        '{"id": 1}',
        '"',
        "NaN",
        "\n",
        "\u2028",
        "\x85",
        '{"id": "a"}',
    ]
    folder = write_problem(tmp_path / "p")
    whole = (folder / "problem.yaml").read_text()
    for number in range(100_000):
        if number % 2:
            (folder / "problem.yaml").write_text("".join(rng.choices(pieces, k=rng.randint(0, 20))))
        else:
            (folder / "problem.yaml").write_text(whole)
            (folder / "tests.jsonl").write_text("".join(rng.choices(tests, k=rng.randint(0, 6))))
        with contextlib.suppress(ProblemError):
            problems.load(folder)


@pytest.mark.slow
def test_100_000_metrics_at_random():
    rng = random.Random(6)
    values = [0, 1.5, -1e308, 1e308, 10**400, float("nan"), float("inf"), True, None, "x", [], {}, "x" * 300]
    for _ in range(100_000):
        metrics = {rng.choice(("a", "b", "combined_score", "x" * 300)): rng.choice(values) for _ in range(rng.randint(0, 4))}
        artifacts = {rng.choice(("log", "y" * 300)): rng.choice(values) for _ in range(rng.randint(0, 2))}
        try:
            found, _ = checked(rng.choice((metrics, values, None)), artifacts)
        except InvalidMetrics:
            continue
        assert all(abs(value) <= MOST for value in numeric(found).values())
