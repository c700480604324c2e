"""What comes out of a sandbox, at random: 100,000 inputs for each of its readers, and no exception but ours."""

import asyncio
import contextlib
import gc
import json
import random
import struct
import time

import pytest

from sandbox.base import Limits
from sandbox.compare import Comparison, InvalidAnswer, read, strict_json
from sandbox.endings import Ending, Malformed
from sandbox.guest.values import checked, decode
from sandbox.wire import Guest, GuestDied

slow = pytest.mark.slow
COUNT = 100_000
PIECES = [
    *(b"[", b"]", b"{", b"}", b",", b":", b'"', b"1", b"-", b"1e999", b"9" * 50, b"null", b"true", b"NaN", b'"a"', b"\\u", b"\\ud800"),
    *(b"\xff", b"\0", b" ", b'{"a":1}', b'{"array":["<f8",[1],"AAAAAAAA8D8="]}', b'{"dict":[[1,2]]}', b'{"float":"nan"}', b'{"tuple":['),
]  # fmt: skip
VALUES = [None, 0, 1, -1, 1 << 70, 1.5, float("inf"), True, "", "x", [], [0, 0, 0], [1, 2], {}, "timeout", "cpu", "output"]
LIMITS = Limits(output_kb=1)


def texts(seed, most=12):
    rng = random.Random(seed)
    for _ in range(COUNT):
        yield b"".join(rng.choices(PIECES, k=rng.randint(0, most)))


@slow
def test_answers():
    modes = [Comparison(mode) for mode in ("exact", "tolerance", "unordered", "lines", "checker")]
    for number, text in enumerate(texts(1)):
        with contextlib.suppress(InvalidAnswer):
            strict_json(text)
        found = read(text, number % 2 == 0, [1, {"a": 1.0}], modes[number % 5])
        assert (found.invalid is None) or found.right is None


@slow
def test_values_of_candidates():
    for text in texts(2):
        with contextlib.suppress(ValueError):
            checked(decode(text))


@slow
def test_headers_of_frames():
    rng = random.Random(3)
    for _ in range(COUNT):
        header = {
            name: rng.choice(VALUES) for name in ("status", "ended", "oom", "cpu", "wall", "parts") if rng.random() < 0.9
        }
        body = rng.choice((b"", b"LA1", b"LEx", b"A" * 2000, b"\xff\xfe"))
        if rng.random() < 0.5:
            header["parts"] = [len(body), 0, 0]
        with contextlib.suppress(Malformed):
            Ending.of(header, body).outcome(LIMITS, rng.random() < 0.5)


class Bytes:
    """A sandbox that says the same thing to everything."""

    def __init__(self, data):
        self.data = data

    async def read(self):
        data, self.data = self.data, b""
        return data

    async def write(self, data):
        pass

    def alive(self):
        return True


@slow
def test_bytes_of_a_supervisor():
    rng = random.Random(4)

    async def every():
        for text in texts(4, 6):
            head = struct.pack(">II", rng.choice((len(text), 1 << 31, 0)), rng.choice((0, 1, 1 << 31)))
            header = json.dumps(
                {"id": rng.choice(VALUES), "clean": rng.choice(VALUES), "broken": rng.choice(VALUES)}
            ).encode()
            whole = struct.pack(">II", len(header), 0) + header
            guest = Guest(Bytes(rng.choice((head + text, whole, text))))
            with contextlib.suppress(GuestDied):
                await guest.test(0, b"", LIMITS)

    asyncio.run(every())


GROWING = {
    "nested lists": lambda n: b"[" * 60 + b",".join([b"[1]"] * (n // 4)) + b"]" * 60,
    "open lists": lambda n: b"[" * n,
    "open mappings": lambda n: b'{"a":' * (n // 5),
    "equal keys": lambda n: b"{" + b",".join([b'"a":1'] * (n // 6)) + b"}",
    "many keys": lambda n: b"{" + b",".join(b'"%d":1' % i for i in range(n // 10)) + b"}",
    "digits": lambda n: b"1" * n,
    "digits of a fraction": lambda n: b"0." + b"1" * n,
    "an exponent": lambda n: b"1e" + b"9" * n,
    "escapes": lambda n: b'"' + b"\\u0041" * (n // 6) + b'"',
    "surrogates": lambda n: b'"' + b"\\ud800" * (n // 6) + b'"',
    "quotes": lambda n: b'"' * n,
    "blanks": lambda n: b" " * n + b"1",
    "a text of numbers": lambda n: b'"' + b"1 " * (n // 2) + b'"',
    "arrays": lambda n: b"[" + b",".join([b'{"array":["<f8",[1],"AAAAAAAA8D8="]}'] * (n // 38)) + b"]",
    "mappings by pairs": lambda n: b'{"dict":[' + b",".join(b"[%d,2]" % i for i in range(n // 8)) + b"]}",
    "no text": lambda n: b"\xff" * n,
}


def read_every_way(text):
    for mode in ("exact", "tolerance", "unordered", "lines", "livecodebench"):
        for has_entry in (True, False):
            read(text, has_entry, "1 2" if mode in ("lines", "livecodebench") else [3, 2, 1], Comparison(mode))
    with contextlib.suppress(ValueError):
        checked(decode(text))
    header = {"status": 0, "ended": None, "oom": 0, "cpu": 0.1, "wall": 0.1, "parts": [len(text), 0, 0]}
    with contextlib.suppress(Malformed):
        Ending.of(header, text).outcome(Limits(), True)


def seconds(text):
    """Return the least CPU time of three tries, without the collections of what else this process holds."""
    best = float("inf")
    gc.disable()
    try:
        for _ in range(3):
            start = time.process_time()
            read_every_way(text)
            best = min(best, time.process_time() - start)
    finally:
        gc.enable()
    return best


@pytest.mark.parametrize("name", GROWING)
def test_time_grows_with_the_output_and_not_faster(name):
    """Four times the output takes less than eleven times as long, in one of five tries: a square takes sixteen in each."""
    tries = []
    for _ in range(5):
        tries.append(tuple(seconds(GROWING[name](size)) for size in (100_000, 400_000)))
        if tries[-1][1] < 11 * tries[-1][0] + 0.1:
            return
    pytest.fail(f"seconds for 100,000 and 400,000 bytes: {tries}")
