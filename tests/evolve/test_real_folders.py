"""Evaluators in the real sandbox: kept apart or not, in other languages, with packages, and with a network."""

import http.server
import shutil
import threading

import pytest

from evolve import problem as problems
from evolve.errors import BadInput
from evolve.sandboxes import Isolation, grader
from sandbox.base import EngineUnavailable, Verdict
from tests.conftest import ROOT
from tests.evolve.test_folders import FOLDERS, NAMES

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module", autouse=True)
def ready(docker_url, image):
    """The engine and the image."""


def copy(folder, name, **files):
    shutil.copytree(FOLDERS / name, folder / name)
    for path, text in files.items():
        (folder / name / path.replace("__", ".")).write_text(text)
    return folder / name


async def scored(problem, source, **options):
    said = []
    async with grader(problem, "docker", 1, "test", said.append, **options) as (opened, isolation):
        return await opened.score(source), isolation, said


GRADED = ["artifacts", "helpers", "negative", "other_names", "shell", "stages", "stem_import", "templates", "text"]


@pytest.mark.parametrize("name", GRADED)
async def test_every_folder_is_graded_in_the_sandbox_as_beside_it(name):
    """The initial programs score what tests/evolve/test_folders.py sees without a sandbox, kept apart where that works."""
    problem = problems.load(FOLDERS / name, **NAMES.get(name, {}))
    score, isolation, said = await scored(problem, problem.initial)
    expected = {"no_config": 0.2, "negative": -1.0 - (np_sum() + 63) / 2, "shell": 2 / 6, "text": 0.1, "stages": None,
                "stages_off": 0.5, "artifacts": 2 / 6, "helpers": 0.4, "templates": 2 / 6,
                "own_objectives": (2.0 - np_sum()) / 2, "features": 0.2}  # fmt: skip
    assert score.ran, score.results
    if expected.get(name, 0.2) is not None:
        assert score.fitness == pytest.approx(expected.get(name, 0.2)), score.metrics
    assert isolation.separated == (name not in ("shell", "text")), isolation
    assert score.level.endswith("-separated" if isolation.separated else "-shared")
    assert any("share the evaluator's process" in text for text in said) != isolation.separated


def np_sum():
    return sum(abs(2 * n - n * n) for n in range(10))


async def test_what_cannot_be_kept_apart_falls_back_and_says_why(tmp_path):
    reads = "import importlib.util\n\ndef evaluate(path):\n    return {'lines': len(open(path).read().splitlines())}\n"
    problem = problems.load(copy(tmp_path, "plain", evaluator__py=reads))
    score, isolation, said = await scored(problem, problem.initial)
    assert not isolation.separated
    assert "other metrics" in isolation.reason
    assert score.metrics == {"lines": float(len(problem.initial.splitlines()))}
    assert score.level == "docker-oneshot-shared"
    assert "could forge" in said[-1]
    again, kept, said = await scored(problem, problem.initial, isolation=isolation)
    assert (kept, again.metrics) == (isolation, score.metrics)
    assert not any("could forge" in text for text in said)


async def test_trust_is_the_users_to_give(tmp_path):
    problem = problems.load(copy(tmp_path, "plain", problem__yaml="trust: shared_process"))
    _, isolation, _ = await scored(problem, problem.initial)
    assert isolation == Isolation(False, "problem.yaml says so")


async def test_metrics_that_vary_by_themselves_do_not_forbid_keeping_apart(tmp_path):
    varies = "import os\n\ndef evaluate(path):\n    return {'noise': int.from_bytes(os.urandom(3), 'big') / 1e6}\n"
    _, isolation, _ = await scored(problems.load(copy(tmp_path, "plain", evaluator__py=varies)), "x = 1")
    assert isolation.separated


async def test_a_cpp_program_is_built_and_run_by_its_evaluator(tmp_path):
    (tmp_path / "initial_program.cpp").write_text(
        "#include <iostream>\n// EVOLVE-BLOCK-START\nlong solve(long n) { return n + n; }\n// EVOLVE-BLOCK-END\n"
        "int main() { long n; std::cin >> n; std::cout << solve(n); }\n"
    )
    (tmp_path / "evaluator.py").write_text(
        "import os, subprocess, tempfile\n\ndef evaluate(path):\n    binary = os.path.join(tempfile.mkdtemp(), 'program')\n"
        "    built = subprocess.run(['g++', '-O1', '-o', binary, path], capture_output=True, text=True)\n"
        "    if built.returncode:\n        return {'combined_score': 0.0, 'error': built.stderr[-300:]}\n"
        "    hits = sum(subprocess.run([binary], input=str(n), capture_output=True, text=True).stdout == str(n * n)\n"
        "               for n in range(5))\n    return {'combined_score': hits / 5}\n"
    )
    (tmp_path / "problem.yaml").write_text("name: squares\npackages: [nodejs]\nlimits: {memory_mb: 512}\n")
    problem = problems.load(tmp_path)
    assert (problem.language, problem.suffix, problem.packages) == ("cpp", ".cpp", ["g++", "nodejs"])
    async with grader(problem, "docker", 1, "test", print) as (opened, isolation):
        assert "run by the evaluator itself" in isolation.reason
        assert (await opened.score(problem.initial)).fitness == pytest.approx(0.4)
        assert (await opened.score(problem.initial.replace("n + n", "n * n"))).fitness == 1.0
        broken = await opened.score(problem.initial.replace("n + n", "n +"))
        assert broken.fitness == 0.0
        assert "error" in broken.metrics


