import importlib.util


def load(program_path):
    spec = importlib.util.spec_from_file_location("program", program_path)
    program = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(program)
    return program


def evaluate(program_path):
    program = load(program_path)
    errors = [abs(program.solve(n) - n * n) for n in range(10)]
    return {"neg_total": -float(sum(errors)) - 1.0, "neg_worst": -float(max(errors)) - 1.0}
