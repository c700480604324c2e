import importlib.util

import yaml


def load(program_path):
    spec = importlib.util.spec_from_file_location("program", program_path)
    program = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(program)
    return program


def evaluate(program_path):
    program = load(program_path)
    wanted = yaml.safe_load("[0, 1, 4, 9]")
    return {"combined_score": sum(program.solve(n) == value for n, value in enumerate(wanted)) / 4}
