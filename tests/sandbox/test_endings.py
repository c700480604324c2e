"""What the end of a child means, from facts and bytes alone."""

import pytest

from sandbox.base import Limits, Verdict
from sandbox.endings import Ending, Malformed

LIMITS = Limits(cpu_seconds=1, memory_mb=64, output_kb=1)
HEADER = {"status": 0, "ended": None, "oom": False, "cpu": 0.1, "wall": 0.2}


def ending(report=b"", stdout=b"", stderr=b"", **header):
    body = report + stdout + stderr
    return Ending.of(HEADER | {"parts": [len(report), len(stdout), len(stderr)]} | header, body)


@pytest.mark.parametrize(
    ("what", "is_function", "verdict", "loaded"),
    [
        ({"report": b"LA2"}, True, None, True),
        ({"report": b"A2"}, True, None, False),
        ({"report": b"L", "stdout": b"2\n"}, False, None, True),
        ({"report": b"LEboom", "status": 1 << 8}, False, Verdict.EXCEPTION, True),
        ({"report": b"LEboom"}, True, Verdict.EXCEPTION, True),
        ({"report": b"EImportError"}, True, Verdict.EXCEPTION, False),
        ({"report": b"LMboom"}, True, Verdict.MEMORY, True),
        ({"report": b"LInan"}, True, Verdict.INVALID, True),
        ({"report": b"LXsys.exit(3)", "status": 3 << 8}, False, Verdict.EXIT, True),
        ({"report": b"L"}, True, Verdict.EXIT, True),
        ({"report": b"LA2", "status": 1 << 8}, True, Verdict.EXIT, True),
        ({"report": b"LA2", "status": 11}, True, Verdict.SIGNAL, True),
        ({"report": b"LA2", "status": 24}, True, Verdict.CPU, True),
        ({"report": b"LA2", "cpu": 1.0}, True, Verdict.CPU, True),
        ({"report": b"LA2", "ended": "cpu", "status": 9}, True, Verdict.CPU, True),
        ({"report": b"LA2", "ended": "timeout", "status": 9}, True, Verdict.TIMEOUT, True),
        ({"report": b"LA2", "ended": "output", "status": 9}, True, Verdict.OUTPUT, True),
        ({"report": b"LA2", "oom": True, "status": 9}, True, Verdict.MEMORY, True),
        ({"report": b"A" * 1026}, True, Verdict.OUTPUT, False),
    ],
)
def test_the_first_reason_counts(what, is_function, verdict, loaded):
    outcome = ending(**what).outcome(LIMITS, is_function)
    assert (outcome.verdict, outcome.loaded) == (verdict, loaded)
    if verdict is None:
        assert outcome.answer == (b"2" if is_function else b"2\n")


def test_what_a_program_printed_is_kept_where_it_failed():
    outcome = ending(report=b"L", stdout=b"so far", ended="timeout", status=9).outcome(LIMITS, is_function=False)
    assert outcome.printed == "so far"


def test_a_program_in_another_language_reports_nothing():
    assert ending(stdout=b"2\n").outcome(LIMITS, False, other_language=True).answer == b"2\n"


@pytest.mark.parametrize(
    "header",
    [
        {},
        HEADER,
        HEADER | {"parts": [1, 2]},
        HEADER | {"parts": [1, 0, 0]},
        HEADER | {"parts": [-1, 1, 0]},
        HEADER | {"parts": [True, 0, 0]},
        HEADER | {"parts": [0, 0, 0], "ended": "passed"},
        HEADER | {"parts": [0, 0, 0], "status": "x"},
        HEADER | {"parts": [0, 0, 0], "cpu": None},
    ],
)
def test_frames_that_say_something_else(header):
    with pytest.raises(Malformed):
        Ending.of(header, b"")
