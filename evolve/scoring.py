"""Score programs, the same program once."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from evolve.answers import fingerprint
from evolve.score import Grader, Score
from sandbox.judge import TestResult

RECENT = 512
"""Scores under way or not yet recorded that are remembered, so that twins which arrive together run once."""


class Scorer:
    """Scores sources of one problem.

    Args:
        grader: gives a program its score.
        language: of the programs, to tell twins.
        known: returns the stored score of a fingerprint, or None.
    """

    def __init__(self, grader: Grader, language: str = "python", known: Callable[[str], Score | None] = lambda _: None):
        self._grader = grader
        self._language = language
        self._known = known
        self._recent: dict[str, asyncio.Task[Score]] = {}

    async def score(self, source: str) -> Score:
        """Return the score on the visible tests. Twins (same fingerprint) run once, even when asked for at once.

        Raises:
            SandboxError: the machine or the checker failed; there is no score.
        """
        twin = fingerprint(source, self._language)
        if twin not in self._recent:
            stored = self._known(twin)
            if stored is not None:
                return stored
            while len(self._recent) >= RECENT:
                del self._recent[next(iter(self._recent))]
            self._recent[twin] = asyncio.create_task(self._grader.score(source))
        try:
            return await asyncio.shield(self._recent[twin])
        except Exception:
            self._recent.pop(twin, None)  # a fault of the machine is no score: the next twin tries again
            raise

    async def hidden(self, source: str) -> tuple[TestResult, ...]:
        """Return the results on the hidden tests, for reports and confirmation only."""
        return await self._grader.hidden(source)

    async def close(self) -> None:
        """Drop what is still being scored, as after an interrupt."""
        for task in self._recent.values():
            task.cancel()
        await asyncio.gather(*self._recent.values(), return_exceptions=True)
