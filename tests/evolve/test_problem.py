"""Problem folders: every kind of broken one is an error that names the place and what was expected."""

import json
import re

import pytest

from evolve.errors import ProblemError
from evolve.problem import load
from tests.conftest import ROOT, write_problem

SPEC = {"name": "double", "statement": "s", "entry": "double"}
TEST = {"id": "a", "args": [1], "expected": 2}


def lines(*tests):
    return "\n".join(json.dumps(test) for test in tests)


BROKEN = {
    "no yaml": ({"problem.yaml": None}, r"problem\.yaml is missing"),
    "not yaml": ({"problem.yaml": "a: [1"}, r"problem\.yaml is not YAML"),
    "a list": ({"problem.yaml": "- 1"}, r"must hold keys"),
    "unknown key": ({"problem.yaml": "name: d\nstatement: s\nentrie: double\nentry: double"},
                    r"line 3: unknown key 'entrie'; did you mean 'entry'\?"),
    "unknown nested key": ({"problem.yaml": json.dumps(SPEC | {"limits": {"memory": 3}})},
                           r"unknown key 'limits\.memory'; did you mean 'memory_mb'\?"),
    "missing key": ({"problem.yaml": "name: d\nentry: double"}, r"'statement' is missing"),
    "wrong type": ({"problem.yaml": "name: d\nstatement: s\nentry: double\nlimits:\n  cpu_seconds: fast"},
                   r"line 5: 'limits\.cpu_seconds'.*came \"fast\""),
    "wrong range": ({"problem.yaml": json.dumps(SPEC | {"limits": {"cpu_seconds": 0}})}, r"greater than 0"),
    "wrong mode": ({"problem.yaml": json.dumps(SPEC | {"comparison": "fuzzy"})}, r"comparison\.mode.*came \"fuzzy\""),
    "entry is no name": ({"problem.yaml": json.dumps(SPEC | {"entry": "a b"})}, r"name of a function, or stdin"),
    "other language without run": ({"problem.yaml": json.dumps(SPEC | {"language": "cpp", "entry": "stdin"})},
                                   r"needs the key run"),
    "other language with a function": ({"problem.yaml": json.dumps(SPEC | {"language": "cpp", "run": "./program"})},
                                       r"entry must be stdin"),
    "python with build": ({"problem.yaml": json.dumps(SPEC | {"build": "make"})}, r"other languages than python"),
    "objective upside down": ({"problem.yaml": json.dumps(SPEC | {"objectives": {"size": {"best": 9.0, "worst": 1.0}}})},
                              r"worst must be greater"),
    "no initial program": ({"initial_program.py": None}, r"initial_program\.py is missing"),
    "empty initial program": ({"initial_program.py": " \n"}, r"is empty"),
    "no tests": ({"tests.jsonl": None}, r"tests\.jsonl is missing"),
    "empty tests": ({"tests.jsonl": "\n"}, r"holds no test"),
    "test not JSON": ({"tests.jsonl": lines(TEST) + "\n{oops"}, r"line 2: not JSON"),
    "test not an object": ({"tests.jsonl": "[1]"}, r"line 1: expected an object"),
    "test with an unknown key": ({"tests.jsonl": lines(TEST | {"hiden": True})},
                                 r"line 1: unknown key 'hiden'; did you mean 'hidden'\?"),
    "test without expected": ({"tests.jsonl": lines({"id": "a", "args": []})}, r"'expected' is missing"),
    "test for stdin": ({"tests.jsonl": lines({"id": "a", "stdin": "x", "expected": "y"})}, r"has 'args' and no 'stdin'"),
    "same id twice": ({"tests.jsonl": lines(TEST, TEST)}, r"line 2: the id 'a' is already used in line 1"),
    "only hidden tests": ({"tests.jsonl": lines(TEST | {"hidden": True})}, r"no visible test"),
    "checker is missing": ({"problem.yaml": json.dumps(SPEC | {"comparison": "checker"})}, r"no checker\.py"),
    "checker is not named": ({"checker.py": "def check(input, expected, got): return 1"}, r"nothing would call it"),
    "checker without check": ({"problem.yaml": json.dumps(SPEC | {"comparison": "checker"}), "checker.py": "x = 1"},
                              r"must define `check"),
    "expected NaN": ({"tests.jsonl": '{"id": "a", "args": [1], "expected": NaN}'}, r"line 1: .*NaN"),
    "expected infinity": ({"tests.jsonl": '{"id": "a", "args": [1], "expected": 1e400}'}, r"line 1: .*Infinity"),
    "expected is nested too deep": ({"tests.jsonl": lines(TEST | {"expected": json.loads("[" * 65 + "]" * 65)})},
                                    r"line 1: no answer can be equal to 'expected'"),
    "expected is more than may be written": ({"tests.jsonl": lines(TEST | {"expected": "x" * 2_000_000})},
                                             r"line 1: 'expected' has 1953 KB.*output_kb"),
    "stdin is no text": ({"problem.yaml": json.dumps(SPEC | {"entry": "stdin"}),
                          "tests.jsonl": '{"id": "a", "stdin": "\\ud800", "expected": "1"}'}, r"line 1: 'stdin' holds half"),
    "expected can't be printed": ({"problem.yaml": json.dumps(SPEC | {"entry": "stdin"}),
                                   "tests.jsonl": '{"id": "a", "stdin": "1", "expected": "\\udfff"}'},
                                  r"line 1: 'expected' holds half"),
    "statement is no text": ({"problem.yaml": json.dumps(SPEC | {"statement": "\ud800"})}, r"half of a surrogate pair"),
    "preamble is no Python": ({"problem.yaml": json.dumps(SPEC | {"preamble": "import ("})}, r"preamble is not Python"),
    "preamble of another language": ({"problem.yaml": json.dumps(
        SPEC | {"language": "cpp", "entry": "stdin", "run": "./program", "preamble": "x = 1"})}, r"preamble is for"),
    "livecodebench with a function": ({"problem.yaml": json.dumps(SPEC | {"comparison": "livecodebench"})},
                                      r"entry must be stdin"),
}  # fmt: skip


