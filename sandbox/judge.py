"""Turn the outcomes of one program into results, on the host: verdicts and scores exist nowhere else."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from sandbox.base import CheckerError, Outcome, Program, Sandbox, Verdict
from sandbox.compare import Comparison, InvalidAnswer, Mode, agrees, equal, show, strict_json
from sandbox.comparer import Comparer

__all__ = ["Comparison", "InvalidAnswer", "Judge", "Mode", "TestResult", "agrees", "equal", "strict_json"]


@dataclass(frozen=True, slots=True)
class TestResult:
    """One judged test: the verdict, the score in [0, 1], and what the program gave, cut for people and prompts."""

    __test__ = False  # not a test class, whatever its name suggests to pytest

    verdict: Verdict
    score: float
    got: str = ""
    detail: str = ""
    stderr: str = ""
    loaded: bool = True
    cpu_seconds: float = 0.0


class Judge:
    """Turns the outcomes of one program into results.

    Args:
        comparison: how answers are compared.
        is_function: whether answers are JSON values (else the text of stdout).
        checker: source of `checker.py` with `check(input, expected, got) -> float`, for the mode `checker`.
        checker_sandbox: where the checker runs, without the candidate.
    """

    def __init__(
        self,
        comparison: Comparison,
        is_function: bool,
        checker: str | None = None,
        checker_sandbox: Sandbox | None = None,
    ):
        if (comparison.mode == "checker") != (checker is not None and checker_sandbox is not None):
            raise ValueError("a checker and its sandbox go with the mode `checker`, and only with it")
        self._checker = checker
        self._checker_sandbox = checker_sandbox
        self._comparer = Comparer(comparison, is_function)
        self._took: set[bytes] = set()

    def close(self) -> None:
        """End what compares beside this process."""
        self._comparer.close()

    async def judge(self, outcomes: Sequence[Outcome], inputs: Sequence[Any], expected: Sequence[Any]) -> list[TestResult]:
        """Return one result per outcome, in order.

        Args:
            outcomes: what the sandbox gave, one per test.
            inputs: the tests' inputs, for the checker (list of arguments, or text).
            expected: the tests' expected values.

        Raises:
            CheckerError: the problem's checker failed: its fault, not the program's.
            SandboxError: the machine failed while the checker ran, or a comparison did.
        """
        results: list[TestResult | None] = []
        to_check: list[tuple[int, str, bytes]] = []
        for index, outcome in enumerate(outcomes):
            if outcome.verdict is not None:
                results.append(
                    self._result(
                        outcome, outcome.verdict, 0.0, show(outcome.printed) if outcome.printed else "", outcome.detail
                    )
                )
                continue
            read = await self._comparer.read(outcome.answer, expected[index])
            if read.invalid is not None:
                results.append(self._result(outcome, Verdict.INVALID, 0.0, "", read.invalid))
            elif read.right is None:
                to_check.append((index, read.shown, read.json))
                results.append(None)
            else:
                verdict = Verdict.PASS if read.right else Verdict.WRONG
                results.append(self._result(outcome, verdict, float(read.right), read.shown, ""))
        if to_check:
            asked = [(_call(inputs[index], expected[index]), got) for index, _, got in to_check]
            for (index, shown, _), score in zip(to_check, await self._check(asked), strict=True):
                if isinstance(score, str):
                    results[index] = self._result(outcomes[index], Verdict.INVALID, 0.0, shown, score)
                else:
                    verdict = Verdict.PASS if score == 1.0 else Verdict.WRONG
                    results[index] = self._result(outcomes[index], verdict, score, shown, "")
        return [result for result in results if result is not None]

    def _result(self, outcome: Outcome, verdict: Verdict, score: float, got: str, detail: str) -> TestResult:
        return TestResult(verdict, score, got, detail, outcome.stderr, outcome.loaded, outcome.cpu_seconds)

    async def _check(self, asked: Sequence[tuple[tuple[bytes, bytes], bytes]]) -> list[float | str]:
        """Return the checker's score in [0, 1] of each answer, or why it could not take the answer.

        A checker that fails is tried with the expected value as the answer: where it can take that, or has taken another
        answer to the same test before, the answer was at fault.
        """
        outcomes = await self._run([(given, answer) for (given, _), answer in asked])
        scores: list[float | str] = []
        for ((given, right), _), outcome in zip(asked, outcomes, strict=True):
            try:
                scores.append(_score(outcome))
                self._took.add(given)
            except CheckerError as error:
                if given not in self._took:
                    (again,) = await self._run([(given, right)])
                    try:
                        _score(again)
                    except CheckerError:
                        raise error from None
                    self._took.add(given)
                scores.append(
                    f"the checker can't take this answer: {outcome.detail or outcome.verdict or 'it gave no score'}"[:1000]
                )
        return scores

    async def _run(self, calls: Sequence[tuple[bytes, bytes]]) -> list[Outcome]:
        assert self._checker is not None and self._checker_sandbox is not None
        inputs = [given + answer + b"]" for given, answer in calls]
        return await self._checker_sandbox.run(Program(self._checker, "check"), inputs)


def _call(given: Any, expected: Any) -> tuple[bytes, bytes]:
    """Return the beginning of a checker's arguments as JSON, and the expected value as an answer."""
    right = json.dumps(expected).encode()
    return b"[" + json.dumps(given).encode() + b"," + right + b",", right


def _score(outcome: Outcome) -> float:
    if outcome.verdict is not None:
        raise CheckerError(f"checker.py gave no score: {outcome.verdict}: {outcome.detail or outcome.stderr}")
    try:
        score = strict_json(outcome.answer)
    except InvalidAnswer as error:
        raise CheckerError(f"checker.py must return a number in [0, 1] or a bool: {error}") from None
    if not isinstance(score, (bool, int, float)) or not 0 <= score <= 1:
        raise CheckerError(f"checker.py must return a number in [0, 1] or a bool, not {show(score)}")
    return float(score)
