"""Scoring speed of the default sandbox beside what a user would do instead, interleaved in one run.

    python benchmarks/sandbox.py [--rounds 5] [--tests 1 10 100] [--json]

Every way runs the same candidate (`f(x)` returns `x + 1`) on k tests, each test in a process of its own, forked from an
interpreter. "Bare fork" is such an interpreter of the image and no bounds at all; the warm one has compiled something before
it forks, as the pools have, which saves every child the making of the compiler's types: the floor.
CPU counts everything the machine did meanwhile, the Docker engine included. Figures are medians over the rounds, with the
smallest and the largest.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import statistics
import subprocess
import sys
import time
from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path
from typing import Any

import docker

# This folder holds a sandbox.py, which must not be taken for the package `sandbox`.
sys.path[:] = [place for place in sys.path if Path(place or ".").resolve() != Path(__file__).resolve().parent]

from evolve.sandboxes import engine
from sandbox.base import Limits, Program
from sandbox.docker import DockerSandbox
from sandbox.image.build import ensure_image

SOURCE = "def f(x):\n    return x + 1\n"
FORKING = """
import os, json, sys
def candidate(source, tests):
    for x in range(tests):
        reader, writer = os.pipe()
        if os.fork() == 0:
            scope = {}
            exec(compile(source, "program.py", "exec"), scope)
            os.write(writer, json.dumps(scope["f"](x)).encode())
            os._exit(0)
        os.close(writer)
        assert json.loads(os.read(reader, 100)) == x + 1
        os.close(reader)
        os.wait()
if sys.argv[1:]:
    candidate(sys.argv[1], int(sys.argv[2]))
else:  # one candidate a line
    for line in sys.stdin:
        candidate(*json.loads(line))
        print("done", flush=True)
