"""Folders in the shapes of OpenEvolve's examples, through `evolve check`: scored, or told what is missing.

Every evaluator here catches all exceptions and returns 0, as many do.
"""

import asyncio
import json

import pytest

from evolve import problem as problems
from evolve.errors import BadInput
from evolve.machine_cli import _check, _judge
from evolve.sandboxes import Pools
from tests.evolve.test_hostile_folders import evaluated
from tests.evolve.test_real import evolve

pytestmark = pytest.mark.slow
PROGRAM = "def solve(n):\n    return n * n\n"
SHAPE = """
import importlib.util
import traceback


def load(path):
    spec = importlib.util.spec_from_file_location("program", path)
    program = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(program)
    return program


def evaluate(path):
    try:
        return {"combined_score": float(judge(load(path), path))}
    except Exception as error:
        EXCEPT
        return {"combined_score": 0.0}


"""
SILENT, PRINTED, RETURNED = "pass", "traceback.print_exc()", "return {'combined_score': 0.0, 'error': str(error)}"


@pytest.fixture(scope="module", autouse=True)
def ready(docker_url, image):
    """The engine and the image."""


def folder(path, body, swallow=SILENT, program=PROGRAM, **files):
    text = SHAPE.replace("EXCEPT", swallow) + body
    return evaluated(path, evaluator__py=text, initial_program__py=program, **files)


def check(path, *options):
    done = evolve("check", path, "--json", *options)
    found = json.loads(done.stdout) if done.stdout else {}
    return done.returncode, found, " ".join(done.stderr.split())


SCORED = {
    "stages": (
        "def judge(program, path): return program.solve(3) == 9\n"
        "def evaluate_stage1(path): return {'combined_score': 0.6}\ndef evaluate_stage2(path): return evaluate(path)\n",
        {},
        1.0,
    ),
    "an async evaluator": (
        "import asyncio\nplain = evaluate\n"
        "async def evaluate(path):\n    await asyncio.sleep(0.01)\n    return plain(path)\n"
        "def judge(program, path): return program.solve(1)\n",
        {},
        1.0,
    ),
    "tqdm and yaml": (
        "import tqdm, yaml\n"
        "def judge(program, path):\n    return sum(program.solve(n) for n in tqdm.tqdm(range(3))) / yaml.safe_load('5')\n",
        {},
        1.0,
    ),
    "a process pool": (
        "import multiprocessing\nfrom concurrent.futures import ProcessPoolExecutor\n"
        "def work(job): return load(job[0]).solve(job[1])\n"
        "def judge(program, path):\n    jobs = [(path, 1), (path, 2)]\n"
        "    with multiprocessing.Pool(2) as pool: found = pool.map(work, jobs)\n"
        "    with ProcessPoolExecutor(2) as pool: return sum(found + list(pool.map(work, jobs))) / 10\n",
        {},
        1.0,
    ),
    "a process of its own with a time-out": (
        "import subprocess, sys\n"
        "def judge(program, path):\n    code = 'import sys; sys.path.insert(0, sys.argv[1]); import candidate_program as c; "
        "print(c.solve(3))'\n    import os\n    args = [sys.executable, '-c', code, os.path.dirname(path)]\n"
        "    return int(subprocess.run(args, capture_output=True, timeout=20, check=True).stdout) / 9\n",
        {},
        1.0,
    ),
    "address space as JAX takes it": (
        "import mmap\ndef judge(program, path):\n    kept = mmap.mmap(-1, 200 << 30, flags=mmap.MAP_PRIVATE | 0x4000)\n"
        "    return program.solve(1)\n",
        {},
        1.0,
    ),
    "a data file": (
        "import csv, os\ndef judge(program, path):\n    place = os.path.join(os.path.dirname(__file__), 'data.csv')\n"
        "    return sum(program.solve(int(row[0])) for row in csv.reader(open(place))) / 5\n",
        {"data__csv": "1\n2\n"},
        1.0,
    ),
    "variables of the environment": (
        "import os\ndef judge(program, path): return program.solve(int(os.environ['NUMBER'])) / 9\n",
        {"problem__yaml": 'env: {NUMBER: "3"}\n'},
        1.0,
    ),
    "a written result": (
        "import json, os\ndef judge(program, path):\n    json.dump(program.solve(3), open('/tmp/result.json', 'w'))\n"
        "    return json.load(open('/tmp/result.json')) / 9\n",
        {},
        1.0,
    ),
    "a result written into its folder": ("def judge(program, path):\n    open('out.txt', 'w')\n    return 1\n", {}, 1.0),
}
MISSING = {
    "a package": ("import json\ndef judge(program, path):\n    import scipy_not_here\n    return 1\n", "`scipy_not_here`"),
    "a command": (
        "import subprocess\ndef judge(program, path): return subprocess.run(['cargo', 'build'], check=True).returncode\n",
        "packages: [cargo]",
    ),
    "a command in a shell": (
        "import subprocess\ndef judge(program, path):\n"
        "    done = subprocess.run('Rscript run.R', shell=True, capture_output=True, text=True)\n"
        "    if done.returncode: raise RuntimeError(done.stderr)\n    return 1\n",
        "Rscript run.R",
    ),
    "a process that crashes": (
        "import subprocess, sys\ndef judge(program, path):\n"
        "    return float(subprocess.run([sys.executable, '-c', 'import os; os.abort()'], capture_output=True).stdout)\n",
        "was ended by signal 6",
    ),
    "memory": (
        "import numpy\ndef judge(program, path): return numpy.ones(3 << 28).sum() > 0\n",
        "memory",
    ),
    "a network": (
        "import urllib.request\ndef judge(program, path): return len(urllib.request.urlopen('http://data.example/x').read())\n",
        "--allow-network",
    ),
    "a file elsewhere": ("def judge(program, path): return len(open('/data/big.csv').read())\n", "no file /data/big.csv"),
    "a variable": ("import os\ndef judge(program, path): return int(os.environ['DATA_SIZE'])\n", "env: {DATA_SIZE: ...}"),
}
HOW = {"a file elsewhere": RETURNED, "a network": PRINTED, "a variable": PRINTED, "a command in a shell": RETURNED,
       "memory": PRINTED}  # fmt: skip


