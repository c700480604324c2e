import importlib.util


def load(program_path):
    spec = importlib.util.spec_from_file_location("program", program_path)
    program = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(program)
    return program


def evaluate(program_path):
    program = load(program_path)
    values = [program.solve(n) for n in range(10)]
    right = sum(value == n * n for n, value in enumerate(values)) / 10
    return {"right": right, "evenness": sum(value % 2 == 0 for value in values) / 10, "label": "fine", "valid": True}
