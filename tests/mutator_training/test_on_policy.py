"""Which problems a step of an on-policy training draws, and what is said about wrong input."""

import pytest

from evolve.errors import BadInput
from mutator_training.on_policy import drawn, places
from tests.conftest import write_problem


def test_every_problem_is_drawn_once_before_one_is_drawn_again():
    steps = [drawn(5, 3, step, seed=1) for step in range(1, 11)]
    flat = [place for step in steps for place in step]
    assert all(sorted(flat[epoch * 5 : epoch * 5 + 5]) == [0, 1, 2, 3, 4] for epoch in range(6))
    assert drawn(5, 3, 4, seed=1) == steps[3]
    assert flat != [place for step in range(1, 11) for place in drawn(5, 3, step, seed=2)]


def test_two_problems_of_one_name_are_refused(tmp_path):
    folders = [write_problem(tmp_path / part / "double") for part in ("a", "b")]
    with pytest.raises(BadInput, match="are called double"):
        places(folders, tmp_path / "training")
    (place,) = places(folders[:1], tmp_path / "training")
    assert place.run == tmp_path / "training" / "runs" / "double"
