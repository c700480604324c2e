"""Judge an online bin packing heuristic on five families of instances, each an objective of its own.

The heuristic gives a number for each pair of item and free space, in a process of its own; what is judged is these numbers.
"""

import json
import os
import random
import subprocess
import sys

from openevolve.evaluation_result import EvaluationResult

CAPACITY = 50
ITEMS = 120
INSTANCES = 4
SECONDS = 45

RUN = """
import importlib, json, os, sys
folder, name = os.path.split(sys.argv[1])
sys.path.insert(0, folder)
program = importlib.import_module(os.path.splitext(name)[0])
table = [[float(program.score(item, rest)) for rest in range(item, 51)] for item in range(1, 51)]
print("\\n" + json.dumps(table))
"""

FAMILIES = {
    "uniform": lambda rng: rng.randint(1, 50),
    "small": lambda rng: rng.randint(4, 20),
    "halves": lambda rng: rng.choice([rng.randint(14, 18), rng.randint(30, 35)]),
    "thirds": lambda rng: rng.choice([rng.randint(15, 17), rng.randint(16, 19), rng.randint(22, 27)]),
    "weibull": lambda rng: min(50, max(1, round(rng.weibullvariate(22, 3)))),
}


def instances(name):
    """Return the item lists of a family, always the same."""
    rng = random.Random(f"bin packing {name}")
    return [[FAMILIES[name](rng) for _ in range(ITEMS)] for _ in range(INSTANCES)]


def pack(items, table):
    """Return how many bins are needed."""
    rests = []
    for item in items:
        fits = [index for index, rest in enumerate(rests) if rest >= item]
        if fits:
            rests[max(fits, key=lambda index: (table[item - 1][rests[index] - item], -index))] -= item
        else:
            rests.append(CAPACITY - item)
    return len(rests)


def scores(program_path):
    """Return the table of scores of a program.

    Raises:
        ValueError: it has none.
    """
    try:
        done = subprocess.run(
            [sys.executable, "-c", RUN, os.path.abspath(program_path)],
            capture_output=True, text=True, timeout=SECONDS, check=False,
        )  # fmt: skip
    except subprocess.TimeoutExpired:
        raise ValueError(f"the scores took longer than {SECONDS} s") from None
    if done.returncode != 0:
        raise ValueError((done.stderr.strip().splitlines() or ["the program ended"])[-1])
    table = json.loads(done.stdout.strip().splitlines()[-1])
    sizes = [len(row) for row in table]
    if sizes != list(range(CAPACITY, 0, -1)) or not all(isinstance(x, float) and x == x for row in table for x in row):
        raise ValueError("a score is NaN or missing")
    return table


FIRST_FIT = [[0.0] * (CAPACITY - item) for item in range(CAPACITY)]


def evaluate(program_path):
    table = scores(program_path)
    metrics, lines = {}, []
    for name in FAMILIES:
        lists = instances(name)
        used = sum(pack(items, table) for items in lists)
        first = sum(pack(items, FIRST_FIT) for items in lists)
        least = sum(-(-sum(items) // CAPACITY) for items in lists)
        metrics[name] = least / used
        lines.append(f"{name}: {used} bins, first fit {first}, at least {least}")
    metrics["combined_score"] = sum(metrics.values()) / len(metrics)
    return EvaluationResult(metrics=metrics, artifacts={"bins per family": "\n".join(lines)})
