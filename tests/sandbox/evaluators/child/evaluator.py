"""Runs the program in a Python process of its own, which pickles what it returns: a common protection against endless loops."""

import os
import pickle
import subprocess
import sys
import tempfile

RUN = """
import os, pickle, sys
sys.path.insert(0, os.path.dirname({program!r}))
program = __import__(os.path.basename({program!r})[:-3])
with open({result!r}, "wb") as file:
    pickle.dump({{"order": program.arrange({jobs!r})}}, file)
"""
JOBS = [[3, 1], [1, 4], [2, 2], [5, 1]]


def cost(order):
    if sorted(map(list, order)) != sorted(JOBS):
        raise ValueError("jobs were lost or invented")
    clock = total = 0
    for length, weight in order:
        clock += length
        total += weight * clock
    return total


def evaluate(program_path):
    result = tempfile.mktemp(suffix=".pickle")
    with tempfile.NamedTemporaryFile("w", suffix=".py", delete=False) as script:
        script.write(RUN.format(program=program_path, result=result, jobs=JOBS))
    try:
        done = subprocess.run([sys.executable, script.name], capture_output=True, text=True, timeout=10)
        if not os.path.exists(result):
            return {"combined_score": 0.0, "error": done.stderr[-300:]}
        with open(result, "rb") as file:
            order = pickle.load(file)["order"]
        return {"cost": -float(cost(order)), "combined_score": 10.0 / cost(order)}
    except Exception as error:
        return {"combined_score": 0.0, "error": repr(error)}
    finally:
        os.unlink(script.name)
