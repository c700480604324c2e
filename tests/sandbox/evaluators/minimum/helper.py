import json
import math
from pathlib import Path

BEST = json.loads((Path(__file__).parent / "data.json").read_text())["best"]


def bumpy(x, y):
    return math.sin(x) * math.cos(y) + (x - BEST[0]) ** 2 + (y - BEST[1]) ** 2
