"""Prompts show what the parent fails, cut to size, and never a hidden test."""

import numpy as np

from evolve import problem as problems
from evolve import prompt
from evolve.population import Member
from evolve.score import Score
from sandbox.base import Verdict
from sandbox.judge import TestResult
from tests.conftest import write_problem


def built(folder, m=2, inspirations=(), **result):
    problem = problems.load(folder)
    parent = Member(1, problem.initial, np.array([1.0, 0, 0]), 1 / 3)
    results = [TestResult(Verdict.PASS, 1.0, "2"), TestResult(Verdict.WRONG, 0.0, "2"), TestResult(**result)]
    score = Score(tuple(results), parent.scores, True, "test", parent.fitness, False)
    view = prompt.View(parent, score, others=inspirations, m=m)
    return prompt.TestPrompter(problem).build(view)[1]["content"]


def test_failures_are_shown_with_input_expected_and_got(problem_folder):
    text = built(problem_folder, verdict=Verdict.EXCEPTION, score=0.0, detail="  line 2\nTypeError: no")
    assert "passes 1 of 3 tests" in text
    assert "double('ab'): expected 'abab', got 2" in text
    assert "double([1]): expected [1, 1], exception: TypeError: no" in text
    assert "double(1)" not in text
    assert "21" not in text
    assert "### Solution 2" in text


def test_one_answer_asks_for_one_block(problem_folder):
    text = built(problem_folder, m=1, verdict=Verdict.CPU, score=0.0)
    assert "### Solution" not in text
    assert "single ```python block" in text


def test_long_values_are_cut(tmp_path):
    tests = [{"id": str(i), "args": ["x" * 5000], "expected": "y" * 5000} for i in range(3)]
    text = built(write_problem(tmp_path / "p", tests=tests), verdict=Verdict.WRONG, score=0.0, got="z" * 400)
    assert len(text) < 3000


def test_inspirations_are_shown(problem_folder):
    helper = Member(2, "def double(x):\n    return x + x\n", np.array([0, 1.0, 1]), 2 / 3)
    assert "return x + x" in built(problem_folder, inspirations=(helper,), verdict=Verdict.WRONG, score=0.0)
