"""Samples as arrays: what passes, what is missing, what a completion is worth."""

import numpy as np
import pytest

from mutator_training.samples import MISSING, Samples


def samples():
    """Two problems (3 and 2 visible tests, 1 hidden), two completions of two answers."""
    visible = np.zeros((2, 2, 2, 3), dtype=np.float32)
    visible[0, 0, 0] = [1, 1, 1]
    visible[0, 1, 1] = [1, 0, 0]
    visible[1, :, :, 2] = np.nan
    visible[1, 0, 0, :2] = [1, 0.5]
    visible[1, 1, 0, :2] = [1, 1]
    hidden = np.zeros((2, 2, 2, 1), dtype=np.float32)
    hidden[1, 1, 0] = 1
    keys = np.array([[[1, 2], [3, 4]], [[5, MISSING], [6, 6]]])
    return Samples(["a", "b"], keys, visible, hidden)


def test_passing_needs_every_test_of_the_problem():
    found = samples()
    assert found.values("pass", "visible").tolist() == [[[1, 0], [0, 0]], [[0, 0], [1, 0]]]
    assert found.values("pass", "hidden").tolist() == [[[0, 0], [0, 0]], [[0, 0], [1, 0]]]
    assert found.values("best", "visible")[1].tolist() == [[0.75, 0], [1, 0]]


def test_curves_per_answer_and_per_completion():
    found = samples()
    assert found.curve("pass", "visible", "answer", [1, 4]) == pytest.approx(np.array([[0.25, 1], [0.25, 1]]))
    assert found.curve("pass", "visible", "completion", [1, 2]) == pytest.approx(np.array([[0.5, 1], [0.5, 1]]))
    assert np.isnan(found.curve("pass", "visible", "completion", [4])).all()
    assert found.full() == 0.75


def test_missing_answers_are_no_programs():
    found = samples().diversity()
    assert found[1].distinct == pytest.approx(2 / 3)
    assert found[1].coverage == 1


def test_a_file_holds_them(tmp_path):
    samples().save(tmp_path / "s.npz")
    again = Samples.load(tmp_path / "s.npz")
    assert again.problems == ["a", "b"]
    assert np.array_equal(again.visible, samples().visible, equal_nan=True)
    assert [path.name for path in tmp_path.iterdir()] == ["s.npz"]