"""
HARDENED: dict[str, Any] = {
    "network_mode": "none",
    "read_only": True,
    "cap_drop": ["ALL"],
    "security_opt": ["no-new-privileges"],
    "pids_limit": 64,
    "mem_limit": "384m",
    "user": "65534:65534",
    "remove": True,
}
WARM = 'compile("", "program.py", "exec")\n'
CANDIDATES = {"docker run per test": 2, "pool, reuse": 80, "bare fork, no sandbox": 80, "bare fork, warm": 80}
"""Per measurement; slow ways get few, fast ones enough to be measured."""

OTHERS = 16
"""Candidates of the other ways: the default pool begins with two containers ready, which is to weigh little."""

SETTLE_SECONDS = 1.0
"""Between two measurements, so that what the default pool does in the background does not count against the next one."""

TESTS = (1, 10, 100)
Way = Callable[[int], Awaitable[None]]


def cpu_seconds() -> float:
    """Return the CPU seconds that all processes of this machine have used."""
    fields = Path("/proc/stat").read_text().split("\n", 1)[0].split()[1:]
    user, nice, system, _, _, irq, softirq = map(int, fields[:7])
    return (user + nice + system + irq + softirq) / 100


async def measure(way: Way, tests: int, candidates: int, concurrency: int) -> dict[str, float]:
    """Run `candidates` candidates, `concurrency` at a time."""
    slots = asyncio.Semaphore(concurrency)

    async def one() -> None:
        async with slots:
            await way(tests)

    cpu, started = cpu_seconds(), time.monotonic()
    await asyncio.gather(*(one() for _ in range(candidates)))
    seconds = time.monotonic() - started
    return {
        "candidates_per_second": candidates / seconds,
        "tests_per_second": candidates * tests / seconds,
        "cpu_ms_per_candidate": 1000 * (cpu_seconds() - cpu) / candidates,
    }


async def latency(way: Way, tests: int, arrivals: int, pace: float) -> list[float]:
    """Return seconds from arrival to result of candidates that arrive one by one, beside a busy process."""
    busy = subprocess.Popen([sys.executable, "-c", "while True: pass"])
    try:
        found = []
        for _ in range(arrivals):
            started = time.monotonic()
            await way(tests)
            found.append(time.monotonic() - started)
            await asyncio.sleep(pace)
        return found
    finally:
        busy.kill()
        busy.wait()


class BareFork:
    """Two interpreters that fork a child per test and bound nothing: the image's, as the pools have.

    Args:
        url: of the engine.
        image: of the sandbox.
        before: what they run before they fork.
    """

    def __init__(self, url: str, image: str, before: str = ""):
        self.command = ["docker", "--host", url, "run", "--interactive", "--rm", "--security-opt", "seccomp=unconfined"]
        self.command += [image, "python3", "-I", "-c", before + FORKING]

    async def __aenter__(self) -> BareFork:
        self.idle: asyncio.Queue[asyncio.subprocess.Process] = asyncio.Queue()
        pipe = asyncio.subprocess.PIPE
        for _ in range(2):
            self.idle.put_nowait(await asyncio.create_subprocess_exec(*self.command, stdin=pipe, stdout=pipe))
        return self

    async def __aexit__(self, *_: object) -> None:
        while not self.idle.empty():
            process = self.idle.get_nowait()
            assert process.stdin is not None
            process.stdin.close()
            await process.wait()

    async def run(self, tests: int) -> None:
        """Run one candidate."""
        process = await self.idle.get()
        assert process.stdin is not None and process.stdout is not None
        process.stdin.write(json.dumps([SOURCE, tests]).encode() + b"\n")
        assert await process.stdout.readline() == b"done\n"
        self.idle.put_nowait(process)


def ways(
    pool: DockerSandbox, reuse: DockerSandbox, bare: BareFork, warm: BareFork, client: docker.DockerClient, image: str
) -> dict[str, Way]:
    """Return what is compared, by name."""

    def through(sandbox: DockerSandbox) -> Way:
        async def run(tests: int) -> None:
            outcomes = await sandbox.run(Program(SOURCE, "f"), [b"[%d]" % x for x in range(tests)])
            assert [outcome.answer for outcome in outcomes] == [b"%d" % (x + 1) for x in range(tests)]

        return run

    def contained(tests: int) -> None:
        client.containers.run(image, ["python3", "-I", "-c", FORKING, SOURCE, str(tests)], **HARDENED)

    async def run_per_candidate(tests: int) -> None:
        await asyncio.to_thread(contained, tests)

    async def run_per_test(tests: int) -> None:
        for _ in range(tests):
            await asyncio.to_thread(contained, 1)

    async def subprocess_per_candidate(tests: int) -> None:
        process = await asyncio.create_subprocess_exec(sys.executable, "-I", "-c", FORKING, SOURCE, str(tests))
        assert await process.wait() == 0

    return {
        "pool (default)": through(pool),
        "pool, reuse": through(reuse),
        "docker run per candidate": run_per_candidate,
        "docker run per test": run_per_test,
        "subprocess per candidate, no sandbox": subprocess_per_candidate,
        "bare fork, no sandbox": bare.run,
        "bare fork, warm": warm.run,
    }


def spread(values: list[float]) -> dict[str, float]:
    """Return the median with the smallest and the largest value."""
    return {"median": statistics.median(values), "min": min(values), "max": max(values)}


async def main(rounds: int, numbers: Sequence[int]) -> dict[str, Any]:
    """Measure all ways, interleaved, with each number of tests."""
    url = engine().require()
    low = docker.APIClient(base_url=url, version="auto")
    image = ensure_image(low)
    low.close()
    client = docker.DockerClient(base_url=url, version="auto")
    report: dict[str, Any] = {"rounds": rounds, "cores": len(Path("/proc/cpuinfo").read_text().split("processor\t")) - 1}
    throughput: dict[str, dict[str, list[float]]] = {}
    async with (
        DockerSandbox(url, image, Limits(), size=2) as pool,
        DockerSandbox(url, image, Limits(), size=2, reuse=True) as reuse,
        BareFork(url, image) as bare,
        BareFork(url, image, WARM) as warm,
    ):
        compared = ways(pool, reuse, bare, warm, client, image)
        for round_number in range(rounds):
            for tests in numbers:
                for concurrency in (1, 2):
                    for name, way in compared.items():
                        if name == "docker run per test" and tests == 100:
                            continue  # minutes per candidate
                        few = CANDIDATES.get(name, OTHERS)
                        found = await measure(way, tests, few, concurrency)
                        await asyncio.sleep(SETTLE_SECONDS)
                        key = f"{name}, k={tests}, concurrency={concurrency}"
                        for figure, value in found.items():
                            throughput.setdefault(key, {}).setdefault(figure, []).append(value)
            print(f"round {round_number + 1} of {rounds}", file=sys.stderr)
        report["latency_seconds"] = {
            name: spread(await latency(compared[name], 10, 15, 0.5))
            for name in ("pool (default)", "pool, reuse", "docker run per candidate")
        }
    client.close()
    report["throughput"] = {
        key: {figure: spread(values) for figure, values in figures.items()} for key, figures in throughput.items()
    }

    def ratios(one: str, other: str) -> dict[str, float]:
        """Of tests/s, both measured in the same round."""
        rates = [throughput[f"{name}, k=10, concurrency=2"]["tests_per_second"] for name in (one, other)]
        return spread([first / second for first, second in zip(*rates, strict=True)])

    report["ratios_at_k_10_concurrency_2"] = {
        f"{one} / {other}": ratios(one, other)
        for one, other in [
            ("pool (default)", "docker run per test"),
            ("pool (default)", "docker run per candidate"),
            ("pool (default)", "bare fork, no sandbox"),
            ("pool, reuse", "bare fork, no sandbox"),
            ("pool, reuse", "bare fork, warm"),
        ]
    }
    return report


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--tests", type=int, nargs="+", default=TESTS, help="numbers of tests; 10 gives the ratios")
    parser.add_argument("--json", action="store_true")
    arguments = parser.parse_args()
    found = asyncio.run(main(arguments.rounds, sorted({10, *arguments.tests})))
    if arguments.json:
        print(json.dumps(found, indent=1))
    else:
        for key, figures in found["throughput"].items():
            cells = ", ".join(f"{name} {value['median']:.1f}" for name, value in figures.items())
            print(f"{key}: {cells}")
        for key, figures in found["ratios_at_k_10_concurrency_2"].items():
            print(f"{key}, tests/s at k=10, concurrency 2: " + ", ".join(f"{n} {v:.2f}" for n, v in figures.items()))
        print("latency of one candidate with 10 tests, beside a busy process (s):", found["latency_seconds"])
