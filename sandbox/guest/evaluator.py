"""Calls an OpenEvolve evaluator: the module as OpenEvolve imports it, its stages, its metrics and artifacts.

The facts about OpenEvolve were read in its version 0.4.0.
"""

from __future__ import annotations

import asyncio
import importlib.util
import inspect
import json
import math
import numbers
import os
import sys
from typing import Any

from . import clock
from .child import NotPlain, report
from .notes import NOTES, watch

ARTIFACT_CHARACTERS = 20_000


def evaluate(job: dict[str, Any]) -> None:
    """Import the evaluator, let it judge the program, and report metrics, artifacts and notes."""
    os.environ.update(job["env"])
    if job["separated"]:
        clock.install()
    watch([job["folder"], os.path.dirname(job["program"])])
    module = load(os.path.join(job["folder"], job["evaluator"]), job["home"])
    report(b"L")
    found = stages(module, job["program"], job["thresholds"])
    report(b"A", json.dumps(found | {"notes": [unicode(one) for one in NOTES]}, allow_nan=False).encode())


def load(path: str, home: str) -> Any:
    """Return an evaluator as a module: its folder first on the path, then the `openevolve` that lies in `home`."""
    sys.path.insert(0, home)
    os.environ["PYTHONPATH"] = home
    sys.path.insert(0, os.path.dirname(path))
    os.chdir(os.path.dirname(path))
    spec = importlib.util.spec_from_file_location("evaluation_module", path)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules["evaluation_module"] = module
    spec.loader.exec_module(module)
    return module


def run(path: str, program: str, home: str, thresholds: list[float] | None) -> dict[str, Any]:
    """Return what an evaluator gives a program, in this process."""
    return stages(load(path, home), program, thresholds)


def stages(module: Any, program: str, thresholds: list[float] | None) -> dict[str, Any]:
    """Return what `evaluate` gives, or, with thresholds and an `evaluate_stage1`, what the stages give together.

    Stage 2 runs when stage 1 passes `thresholds[0]`, stage 3 when stage 2 passes `thresholds[1]`. Later stages override
    metrics and artifacts of earlier ones.
    """
    if thresholds is None or not hasattr(module, "evaluate_stage1"):
        if not callable(getattr(module, "evaluate", None)):
            raise NotPlain("the evaluator defines no function evaluate")
        return result(called(module.evaluate, program)) | {"stages": 1}
    found = result(called(module.evaluate_stage1, program)) | {"stages": 1}
    latest = found
    for number in (2, 3):
        stage = getattr(module, f"evaluate_stage{number}", None)
        if not callable(stage) or len(thresholds) < number - 1 or not passes(latest["metrics"], thresholds[number - 2]):
            break
        latest = result(called(stage, program))
        found = {
            "metrics": found["metrics"] | latest["metrics"],
            "artifacts": found["artifacts"] | latest["artifacts"],
            "stages": number,
        }
    return found


def called(function: Any, program: str) -> Any:
    """Return what a function of an evaluator gives for a program; one that is async is run to its end."""
    returned = function(program)
    return asyncio.run(returned) if inspect.iscoroutine(returned) else returned


def passes(metrics: dict[str, Any], threshold: float) -> bool:
    """Return whether `combined_score`, or the mean of the numeric metrics except `error`, reaches the threshold."""
    if "combined_score" in metrics:
        score = metrics["combined_score"]
        return not isinstance(score, str) and float(score) >= threshold
    values = [float(value) for name, value in metrics.items() if name != "error" and not isinstance(value, (str, bool))]
    return bool(values) and sum(values) / len(values) >= threshold


def result(returned: Any) -> dict[str, Any]:
    """Return metrics and artifacts of what an evaluator returned.

    Raises:
        NotPlain: it returned something else than a dict or an EvaluationResult, or a metric is NaN or infinite.
    """
    artifacts: Any = {}
    if hasattr(returned, "metrics") and hasattr(returned, "artifacts"):
        returned, artifacts = returned.metrics, returned.artifacts
    if not isinstance(returned, dict):
        raise NotPlain(
            f"the evaluator returned a {type(returned).__name__}; expected a dict of metrics or an EvaluationResult"
        )
    metrics = {unicode(str(name)): metric(str(name), value) for name, value in returned.items()}
    return {
        "metrics": metrics,
        "artifacts": {unicode(str(name)): text(value) for name, value in dict(artifacts or {}).items()},
    }


def metric(name: str, value: Any) -> bool | float | str:
    """Return one metric: a bool, a finite float, or the text of anything else."""
    kind = getattr(getattr(value, "dtype", None), "kind", "")
    if isinstance(value, bool) or (kind == "b" and getattr(value, "size", 0) == 1):
        return bool(value)
    if kind and kind not in "iuf":
        return unicode(str(value)[:ARTIFACT_CHARACTERS])
    if isinstance(value, numbers.Real) or hasattr(value, "dtype"):
        try:
            number = float(value)
        except (TypeError, ValueError, OverflowError):
            return unicode(str(value)[:ARTIFACT_CHARACTERS])
        if not math.isfinite(number):
            raise NotPlain(f"the metric {name!r} is {number}")
        return number
    return unicode(str(value)[:ARTIFACT_CHARACTERS])


def text(value: Any) -> str:
    """Return an artifact as text, cut in the middle when it is long."""
    whole = value.decode("utf-8", "replace") if isinstance(value, bytes) else unicode(str(value))
    half = ARTIFACT_CHARACTERS // 2
    return whole if len(whole) <= 2 * half else f"{whole[:half]}\n... ({len(whole)} characters) ...\n{whole[-half:]}"


def unicode(found: str) -> str:
    """Return a text with what is no Unicode (halves of surrogate pairs, such as file names have) escaped."""
    return found.encode("utf-8", "backslashreplace").decode("utf-8")
