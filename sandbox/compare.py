"""Compare untrusted answers with expected values: pure functions that take time in proportion to their arguments.

Values are plain JSON data. `True` is not 1, but 1 equals 1.0, as in Python. Tolerances scale with the *expected* value
only, so that an answer cannot widen its own.
"""

from __future__ import annotations

import json
import math
import sys
from dataclasses import dataclass
from decimal import Decimal
from typing import Any, Literal

MAX_DEPTH = 64
MAX_DIGITS = 50_000
"""Of an integer, in answers and in the processes that make them: LiveCodeBench's own limit; Python's is 4,300."""
sys.set_int_max_str_digits(max(MAX_DIGITS, sys.get_int_max_str_digits()))
Mode = Literal["exact", "tolerance", "unordered", "lines", "livecodebench", "checker"]


@dataclass(frozen=True, slots=True)
class Comparison:
    """How an answer is compared with the expected value.

    Attributes:
        mode: `exact`; `tolerance` (numbers anywhere in the value within `abs + rel * |expected|`); `unordered` (the
            outermost list in any order); `lines` (text, trailing blanks and CRLF ignored); `livecodebench` (that benchmark's
            rule, see `_same_decimals`); `checker` (a program decides).
        abs: absolute tolerance.
        rel: relative tolerance.
    """

    mode: Mode = "exact"
    abs: float = 1e-9
    rel: float = 1e-9


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
    if comparison.mode == "livecodebench":
        return isinstance(got, str) and isinstance(expected, str) and _livecodebench(got, expected)
    if comparison.mode == "unordered" and isinstance(got, list) and isinstance(expected, list):
        if len(got) != len(expected):
            return False
        return sorted(map(_canonical, got)) == sorted(map(_canonical, expected))
    return equal(got, expected)


def _canonical(value: Any) -> str:
    """Return a sort key under which values that `equal` each other coincide."""
    pieces: list[str] = []
    _write(value, pieces)
    return "".join(pieces)


def _write(value: Any, pieces: list[str]) -> None:
    if isinstance(value, list):
        pieces.append("[")
        for item in value:
            _write(item, pieces)
            pieces.append(",")
        pieces.append("]")
    elif isinstance(value, dict):
        pieces.append("{")
        for key in sorted(value):
            pieces += (json.dumps(key), ":")
            _write(value[key], pieces)
            pieces.append(",")
        pieces.append("}")
    else:
        pieces.append(json.dumps(int(value) if isinstance(value, float) and value.is_integer() else value))


def _lines(text: str) -> list[str]:
    lines = [line.rstrip() for line in text.replace("\r\n", "\n").split("\n")]
    while lines and not lines[-1]:
        lines.pop()
    return lines


def _livecodebench(got: str, expected: str) -> bool:
    """Return whether texts agree as LiveCodeBench's own runner sees it (arXiv 2403.07974, `testing_util.py`).

    Blanks around the text and around each line don't count; the lines are as many; each is the same, or holds equal
    decimals.
    """
    ours, theirs = got.strip().split("\n"), expected.strip().split("\n")
    if len(ours) != len(theirs):
        return False
    return all(one.strip() == other.strip() or _same_decimals(one, other) for one, other in zip(ours, theirs, strict=True))


def _same_decimals(one: str, other: str) -> bool:
    """Return whether lines hold the same numbers: `1.0` is `1`, `1e6` is `1000000`; exactly, without a tolerance."""
    try:
        return list(map(Decimal, one.split())) == list(map(Decimal, other.split()))
    except ArithmeticError:  # InvalidOperation is one; so is an exponent beyond the range
        return False


def show(value: Any, limit: int = 400) -> str:
    """Return a value as short text."""
    text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
    text = json.dumps(text, ensure_ascii=False) if isinstance(value, str) and "\n" not in value else text
    return text if len(text) <= limit else f"{text[: limit - 20]}... ({len(text)} characters)"


@dataclass(frozen=True, slots=True)
class Read:
    """An answer that was read.

    Attributes:
        right: whether it agrees with the expected value; None where that is for a checker to say.
        shown: short text of it, for people and prompts.
        json: of it, for a checker.
        invalid: why it is no plain data; None when it is.
    """

    right: bool | None = None
    shown: str = ""
    json: bytes = b""
    invalid: str | None = None


def read(answer: bytes, is_function: bool, expected: Any, comparison: Comparison) -> Read:
    """Read untrusted bytes and compare them."""
    try:
        got = strict_json(answer) if is_function else answer.decode("utf-8")
        if comparison.mode == "checker":
            return Read(None, show(got), json.dumps(got).encode())
        return Read(agrees(got, expected, comparison), show(got))
    except (InvalidAnswer, UnicodeDecodeError) as error:
        return Read(invalid=str(error))
