"""Evaluators written as OpenEvolve's users write them, with the candidate in a sandbox of its own."""

import asyncio
import json
import subprocess
import sys
from pathlib import Path

import pytest

from sandbox.base import Limits, Outcome, Verdict
from sandbox.bubblewrap import BubblewrapSandbox
from sandbox.docker import DockerSandbox
from sandbox.evaluator import Evaluator, EvaluatorSandbox, _Candidate
from tests.sandbox.test_backends import root  # noqa: F401  (a fixture)

pytestmark = pytest.mark.slow
FOLDERS = Path(__file__).parent / "evaluators"
GUEST = Path(__file__).parent.parent.parent / "sandbox" / "guest"
LIMITS = Limits(cpu_seconds=10, wall_seconds=30, memory_mb=256, output_kb=4096)

GOOD = {
    "minimum": """
import random
def run_search(seed):
    rng = random.Random(seed)
    import math
    f = lambda x, y: math.sin(x) * math.cos(y) + (x - 1.5) ** 2 + (y + 0.5) ** 2
    best = min(((rng.uniform(-5, 5), rng.uniform(-5, 5)) for _ in range(500)), key=lambda p: f(*p))
    return best[0], best[1], f(*best)
""",
    "packing": """
import numpy as np
SEEDS = 3
def run_packing():
    centers = np.array([[0.25, 0.25], [0.75, 0.25], [0.25, 0.75], [0.75, 0.75], [0.5, 0.5]])
    radii = np.array([0.25, 0.25, 0.25, 0.25, np.sqrt(0.125) - 0.25])
    return centers, radii, np.sum(radii)
""",
    "child": "def arrange(jobs): return sorted(jobs, key=lambda job: job[0] / job[1])\n",
}

# For each evaluator a program that gives itself a score when it shares the evaluator's process, and what it is worth apart.
FORGED = {
    "minimum": """
import numpy as np, sys
np.linalg.norm = lambda *a, **k: 0.0
frame = sys._getframe()
while frame:
    frame.f_globals.update({"bumpy": lambda x, y: 0.0} if "bumpy" in frame.f_globals else {})
    frame = frame.f_back
def run_search(seed): return 9.0, 9.0, 0.0
""",
    "packing": """
import numpy as np
np.sum = lambda *a, **k: 999.0
def run_packing(): return np.full((5, 2), 0.5), np.full(5, 0.1), 999.0
""",
    "child": """
import os, pickle, sys
text = open(sys.argv[0]).read() if os.path.exists(sys.argv[0]) else ""
path = text.split("open('")[1].split("'")[0] if "open('" in text else "/tmp/none"
with open(path, "wb") as file:
    file.write(b"cbuiltins\\nexec\\n(S'import sys; sys.modules[\\"evaluation_module\\"].cost = lambda order: 0.001'\\ntR0")
    file.write(pickle.dumps({"order": []}, 0))
os._exit(0)
""",
}


def evaluator(name, **options):
    files = {path.name: path.read_bytes() for path in (FOLDERS / name).iterdir() if path.is_file()}
    return Evaluator(files, **options)


