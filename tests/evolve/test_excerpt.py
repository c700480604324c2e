"""Long programs in prompts: what may change comes first, cuts are marked, the room follows the model's context."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from evolve import problem as problems
from evolve.completion import Message
from evolve.errors import ProblemError
from evolve.excerpt import excerpt
from evolve.metrics_prompt import MetricsPrompter
from evolve.mutator import OpenAIMutator
from evolve.population import Member
from evolve.prompt import View, block, shorten
from evolve.score import Score
from evolve.settings import search_options
from sandbox.base import Verdict
from sandbox.judge import TestResult
from tests.conftest import write_problem
from tests.evolve.fake_server import serving
from tests.evolve.test_directions import ERRORS, folder

BEFORE = "".join(f"# constant number {i}\nA{i} = {i}\n" for i in range(600))
BLOCK = (
    "# EVOLVE-BLOCK-START\n" + "".join(f"def step_{i}(x):\n    return x + {i}\n" for i in range(50)) + "# EVOLVE-BLOCK-END\n"
)
AFTER = "".join(f"def helper_{i}():\n    return A{i}\n" for i in range(600))
LONG = BEFORE + BLOCK + AFTER


def view(source, room):
    member = Member(1, source, np.array([0.5]), 0.5)
    score = Score((TestResult(Verdict.PASS, 1.0),), member.scores, True, "test", 0.5, False, metrics={"score": 0.5})
    return View(member, score, room=room)


def test_the_block_and_its_neighbourhood_are_shown_whole_and_cuts_are_marked(tmp_path):
    problem = problems.load(folder(tmp_path / "p", ERRORS, LONG))
    text = MetricsPrompter(problem).build(view(problem.initial, 6000))[1]["content"]
    assert BLOCK in text
    assert "A599 = 599\n# EVOLVE-BLOCK-START" in text
    assert "# EVOLVE-BLOCK-END\ndef helper_0" in text
    assert text.count("lines of this program are not shown") == 2
    assert "constant number 1\n" not in text


def test_a_program_that_fits_is_shown_whole(tmp_path):
    problem = problems.load(folder(tmp_path / "p", ERRORS, LONG))
    assert LONG in MetricsPrompter(problem).build(view(problem.initial, 60_000))[1]["content"]


def test_a_block_longer_than_the_room_loses_its_middle():
    shown = excerpt(LONG, 800)
    assert "EVOLVE-BLOCK" not in shown or "def step_0" in shown
    assert "def step_0(x)" in shown
    assert "return x + 49" in shown
    assert "step_25" not in shown
    assert shown.count("not shown") >= 2


@given(st.text(alphabet=st.characters(blacklist_categories=["Cs"]), max_size=4000), st.integers(100, 3000))
@settings(max_examples=200)
def test_an_excerpt_is_bounded_and_made_of_the_programs_lines(source, room):
    shown = excerpt(source, room)
    if len(source.rstrip()) <= room:
        assert shown == source.rstrip()
        return
    lines = set(source.split("\n"))
    marks = [line for line in shown.split("\n") if "[... " in line]
    assert len(shown) - sum(map(len, marks)) <= room
    assert all(line.rstrip() in {one.rstrip() for one in lines} for line in shown.split("\n") if "[... " not in line)


def test_marks_are_comments_of_the_language():
    assert "\n# [... " in excerpt("x = 1\n" * 1000, 300)
    assert "\n// [... " in excerpt("int x;\n" * 1000, 300, "cpp")


def test_a_program_with_fences_stays_in_its_fence():
    source = 'TEXT = """\n```python\nx\n```\n"""\n'
    assert block("python", source) == f"````python\n{source}````"


def test_shortening_never_takes_a_comment_for_a_heading():
    source = "# Other programs\nx = 1\n# Tests that it fails\n" + "y = 2\n" * 200
    prompt: list[Message] = [
        {"role": "user", "content": f"# Task\nDo.\n\n# Current program\n{block('python', source)}\n\n# Your answer\nWrite."}
    ]
    lengths = []
    shorter = shorten(prompt)
    while shorter is not None and len(lengths) < 20:
        text = shorter[0]["content"]
        assert text.startswith("# Task\nDo.") and text.endswith("# Your answer\nWrite.")
        assert text.count("```") % 2 == 0
        assert "not shown" in text or "cut here" in text
        lengths.append(len(text))
        shorter = shorten(shorter)
    assert lengths == sorted(set(lengths), reverse=True)
    assert lengths[-1] < 700


def test_a_seed_longer_than_max_code_length_is_refused(tmp_path):
    with pytest.raises(ProblemError, match=r"\d+ characters and .*max_code_length: 10000"):
        problems.load(folder(tmp_path / "p", ERRORS, LONG, config="max_code_length: 10000\n"))


def test_without_a_limit_a_candidate_may_be_twice_as_long_as_the_seed(tmp_path):
    evaluated = problems.load(folder(tmp_path / "p", ERRORS, LONG))
    assert search_options(evaluated, {}).longest == 2 * len(evaluated.initial) > 20_000
    tested = problems.load(write_problem(tmp_path / "t"))
    assert search_options(tested, {}).longest == 20_000


@pytest.mark.parametrize(
    ("context", "least", "most"), [(2048, 1000, 3100), (8192, 10_000, 20_000), (131_072, 200_000, 400_000)]
)
async def test_the_room_follows_the_models_context(context, least, most):
    with serving() as server:
        server.context = context
        async with OpenAIMutator(server.url) as mutator:
            assert least <= mutator.room <= most
            mutator._context = 300
            assert mutator.room == 1000
