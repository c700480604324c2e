"""What the search costs beside the model: our controller, OpenEvolve 0.4.0 and ShinkaEvolve 0.0.7 on one trivial problem.

All three ask the same server on loopback (`benchmarks/instant.py`), which answers at once, and score in their own way with
nothing between them and the program: ours in this process, OpenEvolve in its worker processes, ShinkaEvolve in a process
for each program. Ours runs to 1,000, 10,000 and 100,000 stored programs and is measured over the next ones; OpenEvolve runs
to 1,000, ShinkaEvolve to 40 (it takes seconds for each), one after the other in the same run. They are installed from the
registry, each into an environment of its own.

`python -m benchmarks.controller --json` prints one object; `--quick` stops at 1,000 stored programs without the others.
"""

from __future__ import annotations

import argparse
import asyncio
import itertools
import json
import os
import re
import resource
import socket
import statistics
import subprocess
import sys
import tempfile
import time
import venv
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import datetime
from pathlib import Path
from typing import Any

from evolve.cache import cache_folder

WINDOW = 800
SHINKA_STORED = 40
"""ShinkaEvolve takes seconds for a program, so it is measured at fewer."""
PARTS = 4
"""A window is measured in so many parts, for the spread."""

PROGRAM = "# EVOLVE-BLOCK-START\ndef f(x):\n    return x\n# EVOLVE-BLOCK-END\n"
EVALUATOR = """
import importlib.util
def evaluate(path):
    spec = importlib.util.spec_from_file_location("program", path)
    program = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(program)
    hits = [float(program.f(x) == x * x % 101) for x in range(4)]
    return {"combined_score": sum(hits) / 4, "first": hits[0], "second": hits[1]}
"""
OPENEVOLVE = """
max_iterations: {iterations}
checkpoint_interval: 100000
random_seed: 1
diff_based_evolution: false
llm:
  api_base: {url}
  api_key: none
  models: [{{name: instant, weight: 1.0}}]
database: {{population_size: 1000, num_islands: 5}}
evaluator: {{parallel_evaluations: 2, cascade_evaluation: false}}
"""
SHINKA = """
import sys
from pathlib import Path
from shinka.core import EvolutionConfig, ShinkaEvolveRunner
from shinka.database import DatabaseConfig
from shinka.launch import LocalJobConfig
folder, url, generations = Path(sys.argv[1]), sys.argv[2], int(sys.argv[3])
evolution = EvolutionConfig(
    num_generations=generations, llm_models=[f"local/instant@{url}"], embedding_model=None, meta_rec_interval=None,
    patch_types=["full"], patch_type_probs=[1.0], llm_dynamic_selection=None, init_program_path=str(folder / "initial.py"),
    results_dir=str(folder / "results"), max_novelty_attempts=1,
)
runner = ShinkaEvolveRunner(
    evolution, LocalJobConfig(eval_program_path=str(folder / "evaluate.py")), DatabaseConfig(db_path="db.sqlite"),
    verbose=False, max_evaluation_jobs=2, max_proposal_jobs=4,
)
runner.run()
"""
SHINKA_EVALUATE = """
import argparse, json, os
from shinka.core import run_shinka_eval
def metrics(results):
    hits = sum(value == x * x % 101 for x, value in enumerate(results[0]))
    return {"combined_score": hits / 4, "public": {}, "private": {}}
if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--program_path"); parser.add_argument("--results_dir")
    given = parser.parse_args()
    run_shinka_eval(program_path=given.program_path, results_dir=given.results_dir, experiment_fn_name="run", num_runs=1,
                    get_experiment_kwargs=lambda _: {}, aggregate_metrics_fn=metrics)
"""
SHINKA_PROGRAM = PROGRAM + "\n\ndef run():\n    return [f(x) for x in range(4)]\n"


