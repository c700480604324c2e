import importlib.util
import traceback

from openevolve.evaluation_result import EvaluationResult


def load(program_path):
    spec = importlib.util.spec_from_file_location("program", program_path)
    program = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(program)
    return program


def evaluate(program_path):
    try:
        program = load(program_path)
        wrong = [n for n in range(6) if program.solve(n) != n * n]
    except Exception:
        return EvaluationResult(
            metrics={"combined_score": 0.0, "error": "it raised"}, artifacts={"traceback": traceback.format_exc()}
        )
    return EvaluationResult(
        metrics={"combined_score": 1 - len(wrong) / 6},
        artifacts={"wrong inputs": str(wrong), "log": b"raw \xff bytes", "long": "x" * 100000},
    )