@pytest.fixture(scope="module")
def checked(tmp_path_factory, docker_url, image):
    """What `evolve check` finds of every folder, all in one sandbox: problem and content by name."""
    place = tmp_path_factory.mktemp("shapes")

    async def all_of_them():
        found = {}
        async with Pools("shapes", print) as pools:
            for number, (name, (body, files, _)) in enumerate(SCORED.items()):
                found[name] = problems.load(folder(place / f"scored{number}", body, **files))
            for number, (name, (body, _)) in enumerate(MISSING.items()):
                found[name] = problems.load(folder(place / f"missing{number}", body, HOW.get(name, SILENT)))
            return {name: (one, await _check(one, "docker", print, pools=pools)) for name, one in found.items()}

    return asyncio.run(all_of_them())


@pytest.mark.parametrize("name", SCORED)
def test_shapes_that_are_scored(checked, name):
    problem, found = checked[name]
    assert found["fitness"] == pytest.approx(SCORED[name][2]), found
    assert found["self_scored"] is False
    _judge(problem, found, accept=False)


@pytest.mark.parametrize("name", MISSING)
def test_shapes_that_lack_something_say_what_to_add(checked, name):
    problem, found = checked[name]
    with pytest.raises(BadInput) as told:
        _judge(problem, found, accept=False)
    assert MISSING[name][1] in str(told.value)
    if found["runs"]:
        _judge(problem, found, accept=True)


def test_a_candidate_that_raises_is_told(tmp_path):
    place = folder(
        tmp_path / "p", "def judge(program, path): return program.solve(1)\n", program="def solve(n):\n    return {}[n]\n"
    )
    code, _, err = check(place)
    assert code == 2
    assert "the candidate raised KeyError: 1" in err


def test_a_silent_zero_is_no_silence(tmp_path):
    code, found, err = check(folder(tmp_path / "p", "def judge(program, path): return 0.0\n"))
    assert (code, found["fitness"]) == (0, 0.0)
    assert "let the evaluator print what it catches" in err


def test_data_that_is_too_much_is_said_before_anything_runs(tmp_path):
    place = folder(tmp_path / "p", "def judge(program, path): return 1\n")
    (place / "big.bin").write_bytes(b"x" * (33 << 20))
    code, _, err = check(place)
    assert code == 2
    assert "32 MB" in err


TIMED = """
import time
def work():
    total = 0
    for i in range(10_000):
        total += i * i
    return total
def judge(program, path):
    ratios = []
    for _ in range(7):
        started = time.perf_counter(); work(); mine = time.perf_counter() - started
        started = time.perf_counter(); program.solve(1); theirs = time.perf_counter() - started
        ratios.append(mine / theirs)
    cpu = time.process_time(); program.solve(1); cpu = time.process_time() - cpu
    return sorted(ratios)[3] if cpu > mine / 3 else -1
"""


def test_a_candidate_is_timed_where_it_runs(tmp_path):
    program = "def solve(n):\n    total = 0\n    for i in range(10_000):\n        total += i * i\n    return total\n"
    code, found, err = check(folder(tmp_path / "p", TIMED, program=program))
    assert code == 0
    assert found["self_scored"] is False
    assert found["clocks"] == ["time.perf_counter", "time.process_time"]
    assert "reads a clock" in err
    assert 0.35 < found["fitness"] < 1.5  # the same work of about half a ms; with the way to the sandbox in it .08
