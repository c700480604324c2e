"""The judge: strict about what an answer is, and only the expected value sets tolerances."""

import asyncio
import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sandbox.base import CheckerError, Outcome, Verdict
from sandbox.compare import _canonical
from sandbox.inprocess import InProcessSandbox
from sandbox.judge import Comparison, InvalidAnswer, Judge, agrees, equal, strict_json

plain = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text("ab"),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text("ab"), inner, max_size=3),
)


@pytest.mark.parametrize(
    "text",
    ["NaN", "Infinity", "-Infinity", "1e999", '{"a": 1, "a": 2}', "[1", "", "1 2", '"\\ud800"', "\xff", "[" * 65 + "]" * 65],
)
def test_untrusted_bytes_that_are_not_strict_json(text):
    with pytest.raises(InvalidAnswer):
        strict_json(text.encode("latin-1"))


@pytest.mark.parametrize("text", ["1", '"[[[["', "[" * 64 + "]" * 64, '{"a": {"b": [1.5, null, true]}}'])
def test_strict_json_that_is_right(text):
    assert strict_json(text.encode()) == json.loads(text)


@given(plain)
def test_every_plain_value_survives_and_equals_itself(value):
    assert equal(strict_json(json.dumps(value).encode()), value)


@pytest.mark.parametrize(
    ("got", "expected", "same"),
    [
        (True, 1, False), (1, True, False), (0, False, False), (True, True, True), (1, 1.0, True), ("1", 1, False),
        (None, None, True), (None, 0, False), ([1, 2], [2, 1], False), ([[True]], [[1]], False), ({}, [], False),
        ({"a": 1}, {"a": 1.0}, True), ({"a": 1}, {"b": 1}, False), (10**400, 1.5, False),
    ],
)  # fmt: skip
def test_exact(got, expected, same):
    assert agrees(got, expected, Comparison()) is same


def test_tolerance_scales_with_the_expected_value_only():
    loose = Comparison("tolerance", abs=0.0, rel=0.5)
    assert agrees(1.4, 1.0, loose)
    assert not agrees(1e9, 1.0, loose)
    assert not agrees(10**400, 1.0, loose)
    assert agrees([1, {"a": 1.01}], [1, {"a": 1}], Comparison("tolerance", abs=0.1, rel=0))


@pytest.mark.parametrize(
    ("mode", "got", "expected", "same"),
    [
        ("unordered", [3, 1, 2.0], [1, 2, 3], True), ("unordered", [1, 1, 2], [1, 2, 2], False),
        ("unordered", [True], [1], False), ("unordered", [{"b": 1, "a": [2]}], [{"a": [2], "b": 1}], True),
        ("lines", "a \r\nb\n\n", "a\nb", True), ("lines", "a\n\nb", "a\nb", False), ("lines", " a", "a", False),
        ("livecodebench", "  1 2 \n\t3\n\n", "1 2\n3", True), ("livecodebench", "1.0", "1", True),
        ("livecodebench", "1e6", "1000000", True), ("livecodebench", "0.1 2", "0.10 2.0", True),
        ("livecodebench", "0.1", "0.10000001", False), ("livecodebench", "a\n\nb", "a\nb", False),
        ("livecodebench", "1 2", "12", False), ("livecodebench", "YES", "yes", False), ("livecodebench", "", "1", False),
        ("livecodebench", "nan", "nan", True), ("livecodebench", "sNaN 1", "sNaN 2", False),
        ("livecodebench", "1e999999999999999999999", "1", False), ("livecodebench", "1e999999", "2", False),
        ("livecodebench", "\u0661", "1", True), ("livecodebench", "9" * 9000 + ".0", "9" * 9000, True),
    ],
)  # fmt: skip
def test_other_modes(mode, got, expected, same):
    assert agrees(got, expected, Comparison(mode)) is same


async def test_bad_answers_are_verdicts():
    judge = Judge(Comparison(), is_function=True)
    outcomes = [Outcome(None, b"2"), Outcome(None, b"3"), Outcome(None, b"NaN"), Outcome(Verdict.CPU, detail="slow")]
    results = await judge.judge(outcomes, [[1]] * 4, [2] * 4)
    assert [result.verdict for result in results] == [Verdict.PASS, Verdict.WRONG, Verdict.INVALID, Verdict.CPU]
    assert [result.score for result in results] == [1, 0, 0, 0]


