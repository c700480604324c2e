import importlib.util


def load(program_path):
    spec = importlib.util.spec_from_file_location("program", program_path)
    program = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(program)
    return program


def evaluate_stage1(program_path):
    raise RuntimeError("stages are switched off")


def evaluate(program_path):
    program = load(program_path)
    return {"combined_score": sum(program.solve(n) == n * n for n in range(4)) / 4}
