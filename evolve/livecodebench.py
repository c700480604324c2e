"""Turn LiveCodeBench's published JSONL (arXiv 2403.07974; code_generation_lite) into problem folders.

Its private tests are base64 of zlib of a pickle of JSON text. The pickle is never loaded: its opcodes are read, and anything
but one string is refused. Tests on stdin become stdin problems, LeetCode's become functions. What can't be turned is listed
with its reason.
"""

from __future__ import annotations

import ast
import base64
import binascii
import json
import pickletools
import re
import zlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import date, datetime
from pathlib import Path
from typing import Any

import yaml

from evolve.errors import BadInput
from evolve.files import make_folder

TRAIN_BEFORE = date(2025, 2, 1)
HELD_OUT_BEFORE = date(2025, 5, 1)
"""The split by contest date in arXiv 2605.22817."""

IDENTITY = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,80}")
"""Of a task: it becomes the name of a folder."""

TESTS = 16
"""Tests of a problem, the smallest ones (arXiv 2605.22817)."""

HARMLESS = {"PROTO", "FRAME", "MEMOIZE", "BINPUT", "LONG_BINPUT", "PUT", "STOP"}
TEXTS = {"SHORT_BINUNICODE", "BINUNICODE", "BINUNICODE8", "UNICODE"}
STARRED = (
    *("string", "re", "datetime", "collections", "heapq", "bisect", "copy", "math", "random", "statistics"),
    *("itertools", "functools", "operator", "io", "sys", "json", "builtins", "typing"),
)
PREAMBLE = (
    "".join(f"from {name} import *\n" for name in STARRED)
    + "".join(f"import {name}\n" for name in STARRED if name not in ("builtins", "typing"))
    + "sys.setrecursionlimit(50000)\n"
)
"""What the benchmark's own runner puts before every program (arXiv 2403.07974, `testing_util.py`)."""

MOST_BYTES = 256 << 20
"""Of private tests, unpacked."""


@dataclass(frozen=True, slots=True)
class Task:
    """One line of the file.

    Attributes:
        identity: `question_id`.
        title, statement: of the problem.
        day: of the contest.
        starter: `starter_code`; empty for stdin programs.
        function: name of the method that the tests call, or None for stdin programs.
        tests: `input` and `output` of each, the public ones first.
    """

    identity: str
    title: str
    statement: str
    day: date
    starter: str
    function: str | None
    tests: Sequence[tuple[str, str]]


def text_of_pickle(data: bytes) -> str:
    """Return the one string that a pickle holds, without loading it.

    Raises:
        ValueError: it holds anything else.
    """
    found: list[str] = []
    try:
        for opcode, argument, _ in pickletools.genops(data):
            if opcode.name in TEXTS:
                found.append(str(argument))
            elif opcode.name not in HARMLESS:
                raise ValueError(f"expected a pickle of one string, came the opcode {opcode.name}")
    except (IndexError, UnicodeError) as error:
        raise ValueError(f"a damaged pickle: {error}") from None
    if len(found) != 1:
        raise ValueError(f"expected a pickle of one string, came {len(found)}")
    return found[0]


def private_tests(text: str) -> list[Mapping[str, str]]:
    """Decode `private_test_cases`, packed or plain JSON.

    Raises:
        ValueError: it is neither.
    """
    try:
        found = json.loads(text)
    except ValueError:
        try:
            unpacker = zlib.decompressobj()
            data = unpacker.decompress(base64.b64decode(text, validate=True), MOST_BYTES)
            if unpacker.unconsumed_tail:
                raise ValueError(f"more than {MOST_BYTES} bytes of tests")
        except (binascii.Error, zlib.error) as error:
            raise ValueError(f"neither JSON nor base64 of zlib: {error}") from None
        found = json.loads(text_of_pickle(data))
    return list(found)


def read(path: Path) -> Iterator[Task]:
    """Read a file's tasks one by one.

    Raises:
        BadInput: a line has another form; the text names it.
    """
    with path.open(encoding="utf-8-sig") as lines:
        for number, line in enumerate(lines, start=1):
            if line.strip():
                try:
                    yield _task(json.loads(line))
                except (ValueError, KeyError, TypeError) as error:
                    kind = f"the key {error} is missing" if isinstance(error, KeyError) else str(error)
                    raise BadInput(f"{path}, line {number}: not a task of LiveCodeBench: {kind}.") from None


