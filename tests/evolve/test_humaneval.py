"""HumanEval as problem folders: references pass, broken programs fail, what is left out is listed."""

import ast
import asyncio
import json
from dataclasses import replace

import pytest

from evolve import humaneval
from evolve import problem as problems
from evolve.grading import TestGrader
from sandbox.base import Limits
from sandbox.docker import DockerSandbox
from sandbox.inprocess import InProcessSandbox
from tests.conftest import ROOT


def rewritten(assertion):
    found = humaneval._input_output(ast.parse(assertion).body[0].test)
    if found is None:
        return None
    call, expected, tolerance = found
    return [ast.unparse(one) if one is not None else None for one in (*call.args, expected, tolerance)]


@pytest.mark.parametrize(
    ("assertion", "expected"),
    [
        ("assert candidate(1) == 2", ["1", "2", None]),
        ("assert candidate(1) == 2, 'why'", ["1", "2", None]),
        ("assert candidate('a')", ["'a'", "True", None]),
        ("assert not candidate('a')", ["'a'", "False", None]),
        ("assert candidate(1) is True", ["1", "True", None]),
        ("assert abs(candidate(1) - 2.5) < 1e-6", ["1", "2.5", "1e-06"]),
        ("assert tuple(candidate(1)) == tuple([2])", ["1", "tuple([2])", None]),
        ("assert True", None),
        ("assert candidate(1) < 5", None),
        ("assert candidate(x=1) == 5", None),
        ("assert poly(candidate(1)) == 0", None),
        ("assert candidate(1) == candidate(2) == 3", None),
    ],
)
def test_assertions(assertion, expected):
    assert rewritten(assertion) == expected


async def test_loops_are_capped_and_listed_and_expected_values_are_plain(tmp_path):
    task = {
        "task_id": "HumanEval/x", "entry_point": "f", "prompt": "def f(a):\n", "canonical_solution": "    return a\n",
        "test": "def check(candidate):\n    for i in range(25):\n        assert candidate(i) == i\n"
        "    assert candidate(1) == {1}\n    assert candidate((1, 2)) == (1, 2)\n    assert candidate(1) < 2\n",
    }  # fmt: skip
    imported = await humaneval.write(task, tmp_path / "x", InProcessSandbox())
    problem = problems.load(tmp_path / "x")
    assert len(problem.visible) + len(problem.hidden) == 11
    assert [1, 2] in [test.expected for test in (*problem.visible, *problem.hidden)]
    assert len(imported.left_out) == 3
    assert "15 of its 25" in " ".join(imported.left_out)
    assert "set is not plain" in " ".join(imported.left_out)


async def test_what_a_prompt_gives_is_there_for_programs_that_leave_it_out(tmp_path):
    tasks = humaneval.tasks()
    assert humaneval.before_entry(tasks["HumanEval/0"]).strip() == "from typing import List"
    async with InProcessSandbox() as sandbox:
        await humaneval.write(tasks["HumanEval/0"], tmp_path / "a", sandbox)
        problem = problems.load(tmp_path / "a")
        body = tasks["HumanEval/0"]["canonical_solution"]
        source = f"def has_close_elements(numbers: List[float], threshold: float) -> bool:\n{body}"
        assert (await TestGrader(problem, sandbox).score(source)).solved
        helped = [task for task in tasks.values() if "def " in humaneval.before_entry(task)]
        assert len(helped) >= 3  # such as poly before find_zero
        await humaneval.write(helped[0], tmp_path / "b", sandbox)
        problem = problems.load(tmp_path / "b")
        alone = humaneval.reference(helped[0]).removeprefix(humaneval.before_entry(helped[0]).rstrip())
        assert (await TestGrader(problem, sandbox).score(alone)).solved


@pytest.mark.slow
async def test_references_pass_all_tests_and_empty_functions_fail(tmp_path, docker_url, image):
    tasks = humaneval.tasks()
    failing, fooled, rows = [], [], []
    async with DockerSandbox(docker_url, image, Limits(cpu_seconds=10), size=4) as sandbox:

        async def one(identity, task):
            folder = tmp_path / identity.replace("/", "_")
            rows.append(await humaneval.write(task, folder, sandbox))
            problem = problems.load(folder)
            everything = replace(problem, visible=problem.visible + problem.hidden, hidden=())
            broken = task["prompt"] + f"    pass\n\ndef {task['entry_point']}(*args):\n    return 'broken'\n"
            if not (await TestGrader(everything, sandbox).score(humaneval.reference(task))).solved:
                failing.append(identity)
            scorer = TestGrader(problem, sandbox)
            if (await scorer.score(problem.initial)).solved or (await scorer.score(broken)).solved:
                fooled.append(identity)

        await asyncio.gather(*(one(identity, task) for identity, task in tasks.items()))
    assert len(rows) == 164
    assert fooled == []
    listed = json.loads((ROOT / "docs" / "humaneval.json").read_text())
    assert sorted(failing) == sorted(listed["reference_fails"])
    assert len(tasks) - len(failing) >= 160
    left_out = {row.task: row.left_out for row in rows if any(not out.endswith(": True") for out in row.left_out)}
    assert left_out == listed["left_out"]
