import os
import sys


def evaluate(program_path):
    folder, name = os.path.split(os.path.abspath(program_path))
    sys.path.insert(0, folder)
    program = __import__(os.path.splitext(name)[0])
    return {"combined_score": sum(program.solve(n) == n * n for n in range(10)) / 10}
