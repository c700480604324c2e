"""Judge a packing of 26 circles in the unit square by the sum of their radii.

The program runs in a process of its own, which gives back plain numbers; what is judged is those numbers.
"""

import json
import math
import os
import subprocess
import sys

from openevolve.evaluation_result import EvaluationResult

COUNT = 26
TOLERANCE = 1e-9
BEST_KNOWN = 2.635  # AlphaEvolve white paper (2025), appendix B.12
SECONDS = 60

RUN = """
import importlib, json, os, sys
folder, name = os.path.split(sys.argv[1])
sys.path.insert(0, folder)
program = importlib.import_module(os.path.splitext(name)[0])
circles = [[float(value) for value in circle] for circle in program.pack()]
print("\\n" + json.dumps(circles))
"""


def evaluate(program_path):
    try:
        done = subprocess.run(
            [sys.executable, "-c", RUN, os.path.abspath(program_path)],
            capture_output=True, text=True, timeout=SECONDS, check=False,
        )  # fmt: skip
    except subprocess.TimeoutExpired:
        return failed(f"pack() took longer than {SECONDS} s")
    if done.returncode != 0:
        return failed((done.stderr.strip().splitlines() or ["the program ended"])[-1])
    try:
        circles = json.loads(done.stdout.strip().splitlines()[-1])
    except (ValueError, IndexError):
        return failed("pack() gave no circles")
    reason = wrong(circles)
    if reason:
        return failed(reason)
    total = math.fsum(radius for _, _, radius in circles)
    return EvaluationResult(
        metrics={"valid": 1.0, "sum_of_radii": total, "combined_score": total / BEST_KNOWN},
        artifacts={"result": f"valid, the radii sum up to {total:.6f}; the best known sum is {BEST_KNOWN}"},
    )


def failed(reason):
    return EvaluationResult(metrics={"valid": 0.0, "sum_of_radii": 0.0, "combined_score": 0.0}, artifacts={"result": reason})


def wrong(circles):
    """Return what is wrong with a packing, or an empty text."""
    if not isinstance(circles, list) or len(circles) != COUNT:
        return f"{COUNT} circles are wanted, {len(circles) if isinstance(circles, list) else 'no list'} came"
    for index, circle in enumerate(circles):
        if not isinstance(circle, list) or len(circle) != 3:
            return f"circle {index} is not (x, y, radius)"
        if not all(isinstance(value, float) and math.isfinite(value) for value in circle):
            return f"circle {index} holds something else than finite numbers"
        x, y, radius = circle
        if radius < 0:
            return f"circle {index} has the radius {radius}"
        beyond = radius - min(x, y, 1 - x, 1 - y)
        if beyond > TOLERANCE:
            where = f"circle {index} at ({x:.6f}, {y:.6f}) with radius {radius:.6f}"
            return f"{where} leaves the square by {beyond:.3g} ({TOLERANCE:g} is tolerated)"
    for index, (x, y, radius) in enumerate(circles):
        for other in range(index):
            far = math.hypot(x - circles[other][0], y - circles[other][1])
            overlap = radius + circles[other][2] - far
            if overlap > TOLERANCE:
                return f"circles {other} and {index} overlap by {overlap:.3g} ({TOLERANCE:g} is tolerated)"
    return ""