@contextmanager
def instant_server() -> Iterator[str]:
    """Run the server in a process of its own and yield its URL."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    process = subprocess.Popen([sys.executable, "-m", "benchmarks.instant", str(port)])
    try:
        for _ in range(200):
            with socket.socket() as probe:
                if probe.connect_ex(("127.0.0.1", port)) == 0:
                    break
            time.sleep(0.05)
        yield f"http://127.0.0.1:{port}/v1"
    finally:
        process.kill()
        process.wait()


async def ours(folder: Path, url: str, marks: list[int]) -> dict[str, Any]:
    """Search to the last mark; return CPU and wall time per candidate after each, file size and memory."""
    import numpy as np

    from evolve import problem as problems
    from evolve.database import Database
    from evolve.grading import TestGrader
    from evolve.loop import Search
    from evolve.mutator import OpenAIMutator
    from evolve.options import Options
    from evolve.prompt import TestPrompter
    from evolve.scoring import Scorer
    from sandbox.inprocess import InProcessSandbox

    class Forgetful(InProcessSandbox):
        async def run(self, program: Any, inputs: Any) -> Any:
            self.programs.clear()
            started = time.process_time()
            found = await super().run(program, inputs)
            scoring.append(time.process_time() - started)
            return found

    scoring: list[float] = []
    problem = problems.load(_problem(folder))
    options = Options(candidates=marks[-1] + WINDOW)
    state = np.random.default_rng(1).bit_generator.state
    Database.create(folder / "run", problem, {"search": _asdict(options)}, 1, state).close()
    database = Database.open(folder / "run")
    points: list[tuple[int, float, float, float]] = []

    def observe(progress: Any) -> None:
        count = progress.totals.candidates
        if not points or count >= points[-1][0] + WINDOW // PARTS:
            points.append((count, time.process_time() - sum(scoring), time.monotonic(), _megabytes()))
            scoring[:] = [sum(scoring)]

    scorer = Scorer(TestGrader(problem, Forgetful()), problem.language, database.known)
    search = Search(problem, options, database, scorer, TestPrompter(problem), "instant", observe)
    await search.begin()
    async with OpenAIMutator(url, say=lambda _: None) as mutator:
        await search.run(mutator)
    database.close()
    found = {}
    for mark in marks:
        after = [point for point in points if mark <= point[0] <= mark + WINDOW + WINDOW // PARTS]
        pairs = list(itertools.pairwise(after))
        cpu = [1000 * (b[1] - a[1]) / (b[0] - a[0]) for a, b in pairs]
        rate = [(b[0] - a[0]) / (b[2] - a[2]) for a, b in pairs]
        found[str(mark)] = {"cpu_ms_per_candidate": _spread(cpu), "candidates_per_second": _spread(rate)}
    size = (folder / "run" / "run.sqlite").stat().st_size
    return {"stored": found, "file_bytes_per_program": round(size / points[-1][0]), "peak_mb": round(_megabytes(), 1)}


async def resumed(folder: Path) -> dict[str, Any]:
    """Open the run again; return how long that takes and how much memory."""
    started = time.monotonic()
    from evolve import problem as problems
    from evolve.database import Database
    from evolve.grading import TestGrader
    from evolve.loop import Search
    from evolve.options import Options
    from evolve.prompt import TestPrompter
    from evolve.scoring import Scorer
    from sandbox.inprocess import InProcessSandbox

    problem = problems.load(folder / "problem")
    database = Database.open(folder / "run")
    scorer = Scorer(TestGrader(problem, InProcessSandbox()), problem.language, database.known)
    options = Options.restored(database.run().options["search"])
    search = Search(problem, options, database, scorer, TestPrompter(problem), "instant")
    await search.begin()
    database.close()
    return {
        "programs": search.progress.totals.candidates,
        "resume_seconds": round(time.monotonic() - started, 2),
        "resume_peak_mb": round(_megabytes(), 1),
    }


def openevolve(folder: Path, url: str, stored: int) -> dict[str, Any]:
    """Run OpenEvolve to `stored` programs and a window more; return its rate there."""
    python = _environment("openevolve==0.4.0")
    for name, text in {"initial_program.py": PROGRAM, "evaluator.py": EVALUATOR}.items():
        (folder / name).write_text(text)
    window = WINDOW // 4
    (folder / "config.yaml").write_text(OPENEVOLVE.format(iterations=stored + window, url=url))
    command = [str(python.parent / "openevolve-run"), "initial_program.py", "evaluator.py", "-c", "config.yaml"]
    done = subprocess.run([*command, "-o", "out"], cwd=folder, capture_output=True, text=True, check=False, timeout=1500)
    stamps = re.findall(r"^(\S+ \S+) .*Iteration (\d+): Program", done.stderr + done.stdout, re.MULTILINE)
    times = [datetime.strptime(stamp, "%Y-%m-%d %H:%M:%S,%f").timestamp() for stamp, _ in stamps]
    if len(times) < stored + window - 10:
        raise RuntimeError(f"OpenEvolve made {len(times)} of {stored + window} programs: {done.stderr[-1500:]}")
    return {"stored": stored, "candidates_per_second": _rates(times[stored:])}


def shinka(folder: Path, url: str, stored: int) -> dict[str, Any]:
    """Run ShinkaEvolve to `stored` programs and a window more; return its rate there."""
    import sqlite3

    python = _environment("shinka-evolve==0.0.7")
    for name, text in {"initial.py": SHINKA_PROGRAM, "evaluate.py": SHINKA_EVALUATE, "run.py": SHINKA}.items():
        (folder / name).write_text(text)
    window = max(20, stored // 10)
    environment = os.environ | {"PATH": f"{python.parent}:{os.environ['PATH']}", "LOCAL_OPENAI_API_KEY": "none"}
    command = [str(python), "run.py", str(folder), url, str(stored + window)]
    done = subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, check=False, timeout=3000)
    bases = list(folder.rglob("*.sqlite"))
    rows = sqlite3.connect(bases[0]).execute("select timestamp from programs order by timestamp").fetchall() if bases else []
    if len(rows) < stored:
        raise RuntimeError(
            f"ShinkaEvolve made {len(rows)} of {stored + window} programs: {(done.stdout + done.stderr)[-1500:]}"
        )
    return {"stored": stored, "candidates_per_second": _rates([float(stamp) for (stamp,) in rows[stored - 1 :]])}


def _rates(times: list[float]) -> dict[str, float]:
    size = max(2, len(times) // PARTS)
    parts = [times[start : start + size + 1] for start in range(0, len(times) - size, size)]
    return _spread([(len(part) - 1) / max(1e-9, part[-1] - part[0]) for part in parts])


def _spread(values: list[float]) -> dict[str, float]:
    return {
        "median": round(statistics.median(values), 3),
        "least": round(min(values), 3),
        "most": round(max(values), 3),
        "parts": len(values),
    }


def _problem(folder: Path) -> Path:
    place = folder / "problem"
    place.mkdir()
    tests = [{"id": str(x), "args": [x], "expected": x * x % 101} for x in range(4)]
    (place / "problem.yaml").write_text("name: trivial\nstatement: Square modulo 101.\nentry: f\n")
    (place / "initial_program.py").write_text(PROGRAM)
    (place / "tests.jsonl").write_text("\n".join(map(json.dumps, tests)))
    return place


def _environment(requirement: str) -> Path:
    """Return the Python of an environment with a package, made at the first need."""
    folder = cache_folder() / "benchmarks" / re.sub(r"\W+", "-", requirement)
    python = folder / "bin" / "python"
    if not (folder / "ready").is_file():
        venv.create(folder, with_pip=True)
        subprocess.run([python, "-m", "pip", "install", "--quiet", requirement], check=True, capture_output=True)
        (folder / "ready").touch()
    return python


def _asdict(value: Any) -> dict[str, Any]:
    from dataclasses import asdict

    return asdict(value)


def _megabytes() -> float:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


def _child(*arguments: str) -> dict[str, Any]:
    """Run a part in a process of its own, so that memory and CPU are its own."""
    command = [sys.executable, "-m", "benchmarks.controller", *arguments]
    done = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True)
    found: dict[str, Any] = json.loads(done.stdout)
    return found


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--json", action="store_true", help="print JSON alone")
    parser.add_argument("--quick", action="store_true", help="1,000 stored programs, ours alone")
    parser.add_argument("--without", nargs="*", default=[], choices=["openevolve", "shinka"], help="leave a system out")
    parser.add_argument("--part", nargs="+", help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.part:
        name, folder, *rest = given.part
        if name == "ours":
            found: Any = asyncio.run(ours(Path(folder), rest[0], [int(mark) for mark in rest[1:]]))
        else:
            found = asyncio.run(resumed(Path(folder)))
        print(json.dumps(found))
        return
    marks = [1000] if given.quick else [1000, 10_000, 100_000]
    result: dict[str, Any] = {"cores": os.cpu_count()}
    with instant_server() as url, tempfile.TemporaryDirectory(prefix="vector-evolve-controller-") as name:
        for system in ("ours", "openevolve", "shinka"):
            (Path(name) / system).mkdir()
        result["ours"] = _child("--part", "ours", f"{name}/ours", url, *map(str, marks))
        result["ours"] |= _child("--part", "resumed", f"{name}/ours")
        for system, run in (("openevolve", openevolve), ("shinka", shinka)):
            if not given.quick and system not in given.without:
                result[system] = run(Path(name) / system, url, SHINKA_STORED if system == "shinka" else 1000)
    fastest = result["ours"]["stored"]["1000"]["candidates_per_second"]["median"]
    for system in ("openevolve", "shinka"):
        if system in result:
            result[f"times_{system}"] = round(fastest / result[system]["candidates_per_second"]["median"], 1)
    if not given.json:
        print("candidates per second and CPU milliseconds per candidate of the controller; median, least and most of parts")
    print(json.dumps(result, indent=1))


if __name__ == "__main__":
    main()
