"""Compare untrusted answers with expected values, on the host.

Values are plain JSON data. `True` is not 1, but 1 equals 1.0, as in Python. Tolerances scale with the *expected* value
only, so that an answer cannot widen its own.
"""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

from sandbox.base import CheckerError, Outcome, Program, Sandbox, Verdict

MAX_DEPTH = 64
Mode = Literal["exact", "tolerance", "unordered", "lines", "checker"]


@dataclass(frozen=True, slots=True)
class Comparison:
    """How an answer is compared with the expected value.

    Attributes:
        mode: `exact`; `tolerance` (numbers anywhere in the value within `abs + rel * |expected|`); `unordered` (the
            outermost list in any order); `lines` (text, trailing blanks and CRLF ignored); `checker` (a program decides).
        abs: absolute tolerance.
        rel: relative tolerance.
    """

    mode: Mode = "exact"
    abs: float = 1e-9
    rel: float = 1e-9


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


class InvalidAnswer(ValueError):
    """Bytes that are not strict, plain JSON."""


def strict_json(data: bytes) -> Any:
    """Parse untrusted bytes as JSON: no NaN, infinity, overflow, duplicate key, lone surrogate or deep nesting.

    Raises:
        InvalidAnswer: the bytes break one of these rules; the text says which.
    """
    if data.count(b"[") + data.count(b"{") > MAX_DEPTH and _depth(data) > MAX_DEPTH:
        raise InvalidAnswer(f"nested deeper than {MAX_DEPTH} levels")
    try:
        value = json.loads(
            data.decode("utf-8"),
            parse_constant=_refuse_constant,
            parse_float=_finite,
            object_pairs_hook=_unique,
        )
        json.dumps(value, ensure_ascii=False).encode("utf-8")
    except InvalidAnswer:
        raise
    except (ValueError, RecursionError) as error:
        raise InvalidAnswer(f"not strict JSON: {error}"[:200]) from None
    return value


def _depth(data: bytes) -> int:
    """Return how deep the brackets outside strings are nested."""
    depth = deepest = 0
    quoted = escaped = False
    for byte in data:
        if quoted:
            if escaped:
                escaped = False
            elif byte == 0x5C:
                escaped = True
            elif byte == 0x22:
                quoted = False
        elif byte == 0x22:
            quoted = True
        elif byte in b"[{":
            depth += 1
            deepest = max(deepest, depth)
        elif byte in b"]}":
            depth -= 1
    return deepest


def _refuse_constant(name: str) -> Any:
    raise InvalidAnswer(f"{name} is not a JSON value")


def _finite(text: str) -> float:
    value = float(text)
    if not math.isfinite(value):
        raise InvalidAnswer(f"{text[:40]} overflows")
    return value


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    value = dict(pairs)
    if len(value) != len(pairs):
        raise InvalidAnswer("a key appears twice in an object")
    return value


def equal(got: Any, expected: Any, absolute: float = 0.0, relative: float = 0.0) -> bool:
    """Return whether plain values agree, numbers within the tolerance. bool, number, text, list and object stay apart."""
    if isinstance(got, bool) or isinstance(expected, bool):
        return got is expected
    if isinstance(got, (int, float)) and isinstance(expected, (int, float)):
        if got == expected:
            return True
        if not (absolute or relative):
            return False
        try:
            return abs(got - expected) <= absolute + relative * abs(expected)
        except OverflowError:
            return False
    if isinstance(got, list) and isinstance(expected, list):
        return len(got) == len(expected) and all(
            equal(one, other, absolute, relative) for one, other in zip(got, expected, strict=True)
        )
    if isinstance(got, dict) and isinstance(expected, dict):
        return got.keys() == expected.keys() and all(equal(got[key], expected[key], absolute, relative) for key in got)
    return type(got) is type(expected) and bool(got == expected)


def agrees(got: Any, expected: Any, comparison: Comparison) -> bool:
    """Return whether `got` is right under a comparison other than `checker`."""
    if comparison.mode == "tolerance":
        return equal(got, expected, comparison.abs, comparison.rel)
    if comparison.mode == "lines":
        return isinstance(got, str) and isinstance(expected, str) and _lines(got) == _lines(expected)
    if comparison.mode == "unordered" and isinstance(got, list) and isinstance(expected, list):
        if len(got) != len(expected):
            return False
        return sorted(map(_canonical, got)) == sorted(map(_canonical, expected))
    return equal(got, expected)


