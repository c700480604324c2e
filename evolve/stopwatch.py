"""Measure in which share of the time something is going on."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager


class Stopwatch:
    """Adds up the time in which at least one of several overlapping activities is going on."""

    def __init__(self) -> None:
        self._seconds = 0.0
        self._active = 0
        self._since = 0.0

    @contextmanager
    def running(self) -> Iterator[None]:
        """Count the time inside as busy."""
        if self._active == 0:
            self._since = time.monotonic()
        self._active += 1
        try:
            yield
        finally:
            self._active -= 1
            if self._active == 0:
                self._seconds += time.monotonic() - self._since

    def total(self) -> float:
        """Return the busy seconds so far."""
        return self._seconds + (time.monotonic() - self._since if self._active else 0.0)
