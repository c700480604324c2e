"""The two graders: tests in a sandbox with a judge outside it, and evaluators in OpenEvolve's manner."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import replace
from typing import Any, Protocol

import numpy as np

from evolve.evaluated import EvaluatedProblem
from evolve.faults import faults
from evolve.metrics import InvalidMetrics, checked, numeric
from evolve.score import Score
from evolve.tested import Test, TestedProblem
from sandbox.base import Outcome, Program, Sandbox, Verdict
from sandbox.judge import InvalidAnswer, Judge, TestResult, strict_json


class TestGrader:
    """Runs the tests of a problem.

    Args:
        problem: tests and comparison.
        sandbox: where programs run, and the checker, apart from them.
    """

    __test__ = False

    def __init__(self, problem: TestedProblem, sandbox: Sandbox):
        self._problem = problem
        self._sandbox = sandbox
        self._judge = Judge(
            problem.comparison,
            problem.entry is not None,
            problem.checker,
            sandbox if problem.checker else None,
        )

    def close(self) -> None:
        """End what the judge has started."""
        self._judge.close()

    @property
    def level(self) -> str:
        """See `Grader.level`."""
        return self._sandbox.level

    async def score(self, source: str) -> Score:
        """See `Grader.score`."""
        results = await self._run(source, self._problem.visible)
        ran = any(result.loaded for result in results)
        scores = np.array(self._vector(source, results)) if ran else np.zeros(len(self._problem.objectives))
        solved = all(result.verdict is Verdict.PASS for result in results)
        return Score(results, scores, ran, self._sandbox.level, float(scores.mean()) if ran else None, solved)

    async def hidden(self, source: str) -> tuple[TestResult, ...]:
        """See `Grader.hidden`."""
        return await self._run(source, self._problem.hidden) if self._problem.hidden else ()

    async def _run(self, source: str, tests: Sequence[Test]) -> tuple[TestResult, ...]:
        if self._problem.language == "text":
            outcomes = [Outcome(None, source.encode())] * len(tests)
        else:
            program = Program(source, self._problem.entry, self._problem.toolchain, self._problem.spec.preamble)
            outcomes = await self._sandbox.run(program, [test.data for test in tests])
        inputs, expected = [test.input for test in tests], [test.expected for test in tests]
        return tuple(await self._judge.judge(outcomes, inputs, expected))

    def _vector(self, source: str, results: Sequence[TestResult]) -> list[float]:
        vector = [result.score for result in results]
        share = sum(result.verdict is Verdict.PASS for result in results) / len(results)
        extra = self._problem.spec.objectives
        measured = {"runtime": sum(result.cpu_seconds for result in results), "size": float(len(source))}
        for name, value in measured.items():
            spec = getattr(extra, name)
            if spec is not None:
                vector.append(share * min(1.0, max(0.0, (spec.worst - value) / (spec.worst - spec.best))))
        return vector


class Evaluates(Protocol):
    """Evaluates sources with one evaluator (`sandbox.evaluator.EvaluatorSandbox`)."""

    @property
    def level(self) -> str:
        """Name of the isolation, stored with every score."""
        ...

    async def evaluate(self, source: str) -> Outcome:
        """Return an outcome whose answer is a JSON object of `metrics`, `artifacts` and `stages`, or a verdict.

        Raises:
            SandboxError: the machine failed, after retries.
        """
        ...


class EvaluatorGrader:
    """Lets an evaluator judge programs. A new best is evaluated again, and the worse of the two counts.

    Args:
        problem: objectives, fitness, bounds.
        sandbox: where the evaluator runs.
        best: fitness of the run's best program so far; None asks for no second evaluation.
        required: metrics that steer and that the run's initial program had; None takes them from the first program graded.
    """

    def __init__(
        self,
        problem: EvaluatedProblem,
        sandbox: Evaluates,
        best: float | None = None,
        required: Sequence[str] | None = None,
    ):
        self._problem = problem
        self._sandbox = sandbox
        self._best = best
        self._required = None if required is None else list(required)
        self._confirming = asyncio.Lock()

    @property
    def level(self) -> str:
        """See `Grader.level`."""
        return self._sandbox.level

    async def score(self, source: str) -> Score:
        """See `Grader.score`."""
        first = self._graded(await self._sandbox.evaluate(source))
        if self._best is None or first.fitness is None or first.fitness <= self._best:
            if self._best is None:
                self._best = first.fitness
            return first
        async with self._confirming:
            second = self._graded(await self._sandbox.evaluate(source))
            kept = second if second.fitness is None or second.fitness < first.fitness else first
            if kept.fitness is not None:
                self._best = max(self._best, kept.fitness)
            return kept

    async def hidden(self, source: str) -> tuple[TestResult, ...]:
        """See `Grader.hidden`: an evaluator has no hidden tests."""
        del source
        return ()

    def _graded(self, outcome: Outcome) -> Score:
        is_first = self._required is None
        notes: list[str] = []
        if outcome.verdict is not None:
            score = self._failed(outcome, outcome.verdict, outcome.detail)
        else:
            try:
                metrics, artifacts, notes = _parsed(outcome.answer)
                score = self._scored(outcome, metrics, artifacts)
            except (InvalidAnswer, InvalidMetrics) as error:
                score = self._failed(outcome, Verdict.INVALID, str(error))
        if not is_first:
            return score
        texts = [value for value in (*score.metrics.values(), *score.artifacts.values()) if isinstance(value, str)]
        told = [*notes, outcome.printed, outcome.stderr, score.results[0].detail, *texts]
        return replace(score, faults=faults(told, self._problem.limits.memory_mb))

    def _scored(self, outcome: Outcome, metrics: dict[str, Any], artifacts: dict[str, str]) -> Score:
        fitness = self._problem.fitness(metrics)
        wrong = self._missing(metrics) or self._problem.out_of_bounds(metrics)
        if fitness is None or wrong is not None:
            return self._failed(outcome, Verdict.INVALID, wrong or self._problem.no_fitness(metrics), metrics, artifacts)
        result = TestResult(Verdict.PASS, 1.0, "", "", outcome.stderr, True, outcome.cpu_seconds)
        values = self._problem.values(metrics)
        if self._required is None:
            self._required = self._problem.steers(metrics)
        level = self._sandbox.level
        return Score((result,), np.empty(0), True, level, fitness, False, values, metrics, artifacts)

    def _missing(self, metrics: dict[str, Any]) -> str | None:
        """Return what metrics lack that the initial program had: a mean over fewer metrics is no better program."""
        numbers = numeric(metrics)
        lost = [name for name in self._required or () if name not in numbers]
        if not lost:
            return None
        came = {name: metrics[name] for name in lost if name in metrics}
        told = f"; came {came}"[:200] if came else ""
        return f"no number for {', '.join(map(repr, lost))}, which the initial program has{told}"

    def _failed(
        self, outcome: Outcome, verdict: Verdict, detail: str, metrics: dict[str, Any] | None = None, artifacts: Any = None
    ) -> Score:
        result = TestResult(verdict, 0.0, "", detail, outcome.stderr, False, outcome.cpu_seconds)
        return Score((result,), np.empty(0), False, self._sandbox.level, None, False, {}, metrics or {}, artifacts or {})


def _parsed(answer: bytes) -> tuple[dict[str, Any], dict[str, str], list[str]]:
    """Return metrics, artifacts and notes of bytes that the candidate may have written, where it shares the process.

    Raises:
        InvalidAnswer, InvalidMetrics: they are something else.
    """
    found = strict_json(answer)
    if not isinstance(found, dict):
        raise InvalidAnswer("the evaluation gave no mapping of metrics")
    notes = found.get("notes")
    told = [one for one in notes if isinstance(one, str)] if isinstance(notes, list) else []
    return *checked(found.get("metrics"), found.get("artifacts")), told
