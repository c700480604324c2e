"""Which evaluators read a clock."""

import pytest

from evolve.clocks import clocks


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("import time\nt = time.time()", ["time.time"]),
        ("import time as t\nx = t.perf_counter_ns()", ["time.perf_counter"]),
        ("from time import perf_counter, sleep", ["time.perf_counter"]),
        ("import timeit\ntimeit.timeit(f)", ["timeit.timeit"]),
        ("from timeit import default_timer as timer", ["timeit.default_timer"]),
        ("import datetime\ndatetime.datetime.now()", ["datetime.now"]),
        ("import resource\nresource.getrusage(1)", ["resource.getrusage"]),
        ("import time\ntime.sleep(1)", []),
        ("x = obj.time()", []),
        ("not Python (", []),
        ("", []),
    ],
)
def test_clocks_in_a_text(text, found):
    assert clocks([text]) == found
