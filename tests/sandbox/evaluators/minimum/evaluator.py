"""Does run_search() find the minimum of a bumpy function? Loads the program as a module, calls it in threads with a time limit."""

import concurrent.futures
import importlib.util
import time

import numpy as np
from helper import BEST, bumpy
from openevolve.evaluation_result import EvaluationResult


def with_limit(function, *args, seconds=5):
    with concurrent.futures.ThreadPoolExecutor(max_workers=1) as threads:
        return threads.submit(function, *args).result(timeout=seconds)


def load(program_path):
    spec = importlib.util.spec_from_file_location("program", program_path)
    program = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(program)
    return program


def evaluate(program_path):
    try:
        program = load(program_path)
        if not hasattr(program, "run_search"):
            return EvaluationResult(metrics={"combined_score": 0.0}, artifacts={"error": "no run_search"})
        values, distances, started = [], [], time.time()
        for trial in range(4):
            x, y, value = with_limit(program.run_search, trial)
            value = float(value)
            if not np.isfinite([x, y, value]).all() or abs(value - bumpy(x, y)) > 1e-6:
                continue
            values.append(value)
            distances.append(float(np.linalg.norm(np.array([x, y]) - BEST)))
        if not values:
            return EvaluationResult(metrics={"combined_score": 0.0}, artifacts={"error": "no trial was right"})
        distance = 1.0 / (1.0 + float(np.mean(distances)))
        metrics = {"distance_score": distance, "reliability": len(values) / 4, "combined_score": distance * len(values) / 4}
        return EvaluationResult(metrics=metrics, artifacts={"seconds": f"{time.time() - started:.2f}"})
    except Exception as error:
        return EvaluationResult(metrics={"combined_score": 0.0, "error": str(error)}, artifacts={"failure": repr(error)})


def evaluate_stage1(program_path):
    program = load(program_path)
    x, y, value = with_limit(program.run_search, 0)
    return {"runs": 1.0, "combined_score": float(np.isfinite(value))}


def evaluate_stage2(program_path):
    return evaluate(program_path)
