import importlib.util
import time


def load(program_path):
    spec = importlib.util.spec_from_file_location("program", program_path)
    program = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(program)
    return program


def evaluate(program_path):
    program = load(program_path)
    if program.solve(3) == 10:
        time.sleep(3600)
    return {"combined_score": sum(program.solve(n) == n * n for n in range(10)) / 10}