async def check_with(source):
    judge = Judge(Comparison("checker"), True, source, InProcessSandbox())
    return await judge.judge([Outcome(None, b"4"), Outcome(Verdict.TIMEOUT)], [[1], [1]], [8, 8])


async def test_a_checker_gives_partial_credit_and_never_sees_missing_answers():
    first, second = await check_with("def check(input, expected, got):\n    return got / expected")
    assert (first.verdict, first.score) == (Verdict.WRONG, 0.5)
    assert second.verdict is Verdict.TIMEOUT


@pytest.mark.parametrize("body", ["return 2", "return None", "return 'x'", "1 / 0", "return -0.1"])
async def test_a_broken_checker_is_a_fault_of_the_machine(body):
    with pytest.raises(CheckerError, match=r"checker\.py"):
        await check_with(f"def check(input, expected, got):\n    {body}")


class Checks:
    """A sandbox whose checker takes small numbers only, or nothing at all."""

    level = "none"

    def __init__(self, broken=False):
        self.broken = broken

    async def run(self, program, inputs):
        def one(data):
            _, expected, got = json.loads(data)
            if self.broken or got > 1e300:
                return Outcome(Verdict.EXCEPTION, detail="OverflowError")
            return Outcome(None, json.dumps(got == expected).encode())

        return [one(data) for data in inputs]


async def test_an_answer_that_the_checker_cannot_take_is_invalid():
    judge = Judge(Comparison("checker"), True, "def check(i, e, g): ...", Checks())
    first, second = await judge.judge([Outcome(None, str(10**4000).encode()), Outcome(None, b"2")], [[1], [1]], [2, 2])
    assert (first.verdict, second.verdict) == (Verdict.INVALID, Verdict.PASS)
    assert "can't take this answer" in first.detail


async def test_a_checker_that_takes_not_even_the_expected_value_is_broken():
    judge = Judge(Comparison("checker"), True, "def check(i, e, g): ...", Checks(broken=True))
    with pytest.raises(CheckerError):
        await judge.judge([Outcome(None, b"2")], [[1]], [2])


async def test_a_large_answer_does_not_hold_up_the_event_loop():
    """63 nested lists around as many numbers as fit, to be compared in any order."""
    numbers = b",".join([b"1"] * 500_000)
    answer = b"[" * 63 + numbers + b"]" * 63
    judge = Judge(Comparison("unordered"), True)
    late = []

    async def watch():
        loop = asyncio.get_running_loop()
        while True:
            before = loop.time()
            await asyncio.sleep(0.01)
            late.append(loop.time() - before)

    watching = asyncio.create_task(watch())
    try:
        (result,) = await judge.judge([Outcome(None, answer)], [[1]], [json.loads(answer)])
        assert result.verdict is Verdict.PASS
    finally:
        watching.cancel()
        judge.close()
    assert len(late) > 10
    assert sorted(late)[len(late) // 2] < 0.1


async def test_an_answer_that_takes_too_long_to_compare_is_invalid_and_the_next_is_judged(monkeypatch):
    monkeypatch.setattr("sandbox.comparer.CPU_SECONDS", 0.05)
    judge = Judge(Comparison("unordered"), True)
    slow, quick = b"[" + b",".join([b"[1]"] * 200_000) + b"]", b"[" + b"1," * 8000 + b"1]"
    try:
        first, second = await judge.judge([Outcome(None, slow), Outcome(None, quick)], [[1]] * 2, [json.loads(slow), [2]])
    finally:
        judge.close()
    assert (first.verdict, second.verdict) == (Verdict.INVALID, Verdict.WRONG)
    assert "more than 0.05 s of CPU time" in first.detail


def test_canonical_text_grows_with_the_value_alone():
    value = list(range(1000))
    for _ in range(60):
        value = [value]
    assert len(_canonical(value)) < 6 * 1000 + 500
