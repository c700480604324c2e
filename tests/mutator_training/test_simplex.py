"""The set reward against exact values, brute force and its invariants."""

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as nps

from mutator_training.simplex import alpha, dirichlet, essential, set_reward


def reward(rows, **options):
    return set_reward(np.array(rows, dtype=float), **options)


def one_hot(m, k):
    return np.eye(k)[:m]


def two_binary(p, q, s, k):
    rows = np.zeros((2, k))
    rows[0, :p] = rows[1, p : p + q] = 1
    rows[:, p + q : p + q + s] = 1
    return rows


def monte_carlo(rows, a=1.0, samples=400_000):
    rows = np.asarray(rows, dtype=float)
    values = (np.random.default_rng(0).dirichlet(np.full(rows.shape[1], a), samples) @ rows.T).max(axis=1)
    return values.mean(), values.std() / math.sqrt(samples)


@pytest.mark.parametrize(
    ("m", "k", "value"),
    [(2, 2, 0.75), (3, 3, 0.611111), (4, 4, 0.520833), (8, 8, 0.339732), (2, 4, 0.375), (3, 8, 0.229167)],
)
def test_one_hot_answers(m, k, value):
    assert sum(1 / i for i in range(1, m + 1)) / k == pytest.approx(value, abs=1e-6)
    assert reward(one_hot(m, k)) == pytest.approx(value, abs=1e-9 if m == 2 else 1e-3)


@pytest.mark.parametrize(
    ("p", "q", "s", "k", "value"),
    [(2, 2, 0, 4, 0.6875), (3, 1, 0, 4, 0.78125), (3, 2, 2, 8, 0.6796875), (8, 8, 0, 16, 0.598190)],
)
def test_two_binary_answers(p, q, s, k, value):
    rows = two_binary(p, q, s, k)
    assert reward(rows) == pytest.approx(value, abs=1e-6)
    nearly = np.clip(rows, 1e-13, 1 - 1e-13)  # real answers take the other closed form
    assert reward(nearly) == pytest.approx(reward(rows), abs=1e-9)


def test_two_real_answers():
    assert reward([(0.9, 0.1, 0.4, 0.7), (0.2, 0.8, 0.5, 0.3)]) == pytest.approx(0.589858, abs=1e-6)


def test_three_answers():
    assert reward([(1, 0), (0, 1)]) == pytest.approx(0.75, abs=1e-9)
    assert reward([(1, 0), (0, 1), (0.6, 0.6)]) == pytest.approx(0.76, abs=1e-3)


def test_one_objective_is_the_best_answer():
    assert reward([[0.2], [0.7], [0.4]]) == 0.7


def test_one_answer_is_its_mean():
    assert reward([[0.1, 0.2, 0.6]]) == pytest.approx(0.3, abs=1e-15)


def test_no_answer_is_worth_nothing():
    assert reward(np.zeros((0, 3))) == 0.0


def test_an_answer_that_passes_everything_is_worth_1():
    assert reward([[1, 1, 1], [1, 0, 0], [0, 1, 1]]) == 1.0


@pytest.mark.parametrize("k", [2, 5, 12, 64, 200])
def test_two_real_answers_are_stable_with_many_tests(k):
    rows = np.random.default_rng(k).random((2, k))
    mean, error = monte_carlo(rows, samples=40_000)
    assert abs(reward(rows) - mean) < 5 * error


@pytest.mark.parametrize(("m", "k", "a"), [(3, 4, 1.0), (4, 12, 1.0), (4, 40, 0.1), (3, 8, 0.5), (2, 6, 0.3), (6, 10, 1.0)])
@pytest.mark.parametrize("binary", [True, False])
def test_against_monte_carlo(m, k, a, binary):
    rows = np.random.default_rng(m * k).random((m, k))
    rows = (rows < 0.4).astype(float) if binary else rows
    mean, error = monte_carlo(rows, a, 100_000)
    assert abs(set_reward(rows, a) - mean) < 5 * error + 2e-3


GRID = st.integers(0, 4).map(lambda i: i / 4)
SETS = st.tuples(st.integers(1, 4), st.integers(1, 6)).flatmap(lambda shape: nps.arrays(float, shape, elements=GRID))
BINARY = st.tuples(st.integers(1, 4), st.integers(1, 10)).flatmap(
    lambda shape: nps.arrays(float, shape, elements=st.sampled_from([0.0, 1.0]))
)


@given(SETS | BINARY, st.randoms())
@settings(max_examples=150)
def test_duplicates_dominated_answers_and_the_order_of_answers_change_nothing(rows, random):
    value = reward(rows)
    order = random.sample(range(len(rows)), len(rows))
    more = np.concatenate([rows[order], rows[:1], rows[-1:] * 0.5])
    assert reward(more) == value


@given(BINARY, st.randoms())
def test_the_order_of_binary_tests_changes_nothing_to_the_bit(rows, random):
    order = random.sample(range(rows.shape[1]), rows.shape[1])
    assert reward(rows[:, order]) == reward(rows)


@given(SETS, st.randoms())
def test_the_order_of_tests_changes_the_closed_forms_by_nothing_and_estimates_little(rows, random):
    order = random.sample(range(rows.shape[1]), rows.shape[1])
    closed = essential(rows[None]).sum() <= 2 or ((rows == 0) | (rows == 1)).all()
    assert abs(reward(rows) - reward(rows[:, order])) <= (1e-12 if closed else 5e-3)


@given(SETS | BINARY)
def test_bounds(rows):
    value = reward(rows)
    assert rows.mean(axis=1).max() - 1e-12 <= value <= rows.max(axis=0).mean() + 1e-12


@given(SETS, st.floats(0.1, 0.5), st.floats(0, 0.5))
def test_affine(rows, scale, shift):
    assert reward(scale * rows + shift) == pytest.approx(scale * reward(rows) + shift, abs=2e-3)


def test_auto_concentration_keeps_two_halves_apart():
    halves = [(two_binary(k // 2, k // 2, 0, k), k) for k in (2, 16, 64, 512)]
    assert [alpha("auto", k) for _, k in halves] == [1.0, 1.0, 4 / 64, 4 / 512]
    assert [reward(rows) for rows, _ in halves] == pytest.approx([0.75, 0.598, 0.550, 0.518], abs=1e-3)
    assert all(0.66 < reward(rows, concentration="auto") < 0.71 for rows, k in halves if k > 16)


@pytest.mark.parametrize("wrong", [0, -1, math.inf, math.nan])
def test_a_wrong_concentration_is_an_error(wrong):
    with pytest.raises(ValueError, match="concentration"):
        alpha(wrong, 3)


def test_points_are_a_power_of_two():
    with pytest.raises(ValueError, match="power of two"):
        dirichlet(3, 1.0, 100)


@pytest.mark.parametrize(("k", "a"), [(1, 1.0), (3, 1.0), (17, 4 / 17), (100, 0.04)])
def test_weights_have_their_mean_exactly(k, a):
    weights = dirichlet(k, a, 256)
    assert weights.shape == (k, 256)
    assert weights.min() >= 0
    assert np.abs(weights.sum(axis=0) - 1).max() < 1e-12
    assert np.abs(weights.mean(axis=1) - 1 / k).max() < 1e-9


def test_essential_answers():
    rows = np.array([[1, 0, 0], [1, 0, 0], [0, 0, 0], [0, 1, 0.5], [0, 1, 0.4]])
    assert essential(rows[None]).tolist() == [[True, False, False, True, False]]
