"""Score programs: the same program once, its tests in the sandbox, its answers by the judge."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from evolve.answers import fingerprint
from evolve.problem import Problem, Test
from evolve.score import Score
from sandbox.base import Program, Sandbox, Verdict
from sandbox.judge import Judge, TestResult

RECENT = 512
"""Scores under way or not yet recorded that are remembered, so that twins which arrive together run once."""


class Scorer:
    """Scores sources of one problem.

    Args:
        problem: tests and comparison.
        sandbox: where programs run, and the checker, apart from them.
        known: returns the stored score of a fingerprint, or None.
    """

    def __init__(self, problem: Problem, sandbox: Sandbox, known: Callable[[str], Score | None] = lambda _: None):
        self._problem = problem
        self._sandbox = sandbox
        self._known = known
        self._judge = Judge(
            problem.comparison,
            problem.entry is not None,
            problem.checker,
            sandbox if problem.checker else None,
        )
        self._recent: dict[str, asyncio.Task[Score]] = {}

    async def score(self, source: str) -> Score:
        """Return the score on the visible tests. Twins (same fingerprint) run once, even when asked for at once.

        Raises:
            SandboxError: the machine or the checker failed; there is no score.
        """
        twin = fingerprint(source, self._problem.spec.language)
        stored = self._known(twin)
        if stored is not None:
            return stored
        if twin not in self._recent:
            while len(self._recent) >= RECENT:
                del self._recent[next(iter(self._recent))]
            self._recent[twin] = asyncio.create_task(self._score(source))
        try:
            return await asyncio.shield(self._recent[twin])
        except Exception:
            self._recent.pop(twin, None)  # a fault of the machine is no score: the next twin tries again
            raise

    async def close(self) -> None:
        """Drop what is still being scored, as after an interrupt."""
        for task in self._recent.values():
            task.cancel()
        await asyncio.gather(*self._recent.values(), return_exceptions=True)

    async def hidden(self, source: str) -> tuple[TestResult, ...]:
        """Return the results on the hidden tests, for reports and confirmation only."""
        return await self._run(source, self._problem.hidden)

    async def _score(self, source: str) -> Score:
        results = await self._run(source, self._problem.visible)
        ran = any(result.loaded for result in results)
        return Score(results, self._vector(source, results, ran), ran, self._sandbox.level)

    async def _run(self, source: str, tests: tuple[Test, ...]) -> tuple[TestResult, ...]:
        program = Program(source, self._problem.entry, self._problem.toolchain)
        outcomes = await self._sandbox.run(program, [test.data for test in tests])
        inputs, expected = [test.input for test in tests], [test.expected for test in tests]
        return tuple(await self._judge.judge(outcomes, inputs, expected))

    def _vector(self, source: str, results: tuple[TestResult, ...], ran: bool) -> NDArray[np.float64]:
        vector = [result.score for result in results]
        share = sum(result.verdict is Verdict.PASS for result in results) / len(results)
        extra = self._problem.spec.objectives
        measured = {"runtime": sum(result.cpu_seconds for result in results), "size": float(len(source))}
        for name, value in measured.items():
            spec = getattr(extra, name)
            if spec is not None:
                vector.append(share * min(1.0, max(0.0, (spec.worst - value) / (spec.worst - spec.best))))
        return np.array(vector) if ran else np.zeros(len(vector))