def plainly(name, source, tmp_path):
    """The metrics that the evaluator gives in a process of its own here, the program imported beside it."""
    program = tmp_path / "candidate_program.py"
    program.write_text(source)
    code = f"""
import json, sys
sys.path[:0] = [{str(FOLDERS / name)!r}, {str(GUEST)!r}]
import evaluator
found = evaluator.evaluate({str(program)!r})
print(json.dumps(getattr(found, "metrics", found)))
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    return json.loads(done.stdout)


@pytest.fixture(params=["docker", "docker-reuse", "bwrap"])
async def pool(request, docker_url, image):
    if request.param == "bwrap":
        made = BubblewrapSandbox(request.getfixturevalue("root"), LIMITS, size=2)
    else:
        made = DockerSandbox(docker_url, image, LIMITS, size=2, builds=True, reuse=request.param == "docker-reuse")
    async with made:
        yield made


async def evaluate(pool, sources, **options):
    """Return the outcome of each program under the evaluator of its name, and the level."""
    judges = {name: EvaluatorSandbox(pool, evaluator(name, **options)) for name in sources}
    outcomes = await asyncio.gather(*(judges[name].evaluate(source) for name, source in sources.items()))
    return dict(zip(sources, outcomes, strict=True)), {judge.level for judge in judges.values()}


async def test_metrics_are_those_of_the_evaluator_run_plainly(pool, tmp_path):
    outcomes, _ = await evaluate(pool, GOOD)
    for name, outcome in outcomes.items():
        assert outcome.verdict is None, outcome
        metrics = json.loads(outcome.answer)["metrics"]
        assert metrics == plainly(name, GOOD[name], tmp_path)
        assert metrics["combined_score"] > 0


async def test_forgers_get_nothing(pool):
    outcomes, levels = await evaluate(pool, FORGED)
    assert levels == {f"{pool.level}-separated"}
    for outcome in outcomes.values():
        metrics = json.loads(outcome.answer)["metrics"] if outcome.verdict is None else {}
        assert metrics.get("combined_score", 0.0) < 0.5, outcome


async def test_forgers_succeed_where_they_share_the_process(pool):
    """Negative control, and why `shared` says so in the level."""
    outcomes, levels = await evaluate(pool, FORGED, separated=False)
    assert levels == {f"{pool.level}-shared"}
    for outcome in outcomes.values():
        assert json.loads(outcome.answer)["metrics"]["combined_score"] >= 1.0, outcome


async def test_stages_go_on_while_thresholds_are_reached(pool):
    passed = await EvaluatorSandbox(pool, evaluator("minimum", thresholds=[0.5])).evaluate(GOOD["minimum"])
    stopped = await EvaluatorSandbox(pool, evaluator("minimum", thresholds=[2.0])).evaluate(GOOD["minimum"])
    assert set(json.loads(passed.answer)["metrics"]) == {"runs", "combined_score", "distance_score", "reliability"}
    assert json.loads(stopped.answer) == {
        "metrics": {"runs": 1.0, "combined_score": 1.0},
        "artifacts": {},
        "stages": 1,
        "notes": [],
    }


BAD = {
    "raises": ("def run_packing(): raise KeyError('no')", Verdict.EXCEPTION, "KeyError: 'no'"),
    "does not compile": ("def run_packing(:", Verdict.EXCEPTION, "SyntaxError"),
    "raises at import": ("1 / 0", Verdict.EXCEPTION, "ZeroDivisionError"),
    "exits": ("import os\ndef run_packing(): os._exit(0)", Verdict.EXCEPTION, "the candidate's process ended: exit"),
    "loops": ("def run_packing():\n    while True: pass", Verdict.EXCEPTION, "the candidate's process ended: cpu"),
    "takes memory": ("def run_packing(): return [b'x' * (1 << 29)]", Verdict.EXCEPTION, "ended: memory"),
    "returns a function": ("def run_packing(): return len", Verdict.EXCEPTION, "builtin_function_or_method can't cross"),
    "returns NaN": ("def run_packing(): return [], [], float('nan')", Verdict.EXCEPTION, "the candidate returned NaN"),
    "ends a loop": ("def run_packing(): raise StopIteration", Verdict.EXCEPTION, "the candidate raised StopIteration"),
    "ends the process": ("def run_packing(): raise SystemExit(0)", Verdict.EXCEPTION, "the candidate raised SystemExit"),
    "lies about its arrays": ("import os, struct, json\ndef run_packing():\n    r = json.dumps({'dict': [['value', {'array':"
                              " ['|O', [1], 'AAAA']}]]}).encode()\n    os.write(3, struct.pack('>I', len(r)) + r)\n"
                              "    return 1", Verdict.EXCEPTION, "do not cross"),
    "replies with junk": ("import os\ndef run_packing(): os.write(3, b'\\0\\0\\0\\4junk')", Verdict.EXCEPTION, "no value"),
    "promises too much": ("import os\ndef run_packing(): os.write(3, b'\\xff' * 4)\n", Verdict.EXCEPTION, "ended"),
    "floods": ("import os\ndef run_packing():\n    while True: os.write(1, b'x' * 65536)", Verdict.EXCEPTION, "output"),
}  # fmt: skip


async def test_bad_candidates_are_data_and_the_next_is_scored_as_ever(docker_url, image):
    limits = Limits(cpu_seconds=2, wall_seconds=8, memory_mb=256, output_kb=4096)
    async with DockerSandbox(docker_url, image, limits, size=2, builds=True) as pool:
        judge = EvaluatorSandbox(pool, evaluator("packing"))
        for what, (source, verdict, text) in BAD.items():
            outcome, after = await asyncio.gather(judge.evaluate(source), judge.evaluate(GOOD["packing"]))
            assert outcome.verdict is verdict, (what, outcome)
            assert text in outcome.detail, (what, outcome)
            assert json.loads(after.answer)["metrics"]["validity"] == 1.0


async def test_calls_that_time_out_in_the_evaluator_do_not_hold_up_the_next(pool):
    files = {
        "evaluator.py": b"""
import concurrent.futures, importlib
def evaluate(path):
    import sys, os
    sys.path.insert(0, os.path.dirname(path))
    program = importlib.import_module("candidate_program")
    threads = concurrent.futures.ThreadPoolExecutor(4)
    slow = threads.submit(program.wait, 20)
    try:
        slow.result(timeout=1)
    except concurrent.futures.TimeoutError:
        pass
    answer = program.wait(0)
    os._exit_ = threads.shutdown(wait=False, cancel_futures=True)
    return {"answer": answer}
