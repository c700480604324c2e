import importlib.util


def load(program_path):
    spec = importlib.util.spec_from_file_location("program", program_path)
    program = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(program)
    return program


def score(program_path, numbers):
    program = load(program_path)
    return sum(program.solve(n) == n * n for n in numbers) / len(numbers)


def evaluate_stage1(program_path):
    return {"first": score(program_path, [0, 2]), "reached": "stage 1"}


def evaluate_stage2(program_path):
    return {"second": score(program_path, range(8)), "reached": "stage 2"}


def evaluate_stage3(program_path):
    value = score(program_path, range(50))
    return {"third": value, "reached": "stage 3", "combined_score": value}


def evaluate(program_path):
    raise RuntimeError("the stages are there")