def _task(row: Mapping[str, Any]) -> Task:
    if not IDENTITY.fullmatch(str(row["question_id"])):
        raise ValueError(
            f"question_id {str(row['question_id'])[:80]!r} is no name of a folder (letters, digits, `_`, `-`, `.`)"
        )
    tests = [*json.loads(row["public_test_cases"]), *private_tests(row["private_test_cases"])]
    function = json.loads(row["metadata"] or "{}").get("func_name") if row.get("starter_code") else None
    return Task(
        str(row["question_id"]),
        str(row["question_title"]),
        str(row["question_content"]),
        datetime.fromisoformat(row["contest_date"]).date(),
        str(row.get("starter_code") or ""),
        function,
        [(test["input"], test["output"]) for test in tests],
    )


def part(day: date) -> str | None:
    """Return the part of the split that a contest's day is in: `train`, `held_out`, or None when it is later."""
    if day < TRAIN_BEFORE:
        return "train"
    return "held_out" if day < HELD_OUT_BEFORE else None


def write(task: Task, folder: Path, most: int = TESTS) -> tuple[int, int]:
    """Write one task as a problem folder and return the counts of its visible and hidden tests.

    Args:
        task: what is written.
        folder: where.
        most: tests that are taken, the smallest by input and output; every third of them is hidden.

    Raises:
        BadInput: it can't be turned; the text says why.
    """
    chosen = sorted(range(len(task.tests)), key=lambda place: (sum(map(len, task.tests[place])), place))[:most]
    tests = [task.tests[place] for place in sorted(chosen)]
    if not tests:
        raise BadInput(f"{task.identity}: it has no test.")
    spec: dict[str, Any] = {"name": f"lcb-{task.identity}", "limits": {"cpu_seconds": 6.0}, "preamble": PREAMBLE}
    if task.function is None:
        rows = [{"stdin": given, "expected": expected} for given, expected in tests]
        spec |= {"statement": task.statement, "entry": "stdin", "comparison": "livecodebench"}
        initial = "import sys\n\nsys.stdin.read()\n"
    else:
        rows = [_call(task.identity, given, expected) for given, expected in tests]
        initial = _function(task)
        spec |= {"statement": f"{task.statement}\n\nThe function is not in a class:\n\n```python\n{initial}```\n"}
        spec |= {"entry": task.function, "comparison": {"mode": "tolerance", "abs": 1e-5, "rel": 1e-5}}
    make_folder(folder)
    (folder / "problem.yaml").write_text(yaml.safe_dump(spec, sort_keys=False, allow_unicode=True), encoding="utf-8")
    (folder / "initial_program.py").write_text(initial, encoding="utf-8")
    hidden = set(range(2, len(rows), 3))
    with (folder / "tests.jsonl").open("w", encoding="utf-8") as lines:
        for place, row in enumerate(rows):
            line = {"id": f"t{place:02d}", **row} | ({"hidden": True} if place in hidden else {})
            lines.write(json.dumps(line) + "\n")
    return len(rows) - len(hidden), len(hidden)


def _call(identity: str, given: str, expected: str) -> dict[str, Any]:
    """Return a test of a function: each line of its input is an argument."""
    try:
        return {"args": [json.loads(line) for line in given.split("\n") if line.strip()], "expected": json.loads(expected)}
    except ValueError as error:
        raise BadInput(f"{identity}: an argument or result is not JSON ({error}).") from None


def _function(task: Task) -> str:
    """Return LeetCode's method as a function that does nothing."""
    try:
        module = ast.parse(task.starter.rstrip() + "\n        pass\n")
    except SyntaxError as error:
        raise BadInput(f"{task.identity}: its starter code is not Python ({error.msg}).") from None
    for node in ast.walk(module):
        if isinstance(node, ast.FunctionDef) and node.name == task.function:
            names = [argument.arg for argument in node.args.args if argument.arg != "self"]
            return f"def {node.name}({', '.join(names)}):\n    pass\n"
    raise BadInput(f"{task.identity}: its starter code has no method {task.function}.")
