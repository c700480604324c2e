"""One pool, many candidates, one in ten hostile: does anything leak, and does any innocent verdict change?

    python benchmarks/soak.py [--candidates 2000] [--seed 0] [--sandbox docker|bwrap] [--json]

Innocent candidates are right, wrong or slow in a known way, so that each has verdicts which do not depend on its neighbours.
The hostile ones are the cases of the tests. Exits with 1 when a verdict differs or something is left behind.
"""

from __future__ import annotations

import argparse
import asyncio
import gc
import json
import os
import random
import resource
import runpy
import sys
import time
from pathlib import Path
from typing import Any

# This folder holds a sandbox.py, which must not be taken for the package `sandbox`.
sys.path[:] = [place for place in sys.path if Path(place or ".").resolve() != Path(__file__).resolve().parent]

from evolve.sandboxes import sandbox_with
from sandbox.base import Limits, Program, Sandbox, Verdict

CASES = Path(__file__).parent.parent / "tests" / "sandbox" / "hostile" / "cases.py"
LIMITS = Limits(cpu_seconds=1, wall_seconds=3, memory_mb=128, output_kb=256)
INPUTS = [b"[1]", b"[2]", b"[3]"]
INNOCENT: list[tuple[str, list[bytes | Verdict]]] = [
    ("def f(x):\n    return x + 1\n", [b"2", b"3", b"4"]),
    ("def f(x):\n    return sorted(str(x) * 3)\n", [b'["1", "1", "1"]', b'["2", "2", "2"]', b'["3", "3", "3"]']),
    ("def f(x):\n    return sum(range(200_000)) * 0 + x\n", [b"1", b"2", b"3"]),
    ("def f(x):\n    return 6 // (x - 2)\n", [b"-6", Verdict.EXCEPTION, b"6"]),
]


def left_behind() -> dict[str, int]:
    """Return what this process holds: descriptors, children, memory."""
    gc.collect()
    children = Path(f"/proc/{os.getpid()}/task/{os.getpid()}/children").read_text().split()
    status = Path("/proc/self/status").read_text()
    memory = int(status.split("VmRSS:")[1].split()[0])
    return {"descriptors": len(list(Path("/proc/self/fd").iterdir())), "children": len(children), "memory_kb": memory}


async def soak(sandbox: Sandbox, candidates: int, seed: int) -> dict[str, Any]:
    """Run the mix; return what differed and what it took."""
    rng = random.Random(seed)
    hostile = [case for case in runpy.run_path(str(CASES))["CASES"] if case[0] != "good"]
    wrong: list[str] = []
    done = {"innocent": 0, "hostile": 0}

    async def one(number: int) -> None:
        if rng.random() < 0.1:
            _, source, entry, inputs, _ = rng.choice(hostile)
            await sandbox.run(Program(source, entry), inputs)
            done["hostile"] += 1
            return
        source, expected = rng.choice(INNOCENT)
        outcomes = await sandbox.run(Program(source, "f"), INPUTS)
        came = [outcome.answer if outcome.verdict is None else outcome.verdict for outcome in outcomes]
        if came != expected:
            wrong.append(f"candidate {number}: expected {expected}, got {came}: {[o.detail for o in outcomes]}")
        done["innocent"] += 1

    started = time.monotonic()
    samples = []
    for first in range(0, candidates, 100):
        await asyncio.gather(*(one(number) for number in range(first, min(first + 100, candidates))))
        samples.append(left_behind())
        print(f"{min(first + 100, candidates)} of {candidates}: {samples[-1]}", file=sys.stderr)
    seconds = time.monotonic() - started
    return done | {"wrong": wrong, "seconds": round(seconds, 1), "after_first_100": samples[0], "at_end": samples[-1]}


async def main(candidates: int, seed: int, kind: Any) -> dict[str, Any]:
    """Soak a pool and look at what is left when it is gone."""
    before = left_behind()
    sandbox = await asyncio.to_thread(sandbox_with, LIMITS, kind, 2, "soak", lambda text: print(text, file=sys.stderr))
    async with sandbox:
        found = await soak(sandbox, candidates, seed)
    after = left_behind()
    found |= {"before": before, "after": after, "sandbox": sandbox.level}
    found["peak_memory_kb"] = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    found["leaked_children"] = after["children"] - before["children"]
    return found


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--candidates", type=int, default=2000)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--sandbox", choices=["docker", "docker-reuse", "bwrap"], default="docker")
    parser.add_argument("--json", action="store_true")
    arguments = parser.parse_args()
    report = asyncio.run(main(arguments.candidates, arguments.seed, arguments.sandbox))
    if arguments.json:
        print(json.dumps(report, indent=1, default=str))
    else:
        for key, value in report.items():
            print(f"{key}: {value}")
    sys.exit(1 if report["wrong"] or report["leaked_children"] else 0)
