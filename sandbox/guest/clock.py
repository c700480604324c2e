"""An evaluator's clocks without the way to a separated candidate: a call takes what it takes in the candidate's sandbox.

An evaluator that reads a clock before and after a call would time the relay. So each answer comes with the seconds that
the supervisor of the candidate's sandbox measured, from when the request had been passed on to when the answer was whole;
and the clocks of `time` leave out the rest, in the thread that called. CPU clocks, which would miss the candidate's time,
get it added. A candidate can't change this measure; it is too long by what reading a request and writing an answer takes.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import Any

real = time.perf_counter
_here = threading.local()
_called = 0.0


def charge(elapsed: float, spent: float) -> None:
    """Account for a call that took `elapsed` seconds here and `spent` where the candidate runs."""
    global _called
    spent = min(max(spent, 0.0), elapsed)
    _here.left_out = left_out() + elapsed - spent
    _called += spent


def left_out() -> float:
    """Return the seconds that this thread's clocks leave out."""
    return float(getattr(_here, "left_out", 0.0))


def install() -> None:
    """Put these clocks in the place of those in `time`."""
    for name in ("time", "perf_counter", "monotonic"):
        _replace(name, lambda: -left_out())
    for name in ("process_time", "thread_time"):
        _replace(name, lambda: _called)


def _replace(name: str, shift: Callable[[], float]) -> None:
    seconds, nanoseconds = getattr(time, name), getattr(time, f"{name}_ns")

    def clock() -> Any:
        return seconds() + shift()

    def clock_ns() -> Any:
        return nanoseconds() + int(shift() * 1e9)

    clock.__name__, clock_ns.__name__ = name, f"{name}_ns"
    setattr(time, name, clock)
    setattr(time, f"{name}_ns", clock_ns)
