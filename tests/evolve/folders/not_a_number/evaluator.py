import importlib.util


def load(program_path):
    spec = importlib.util.spec_from_file_location("program", program_path)
    program = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(program)
    return program


def evaluate(program_path):
    program = load(program_path)
    values = [program.solve(n) for n in range(10)]
    if values[3] == 10:
        return {"combined_score": float("nan")}
    if values[3] == 7:
        return {"combined_score": float("inf")}
    if values[3] == 8:
        return "no dict"
    return {"combined_score": sum(value == n * n for n, value in enumerate(values)) / 10}
