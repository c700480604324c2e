"""The one place where numbers and names from outside become ours: finite, of bounded magnitude, count and length."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

MOST = 1e100
"""Magnitude of a metric: sums, differences and squares of such numbers stay finite."""

MOST_METRICS, MOST_NAME = 1000, 200
MOST_ARTIFACTS, MOST_ARTIFACT = 100, 100_000


class InvalidMetrics(ValueError):
    """Metrics or artifacts that are not taken; the text says why."""


def number(value: Any) -> float | None:
    """Return a value as a float, or None where it is no number, a flag, not finite, or beyond `MOST`."""
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        return None
    try:
        found = float(value)
    except OverflowError:
        return None
    return found if math.isfinite(found) and abs(found) <= MOST else None


def numeric(metrics: Mapping[str, Any]) -> dict[str, float]:
    """Return the metrics that are numbers; a flag is none."""
    found = {name: number(value) for name, value in metrics.items()}
    return {name: value for name, value in found.items() if value is not None}


def checked(metrics: Any, artifacts: Any) -> tuple[dict[str, Any], dict[str, str]]:
    """Return what an evaluation gave.

    Raises:
        InvalidMetrics: it is no mapping of numbers, flags and texts, or beyond the bounds.
    """
    if not isinstance(metrics, dict) or not all(isinstance(value, (bool, int, float, str)) for value in metrics.values()):
        raise InvalidMetrics("the evaluation gave no mapping of metrics")
    if not isinstance(artifacts, dict) or not all(isinstance(value, str) for value in artifacts.values()):
        raise InvalidMetrics("the evaluation gave artifacts that are no texts")
    if len(metrics) > MOST_METRICS or len(artifacts) > MOST_ARTIFACTS:
        raise InvalidMetrics(
            f"{len(metrics)} metrics and {len(artifacts)} artifacts; at most {MOST_METRICS} and {MOST_ARTIFACTS} are taken"
        )
    for name, value in metrics.items():
        if len(name) > MOST_NAME:
            raise InvalidMetrics(f"a metric's name has {len(name)} characters; at most {MOST_NAME} are taken")
        if isinstance(value, (int, float)) and not isinstance(value, bool) and number(value) is None:
            raise InvalidMetrics(f"the metric {name!r} is not finite, or beyond {MOST:g}")
    kept = {str(name)[:MOST_NAME]: text[:MOST_ARTIFACT] for name, text in artifacts.items()}
    return {name: value[:MOST_ARTIFACT] if isinstance(value, str) else value for name, value in metrics.items()}, kept
