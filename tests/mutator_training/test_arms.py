"""Arms as they are written, and the sizes that they can have."""

import pytest

from evolve.errors import BadInput
from mutator_training.arms import parse, parse_all


def test_an_arm_and_its_settings():
    arm = parse("vpo:m=8:beta=0.01:concentration=auto:tests=4", 4)
    assert (arm.estimator, arm.answers) == ("vpo", 8)
    assert arm.settings == {"beta": 0.01, "concentration": "auto", "tests": 4}
    assert arm.completions(32) == 4


def test_single_answer_arms_sample_more_completions():
    base, grpo, vpo = parse_all(["base", "grpo", "vpo"], 4, 32, 64)
    assert (base.estimator, base.answers) == (None, 1)
    assert [arm.completions(32) for arm in (grpo, vpo)] == [32, 8]
    assert len({arm.slug for arm in (base, grpo, vpo)}) == 3


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("vpoo", "did you mean 'vpo'"),
        ("vpo:n=3", "has no setting 'n'"),
        ("vpo:m=three", "expected a number for m"),
        ("vpo:m=0", "m must be at least 1"),
        ("grpo:concentration=2", "only vpo has a concentration"),
    ],
)
def test_what_is_wrong_is_said(text, message):
    with pytest.raises(BadInput, match=message):
        parse(text, 4)


def test_sizes_must_divide():
    with pytest.raises(BadInput, match="multiple of 4 of at least 8"):
        parse_all(["vpo"], 4, 6, 64)
    with pytest.raises(BadInput, match="--samples 30"):
        parse_all(["vpo"], 4, 32, 30)
    with pytest.raises(BadInput, match="named twice"):
        parse_all(["vpo", "vpo"], 4, 32, 64)