def _canonical(value: Any) -> str:
    """Return a sort key under which values that `equal` each other coincide."""
    if isinstance(value, float) and value.is_integer():
        return json.dumps(int(value))
    if isinstance(value, list):
        return "[" + ",".join(map(_canonical, value)) + "]"
    if isinstance(value, dict):
        return "{" + ",".join(f"{json.dumps(key)}:{_canonical(value[key])}" for key in sorted(value)) + "}"
    return json.dumps(value)


def _lines(text: str) -> list[str]:
    lines = [line.rstrip() for line in text.replace("\r\n", "\n").split("\n")]
    while lines and not lines[-1]:
        lines.pop()
    return lines


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
        self._comparison = comparison
        self._is_function = is_function
        self._checker = checker
        self._checker_sandbox = checker_sandbox

    async def judge(self, outcomes: Sequence[Outcome], inputs: Sequence[Any], expected: Sequence[Any]) -> list[TestResult]:
        """Return one result per outcome, in order.

        Args:
            outcomes: what the sandbox gave, one per test.
            inputs: the tests' inputs, for the checker (list of arguments, or text).
            expected: the tests' expected values.

        Raises:
            CheckerError: the problem's checker failed: its fault, not the program's.
            SandboxError: the machine failed while the checker ran.
        """
        results: list[TestResult | None] = []
        to_check: list[tuple[int, Any]] = []
        for index, outcome in enumerate(outcomes):
            if outcome.verdict is not None:
                results.append(self._result(outcome, outcome.verdict, 0.0, "", outcome.detail))
                continue
            try:
                got = strict_json(outcome.answer) if self._is_function else outcome.answer.decode("utf-8")
            except (InvalidAnswer, UnicodeDecodeError) as error:
                results.append(self._result(outcome, Verdict.INVALID, 0.0, "", str(error)))
                continue
            if self._checker is not None:
                to_check.append((index, got))
                results.append(None)
            else:
                right = agrees(got, expected[index], self._comparison)
                verdict = Verdict.PASS if right else Verdict.WRONG
                results.append(self._result(outcome, verdict, float(right), _show(got), ""))
        if to_check:
            calls = [[inputs[index], expected[index], got] for index, got in to_check]
            for (index, got), score in zip(to_check, await self._check(calls), strict=True):
                verdict = Verdict.PASS if score == 1.0 else Verdict.WRONG
                results[index] = self._result(outcomes[index], verdict, score, _show(got), "")
        return [result for result in results if result is not None]

    def _result(self, outcome: Outcome, verdict: Verdict, score: float, got: str, detail: str) -> TestResult:
        return TestResult(verdict, score, got, detail, outcome.stderr, outcome.loaded, outcome.cpu_seconds)

    async def _check(self, calls: list[list[Any]]) -> list[float]:
        """Return the checker's score in [0, 1] of each call."""
        assert self._checker is not None and self._checker_sandbox is not None
        program = Program(self._checker, "check")
        outcomes = await self._checker_sandbox.run(program, [json.dumps(call).encode() for call in calls])
        return [self._score(outcome) for outcome in outcomes]

    @staticmethod
    def _score(outcome: Outcome) -> float:
        if outcome.verdict is not None:
            raise CheckerError(f"checker.py gave no score: {outcome.verdict}: {outcome.detail or outcome.stderr}")
        try:
            score = strict_json(outcome.answer)
        except InvalidAnswer as error:
            raise CheckerError(f"checker.py must return a number in [0, 1] or a bool: {error}") from None
        if not isinstance(score, (bool, int, float)) or not 0 <= score <= 1:
            raise CheckerError(f"checker.py must return a number in [0, 1] or a bool, not {_show(score)}")
        return float(score)


def _show(value: Any, limit: int = 400) -> str:
    """Return a value as short text."""
    text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
    text = json.dumps(text, ensure_ascii=False) if isinstance(value, str) and "\n" not in value else text
    return text if len(text) <= limit else f"{text[: limit - 20]}... ({len(text)} characters)"