@pytest.mark.parametrize("kind", BROKEN)
def test_broken_folders(tmp_path, kind):
    files, message = BROKEN[kind]
    folder = write_problem(tmp_path / "p", files=files)
    for name, text in files.items():
        if text is None:
            (folder / name).unlink(missing_ok=True)
    with pytest.raises(ProblemError) as caught:
        load(folder)
    assert re.search(message, str(caught.value)), str(caught.value)


def test_not_a_folder(tmp_path):
    with pytest.raises(ProblemError, match="not a folder"):
        load(tmp_path / "none")


def test_a_right_folder(problem_folder):
    problem = load(problem_folder)
    assert problem.objectives == ("one", "text", "list")
    assert [test.id for test in problem.hidden] == ["h"]
    assert problem.visible[1].data == b'["ab"]'
    assert problem.limits.wall == 3 * problem.limits.cpu_seconds + 1


def test_the_digest_changes_with_what_decides_a_score(problem_folder):
    before = load(problem_folder).digest
    assert load(problem_folder).digest == before
    write_problem(problem_folder, spec={"limits": {"cpu_seconds": 1.0}})
    assert load(problem_folder).digest != before


@pytest.mark.parametrize("name", ["calculator", "csv_line"])
def test_shipped_problems(name):
    problem = load(ROOT / "problems" / name)
    assert len(problem.visible) >= 12
    assert len(problem.hidden) >= 8


def test_raw_line_separators_and_marks_of_byte_order_are_read(tmp_path):
    folder = write_problem(tmp_path / "p", files={"tests.jsonl": lines(TEST)})
    test = TEST | {"args": ["a\u2028b\u0085c\x0bd"], "expected": "\u2029"}
    for name, text in (
        ("tests.jsonl", json.dumps(test, ensure_ascii=False) + "\r\n"),
        ("problem.yaml", json.dumps(SPEC)),
        ("initial_program.py", "def double(x):\n    return x\n"),
    ):
        (folder / name).write_text(text, encoding="utf-8-sig", newline="")
    problem = load(folder)
    assert [(test.input, test.expected) for test in problem.visible] == [(["a\u2028b\u0085c\x0bd"], "\u2029")]
    assert problem.initial.startswith("def")


def test_integers_of_many_digits_are_read(tmp_path):
    digits = "9" * 9000
    text = f'{{"id": "a", "args": [{digits}], "expected": {digits}}}'
    folder = write_problem(tmp_path / "p", files={"problem.yaml": json.dumps(SPEC), "tests.jsonl": text})
    (test,) = load(folder).visible
    assert len(test.data) == 9002
    assert test.expected == test.input[0]


def test_the_preamble_decides_scores_and_its_absence_changes_no_old_digest(tmp_path):
    plain = load(write_problem(tmp_path / "p", spec={}))
    empty = load(write_problem(tmp_path / "p", spec={"preamble": ""}))
    other = load(write_problem(tmp_path / "p", spec={"preamble": "import math"}))
    assert plain.digest == empty.digest != other.digest
