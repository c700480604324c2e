import json
import os
import sys

sys.path.append(os.path.join(os.path.dirname(os.path.abspath(__file__)), "lib"))
from checking import load, share

with open(os.path.join(os.path.dirname(__file__), "data", "cases.json")) as file:
    CASES = json.load(file)


def evaluate(program_path):
    return {"combined_score": share(load(program_path), CASES)}
