"""Judge an online bin packing heuristic on five families of instances, each an objective of its own.

The heuristic is asked item by item, so it can't see what comes. It runs in a process of its own, and gives back scores.
"""

import json
import os
import random
import subprocess
import sys

from openevolve.evaluation_result import EvaluationResult

CAPACITY = 100
ITEMS = 60
INSTANCES = 3
SECONDS = 60

RUN = """
import importlib, json, os, sys
folder, name = os.path.split(sys.argv[1])
sys.path.insert(0, folder)
program = importlib.import_module(os.path.splitext(name)[0])
for line in sys.stdin:
    item, rests = json.loads(line)
    scores = [float(score) for score in program.priority(item, rests)]
    sys.__stdout__.write(json.dumps(scores) + "\\n")
    sys.__stdout__.flush()
"""

FAMILIES = {
    "uniform": lambda rng: rng.randint(1, 100),
    "small": lambda rng: rng.randint(5, 35),
    "halves": lambda rng: rng.choice([rng.randint(28, 36), rng.randint(60, 70)]),
    "thirds": lambda rng: rng.choice([rng.randint(30, 34), rng.randint(33, 37), rng.randint(45, 55)]),
    "weibull": lambda rng: min(100, max(1, round(rng.weibullvariate(45, 3)))),
}


def instances(name):
    """Return the item lists of a family, always the same."""
    rng = random.Random(f"bin packing {name}")
    return [[FAMILIES[name](rng) for _ in range(ITEMS)] for _ in range(INSTANCES)]


def pack(items, priority):
    """Return how many bins a heuristic needs."""
    rests = []
    for item in items:
        fits = [index for index, rest in enumerate(rests) if rest >= item]
        scores = priority(item, [*(rests[index] for index in fits), CAPACITY])
        if len(scores) != len(fits) + 1:
            raise ValueError(f"{len(scores)} scores for {len(fits) + 1} bins")
        if any(score != score for score in scores):
            raise ValueError("a score is NaN")
        best = max(range(len(scores)), key=lambda place: (scores[place], -place))
        if best < len(fits):
            rests[fits[best]] -= item
        else:
            rests.append(CAPACITY - item)
    return len(rests)


def first_fit(_, rests):
    return [-index for index in range(len(rests))]


class Heuristic:
    """The program under test, in a process of its own."""

    def __init__(self, path):
        self.process = subprocess.Popen(
            [sys.executable, "-c", RUN, os.path.abspath(path)],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
        )  # fmt: skip

    def __call__(self, item, rests):
        try:
            self.process.stdin.write(json.dumps([item, rests]) + "\n")
            self.process.stdin.flush()
            line = self.process.stdout.readline()
        except OSError:
            line = ""
        if not line:
            error = self.process.stderr.read().strip().splitlines() or ["the program ended"]
            raise RuntimeError(error[-1])
        return json.loads(line)

    def close(self):
        self.process.kill()
        self.process.communicate()


def evaluate(program_path):
    heuristic = Heuristic(program_path)
    metrics, lines = {}, []
    try:
        for name in FAMILIES:
            used = reference = least = 0
            for items in instances(name):
                used += pack(items, heuristic)
                reference += pack(items, first_fit)
                least += -(-sum(items) // CAPACITY)
            metrics[name] = least / used
            lines.append(f"{name}: {used} bins, first fit {reference}, at least {least}")
    finally:
        heuristic.close()
    metrics["combined_score"] = sum(metrics.values()) / len(metrics)
    return EvaluationResult(metrics=metrics, artifacts={"bins per family": "\n".join(lines)})
