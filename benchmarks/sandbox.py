"""Scoring speed of the default sandbox beside what a user would do instead, interleaved in one run.

    python benchmarks/sandbox.py [--rounds 5] [--json]

Every way runs the same candidate (`f(x)` returns `x + 1`) on k tests, each test in a process of its own except where one
`docker run` takes all of them. CPU counts everything the machine did meanwhile, the Docker engine included. Figures are
medians over the rounds, with the smallest and the largest.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import statistics
import subprocess
import sys
import time
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import docker

# This folder holds a sandbox.py, which must not be taken for the package `sandbox`.
sys.path[:] = [place for place in sys.path if Path(place or ".").resolve() != Path(__file__).resolve().parent]

from evolve.compose import engine
from sandbox.base import Limits, Program
from sandbox.docker import DockerSandbox
from sandbox.image.build import ensure_image

SOURCE = "def f(x):\n    return x + 1\n"
FORKING = """
import os, json, sys
scope = {}
exec(sys.argv[1], scope)
for x in range(int(sys.argv[2])):
    reader, writer = os.pipe()
    if os.fork() == 0:
        os.write(writer, json.dumps(scope["f"](x)).encode())
        os._exit(0)
    os.close(writer)
    assert json.loads(os.read(reader, 100)) == x + 1
    os.close(reader)
    os.wait()
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


def ways(sandbox: DockerSandbox, client: docker.DockerClient, image: str) -> dict[str, Way]:
    """Return what is compared, by name."""

    async def pool(tests: int) -> None:
        outcomes = await sandbox.run(Program(SOURCE, "f"), [b"[%d]" % x for x in range(tests)])
        assert [outcome.answer for outcome in outcomes] == [b"%d" % (x + 1) for x in range(tests)]

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
        "pool (default)": pool,
        "docker run per candidate": run_per_candidate,
        "docker run per test": run_per_test,
        "subprocess per candidate, no sandbox": subprocess_per_candidate,
    }


def spread(values: list[float]) -> dict[str, float]:
    """Return the median with the smallest and the largest value."""
    return {"median": statistics.median(values), "min": min(values), "max": max(values)}


async def main(rounds: int) -> dict[str, Any]:
    """Measure all ways, interleaved."""
    url = engine().require()
    low = docker.APIClient(base_url=url, version="auto")
    image = ensure_image(low)
    low.close()
    client = docker.DockerClient(base_url=url, version="auto")
    report: dict[str, Any] = {"rounds": rounds, "cores": len(Path("/proc/cpuinfo").read_text().split("processor\t")) - 1}
    throughput: dict[str, dict[str, list[float]]] = {}
    async with DockerSandbox(url, image, Limits(), size=2) as sandbox:
        compared = ways(sandbox, client, image)
        for round_number in range(rounds):
            for tests in (1, 10, 100):
                for concurrency in (1, 2):
                    for name, way in compared.items():
                        if name == "docker run per test" and tests == 100:
                            continue  # minutes per candidate
                        few = 2 if name == "docker run per test" else 6
                        found = await measure(way, tests, few, concurrency)
                        key = f"{name}, k={tests}, concurrency={concurrency}"
                        for figure, value in found.items():
                            throughput.setdefault(key, {}).setdefault(figure, []).append(value)
            print(f"round {round_number + 1} of {rounds}", file=sys.stderr)
        report["latency_seconds"] = {
            name: spread(await latency(compared[name], 10, 15, 0.5))
            for name in ("pool (default)", "docker run per candidate")
        }
    client.close()
    report["throughput"] = {
        key: {figure: spread(values) for figure, values in figures.items()} for key, figures in throughput.items()
    }

    def ratio(other: str) -> float:
        rates = [
            report["throughput"][f"{name}, k=10, concurrency=2"]["tests_per_second"]["median"]
            for name in ("pool (default)", other)
        ]
        return float(rates[0] / rates[1])

    report["ratios_at_k_10_concurrency_2"] = {other: ratio(other) for other in compared if other != "pool (default)"}
    return report


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--json", action="store_true")
    arguments = parser.parse_args()
    found = asyncio.run(main(arguments.rounds))
    if arguments.json:
        print(json.dumps(found, indent=1))
    else:
        for key, figures in found["throughput"].items():
            cells = ", ".join(f"{name} {value['median']:.1f}" for name, value in figures.items())
            print(f"{key}: {cells}")
        print("ratios of tests/s at k=10, concurrency 2:", found["ratios_at_k_10_concurrency_2"])
        print("latency of one candidate with 10 tests, beside a busy process (s):", found["latency_seconds"])