"""
    }
    source = "import time\ndef wait(seconds):\n    time.sleep(seconds)\n    return 7\n"
    outcome = await EvaluatorSandbox(pool, Evaluator(files)).evaluate(source)
    assert json.loads(outcome.answer)["metrics"] == {"answer": 7.0}
    assert outcome.wall_seconds < 10


async def test_an_evaluator_is_bound_too(docker_url, image):
    bad = {
        "hangs": b"import time\ndef evaluate(path): time.sleep(100)",
        "loops": b"def evaluate(path):\n    while True: pass",
        "raises": b"def evaluate(path): raise OSError('disk')",
        "gives text": b"def evaluate(path): return 'fine'",
        "lacks evaluate": b"def judge(path): return {}",
        "writes to its folder": b"def evaluate(path): open(__file__, 'a')",
    }
    limits = Limits(cpu_seconds=1, wall_seconds=3)
    found = {}
    async with DockerSandbox(docker_url, image, limits, size=2) as small:
        for name, text in bad.items():
            outcome = await EvaluatorSandbox(small, Evaluator({"evaluator.py": text})).evaluate("x = 1")
            found[name] = str(outcome.verdict)
    assert found == {
        "hangs": "timeout",
        "loops": "cpu",
        "raises": "exception",
        "gives text": "invalid",
        "lacks evaluate": "invalid",
        "writes to its folder": "exception",
    }


LOOSE = b"""
import importlib, os, sys
def evaluate(path):
    sys.path.insert(0, os.path.dirname(path))
    program = importlib.import_module("candidate_program")
    try:
        score = sum(map(program.one, [1, 2, 3]))
    except ValueError:
        score = -1
    small = program.small() if hasattr(program, "small") else None
    return {"score": score, "wrapped": -1.0 if small is None else float((small * 2).max())}
"""
STOPS = "def one(x):\n    if x == 2: raise StopIteration\n    return 0.5\n"
NANS = "import numpy as np\ndef one(x): return np.array([0.5, np.nan])[x - 1]\n"
SMALL = "import numpy as np\ndef one(x): return 1\ndef small(): return np.array([100, 127], dtype=np.int8)\n"


async def test_values_and_exceptions_that_fool_an_evaluator_do_not_cross(docker_url, image):
    files = {"evaluator.py": LOOSE}
    async with DockerSandbox(docker_url, image, LIMITS, size=2) as pool:
        judge, raw = EvaluatorSandbox(pool, Evaluator(files)), EvaluatorSandbox(pool, Evaluator(files, checked=False))
        stops, nans, small, wrapped = await asyncio.gather(
            judge.evaluate(STOPS), judge.evaluate(NANS), judge.evaluate(SMALL), raw.evaluate(SMALL)
        )
    assert (stops.verdict, "StopIteration" in stops.detail) == (Verdict.EXCEPTION, True)
    assert json.loads(nans.answer)["metrics"]["score"] == -1
    assert json.loads(small.answer)["metrics"]["wrapped"] == 254
    assert json.loads(wrapped.answer)["metrics"]["wrapped"] < 0  # negative control


FLOOD = """
import os, socket, struct
found = [name for name in os.listdir("/tmp") if name.endswith(".sock")]
def one(x): return 1
"""


async def test_a_candidate_in_the_evaluators_process_has_nobody_to_call(docker_url, image):
    """It could make the host start sandboxes and hold values without end."""
    files = {"evaluator.py": LOOSE.replace(b'{"score"', b'{"sockets": len(program.found), "score"')}
    async with DockerSandbox(docker_url, image, LIMITS, size=1) as pool:
        outcome = await EvaluatorSandbox(pool, Evaluator(files, separated=False)).evaluate(FLOOD)
    assert json.loads(outcome.answer)["metrics"]["sockets"] == 0


class Guests:
    """A pool that only counts; each of its sandboxes dies in its first call."""

    limits = Limits()

    def __init__(self):
        self.taken = 0

    async def take(self):
        self.taken += 1
        return self

    async def load(self, job):
        pass

    async def test(self, number, data, limits):
        return Outcome(Verdict.KILLED), False

    def discard(self, guest):
        pass


async def test_what_one_evaluation_may_cost_is_bounded(monkeypatch):
    monkeypatch.setattr("sandbox.evaluator.MOST_SPENT", 3)
    guests = Guests()
    candidate = _Candidate(guests, "", {})
    answers = [await candidate.answer(number, b"{}") for number in range(6)]
    assert guests.taken == 3
    assert b"has cost 3 sandboxes" in answers[-1]
    monkeypatch.setattr("sandbox.evaluator.MOST_CALLS", 6)
    assert b"more than 6 calls" in await candidate.answer(9, b"{}")
