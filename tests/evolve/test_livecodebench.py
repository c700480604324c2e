"""LiveCodeBench's file format, on a small file made here: packed tests, both kinds of problem, split, hostile pickles."""

import base64
import json
import pickle
import zlib
from datetime import date

import pytest
from typer.testing import CliRunner

from evolve import livecodebench as lcb
from evolve import problem as problems
from evolve.cli import app
from evolve.errors import BadInput
from evolve.grading import TestGrader
from sandbox.inprocess import InProcessSandbox


def packed(tests):
    return base64.b64encode(zlib.compress(pickle.dumps(json.dumps(tests)))).decode()


def task(identity="1899_A", day="2024-08-24T00:00:00", **changes):
    row = {
        "question_title": "Sum",
        "question_content": "Read two numbers and write their sum.",
        "platform": "codeforces",
        "question_id": identity,
        "contest_id": "1899",
        "contest_date": day,
        "starter_code": "",
        "difficulty": "easy",
        "public_test_cases": json.dumps([{"input": "1 2\n", "output": "3\n", "testtype": "stdin"}]),
        "private_test_cases": packed(
            [{"input": f"{n} {n}\n", "output": f"{2 * n}\n", "testtype": "stdin"} for n in range(30)]
        ),
        "metadata": "{}",
    }
    return row | changes


def function(identity="3000", day="2025-03-01T00:00:00"):
    return task(
        identity,
        day,
        platform="leetcode",
        starter_code="class Solution:\n    def addUp(self, left: List[int], right: int) -> int:\n        ",
        public_test_cases=json.dumps([{"input": "[1, 2]\n3", "output": "6", "testtype": "functional"}]),
        private_test_cases=packed([{"input": "[]\n0", "output": "0", "testtype": "functional"}]),
        metadata=json.dumps({"func_name": "addUp"}),
    )


def written(path, rows):
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return path


def test_a_stdin_problem_has_the_sixteen_smallest_tests_some_of_them_hidden(tmp_path):
    (found,) = lcb.read(written(tmp_path / "f.jsonl", [task()]))
    assert len(found.tests) == 31
    assert lcb.write(found, tmp_path / "p") == (11, 5)
    problem = problems.load(tmp_path / "p")
    assert problem.entry is None
    assert problem.comparison.mode == "livecodebench"
    assert "from collections import *" in problem.spec.preamble
    assert problem.visible[0].input == "1 2\n"
    lengths = sorted(len(test.input) for test in (*problem.visible, *problem.hidden))
    assert lengths == [4] * 11 + [6] * 5


def test_a_function_problem_asks_for_a_function(tmp_path):
    (found,) = lcb.read(written(tmp_path / "f.jsonl", [function()]))
    assert lcb.write(found, tmp_path / "p") == (2, 0)
    problem = problems.load(tmp_path / "p")
    assert problem.entry == "addUp"
    assert problem.visible[0].input == [[1, 2], 3]
    assert problem.initial == "def addUp(left, right):\n    pass\n"


def test_plain_private_tests_are_taken_too():
    assert lcb.private_tests('[{"input": "1", "output": "2"}]') == [{"input": "1", "output": "2"}]


class Evil:
    def __reduce__(self):
        return (print, ("this would run",))


@pytest.mark.parametrize(
    "value", [Evil(), ["a", "b"], b"bytes", 7, ("a", Evil())], ids=["call", "list", "bytes", "number", "nested"]
)
def test_a_pickle_of_anything_but_one_string_is_refused_and_never_loaded(value, capsys):
    data = base64.b64encode(zlib.compress(pickle.dumps(value))).decode()
    with pytest.raises(ValueError, match="expected a pickle of one string"):
        lcb.private_tests(data)
    assert capsys.readouterr().out == ""


@pytest.mark.parametrize("protocol", range(2, pickle.HIGHEST_PROTOCOL + 1))
def test_every_protocol_of_a_string(protocol):
    text = json.dumps([{"input": "é" * 300, "output": ""}], ensure_ascii=False)
    assert lcb.text_of_pickle(pickle.dumps(text, protocol)) == text


def test_packed_tests_have_a_limit(monkeypatch):
    monkeypatch.setattr(lcb, "MOST_BYTES", 1000)
    with pytest.raises(ValueError, match="more than 1000 bytes"):
        lcb.private_tests(base64.b64encode(zlib.compress(b"0" * 5000)).decode())


@pytest.mark.parametrize(
    ("row", "message"),
    [
        ({"question_id": 1}, "'public_test_cases' is missing"),
        (task(private_test_cases="%%"), "neither JSON nor base64"),
        (task(contest_date="soon"), "Invalid isoformat"),
        ([], "not a task"),
    ],
)
def test_a_wrong_line_is_named(tmp_path, row, message):
    with pytest.raises(BadInput, match=f"line 2.*{message}"):
        list(lcb.read(written(tmp_path / "f.jsonl", [task(), row])))


def test_the_split_is_by_the_day_of_the_contest():
    days = (date(2025, 1, 31), date(2025, 2, 1), date(2025, 4, 30), date(2025, 5, 1))
    assert [lcb.part(day) for day in days] == ["train", "held_out", "held_out", None]


def test_the_command_writes_both_parts_and_says_what_it_leaves_out(tmp_path):
    rows = [task(), function(), task("late", "2025-06-01T00:00:00"), function("odd") | {"starter_code": "class {"}]
    file = written(tmp_path / "f.jsonl", rows)
    result = CliRunner().invoke(app, ["import", "livecodebench", str(file), "--out", str(tmp_path / "o"), "--json"])
    assert result.exit_code == 0, result.output
    found = json.loads(result.stdout)
    assert [row["part"] for row in found] == ["train", "held_out", None, "held_out"]
    assert "not before 2025-05-01" in found[2]["left_out"]
    assert "starter code is not Python" in found[3]["left_out"]
    assert sorted(path.name for path in (tmp_path / "o").iterdir()) == ["held_out", "import.json", "train"]


@pytest.mark.parametrize("identity", ["../../x", "/etc/x", "a/b", "..", "", "a\nb", "x" * 100])
def test_an_identity_that_is_no_name_is_refused(tmp_path, identity):
    file = tmp_path / "tasks.jsonl"
    file.write_text(json.dumps({"question_id": identity, "public_test_cases": "[]", "private_test_cases": "[]"}) + "\n")
    with pytest.raises(BadInput, match="is no name of a folder"):
        list(lcb.read(file))


def test_a_mark_of_byte_order_and_raw_line_separators(tmp_path):
    row = task(question_content="first\u2028second\u0085third")
    path = tmp_path / "f.jsonl"
    path.write_text(json.dumps(row, ensure_ascii=False) + "\n", encoding="utf-8-sig")
    (found,) = lcb.read(path)
    assert found.statement == "first\u2028second\u0085third"


async def test_programs_may_leave_out_the_imports_that_the_benchmark_gives(tmp_path):
    (found,) = lcb.read(written(tmp_path / "f.jsonl", [function()]))
    lcb.write(found, tmp_path / "p")
    problem = problems.load(tmp_path / "p")
    source = "def addUp(left: List[int], right: int) -> int:\n    return sum(deque(left), right) + floor(math.pi) - 3\n"
    async with InProcessSandbox() as sandbox:
        assert (await TestGrader(problem, sandbox).score(source)).solved
