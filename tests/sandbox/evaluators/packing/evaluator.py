"""Five circles in the unit square: executes the program's text in a namespace and checks the arrays that it returns."""

import numpy as np

COUNT = 5


def valid(centers, radii):
    if centers.shape != (COUNT, 2) or radii.shape != (COUNT,):
        return False
    if not np.isfinite(centers).all() or not np.isfinite(radii).all() or (radii < 0).any():
        return False
    if (centers - radii[:, None] < -1e-9).any() or (centers + radii[:, None] > 1 + 1e-9).any():
        return False
    for i in range(COUNT):
        for j in range(i):
            if np.sqrt(np.sum((centers[i] - centers[j]) ** 2)) < radii[i] + radii[j] - 1e-9:
                return False
    return True


def evaluate(program_path):
    with open(program_path) as file:
        source = file.read()
    namespace = {"__name__": "packing_program"}
    exec(compile(source, program_path, "exec"), namespace)
    centers, radii, reported = namespace["run_packing"]()
    total = float(np.sum(radii))
    right = valid(np.asarray(centers), np.asarray(radii))
    return {
        "sum_radii": total if right else 0.0,
        "validity": float(right),
        "reported": float(reported),
        "seeds": float(namespace.get("SEEDS", 0)),
        "combined_score": total / 1.2 if right else 0.0,
    }