async def test_requirements_are_a_layer_that_is_built_once(tmp_path):
    problem = problems.load(FOLDERS / "requirements")
    score, isolation, said = await scored(problem, problem.initial)
    assert score.fitness == pytest.approx(0.5)
    assert isolation.separated
    _, _, said = await scored(problem, problem.initial)
    assert not any("building" in text for text in said)
    broken = problems.load(copy(tmp_path, "requirements", requirements__txt="no-such-package-anywhere==1\n"))
    with pytest.raises(EngineUnavailable, match=r"requirements\.txt could not be had.*no-such-package"):
        await scored(broken, broken.initial)


async def test_a_network_is_there_only_when_it_is_allowed(tmp_path, docker_url):
    class Quiet(http.server.SimpleHTTPRequestHandler):
        def log_message(self, *_):
            return None

    (tmp_path / "seven.txt").write_text("7")
    server = http.server.ThreadingHTTPServer(("0.0.0.0", 0), lambda *args: Quiet(*args, directory=str(tmp_path)))
    threading.Thread(target=server.serve_forever, daemon=True).start()
    fetches = (
        "import urllib.request\n\ndef evaluate(path):\n"
        "    gateway = next(line.split()[2] for line in open('/proc/net/route') if line.split()[1] == '00000000')\n"
        "    host = '.'.join(str(int(gateway[i:i + 2], 16)) for i in (6, 4, 2, 0))\n"
        f"    url = 'http://%s:{server.server_port}/seven.txt' % host\n"
        "    return {'value': float(urllib.request.urlopen(url, timeout=5).read())}\n"
    )
    problem = problems.load(copy(tmp_path, "plain", evaluator__py=fetches))
    try:
        score, _, _ = await scored(problem, "x = 1")
        assert score.results[0].verdict is Verdict.EXCEPTION
        assert not score.ran
        score, _, _ = await scored(problem, problem.initial, network=True)
        assert score.metrics == {"value": 7.0}
        assert score.level == "docker-oneshot-network-separated"
    finally:
        server.shutdown()
        server.server_close()
    with pytest.raises(BadInput, match="never have a network"):
        await scored(problems.load(ROOT / "problems" / "calculator"), "x = 1", network=True)


PACKINGS = {
    "valid": ("return [((i % 6 + .5) / 6, (i // 6 + .5) / 6, 1 / 12) for i in range(26)]", 1.0, "valid"),
    "too few": ("return [(.5, .5, .1)]", 0.0, "26 circles are wanted, 1 came"),
    "NaN": ("return [(float('nan'),) * 3] * 26", 0.0, "NaN"),
    "infinite": ("return [(.5, .5, float('inf'))] * 26", 0.0, "finite"),
    "negative": ("return [(.5, .5, -1.0)] * 26", 0.0, "radius -1"),
    "outside": ("return [(i / 26, 0., .01) for i in range(26)]", 0.0, "leaves the square"),
    "overlap": ("return [(.5, .5, .1)] * 26", 0.0, "overlap by 0.2"),
    "a hair of overlap": (
        "return [((i % 6 + .5) / 6, (i // 6 + .5) / 6, 1 / 12 + 1e-6) for i in range(26)]",
        0.0,
        "leaves",
    ),
    "numbers": ("return 7", 0.0, "TypeError"),
    "text": ("return ['abc'] * 26", 0.0, "ValueError"),
    "raises": ("raise KeyError('x')", 0.0, "KeyError"),
    "lies about its numbers": (
        "class F(float):\n        def __lt__(s, o): return False\n    return [(F(.5), F(.5), F(9))] * 26",
        0.0,
        "can't cross",
    ),
}


async def test_circle_packings_are_judged_by_their_numbers():
    problem = problems.load(ROOT / "problems" / "circle_packing")
    async with grader(problem, "docker", 2, "test", print) as (opened, isolation):
        assert isolation.separated
        for what, (body, valid, text) in PACKINGS.items():
            score = await opened.score(f"def pack():\n    {body}\n")
            assert score.metrics.get("valid", 0.0) == valid, (what, score)
            assert text in str(score.artifacts) + score.results[0].detail, (what, score)


async def test_bin_packing_has_an_objective_per_family_and_tells_heuristics_apart():
    problem = problems.load(ROOT / "problems" / "bin_packing")
    best_fit = "def score(item, rest):\n    return item - rest\n"
    worst_fit = "def score(item, rest):\n    return rest\n"
    async with grader(problem, "docker", 2, "test", print) as (opened, isolation):
        assert isolation.separated
        first, best, worst = [await opened.score(source) for source in (problem.initial, best_fit, worst_fit)]
        assert set(first.values) == {"combined_score", "uniform", "small", "halves", "thirds", "weibull"}
        assert best.values["uniform"] > first.values["uniform"] > worst.values["uniform"]
        liar = await opened.score("def score(item, rest):\n    return float('nan')\n")
        assert not liar.ran
