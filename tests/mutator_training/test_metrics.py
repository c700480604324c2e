"""pass@k, best@k, diversity and claims, against enumeration and against comparisons that are known to be equal."""

import itertools

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mutator_training.metrics import best_at_k, difference, diversity, interval, pass_at_k, simultaneous


@given(st.integers(1, 9).flatmap(lambda n: st.tuples(st.just(n), st.integers(0, n), st.integers(1, n))))
def test_pass_at_k_is_the_share_of_subsets_with_a_correct_one(sizes):
    n, correct, k = sizes
    draws = list(itertools.combinations([1] * correct + [0] * (n - correct), k))
    assert pass_at_k(n, correct, k) == pytest.approx(np.mean([any(draw) for draw in draws]), abs=1e-12)


@given(st.lists(st.floats(0, 1), min_size=1, max_size=8).flatmap(lambda v: st.tuples(st.just(v), st.integers(1, len(v)))))
def test_best_at_k_is_the_mean_maximum_over_subsets(case):
    values, k = case
    expected = np.mean([max(draw) for draw in itertools.combinations(values, k)])
    assert best_at_k(np.array(values), k) == pytest.approx(expected, abs=1e-12)


def test_best_at_k_of_passes_is_pass_at_k_for_many_samples():
    rng = np.random.default_rng(0)
    for n, correct in ((256, 0), (256, 1), (256, 40), (1000, 3), (256, 256)):
        values = rng.permutation(np.array([1.0] * correct + [0.0] * (n - correct)))
        for k in (1, 2, 17, 128, n):
            assert best_at_k(values, k) == pytest.approx(pass_at_k(n, correct, k), abs=1e-9)


@pytest.mark.parametrize("k", [0, 4])
def test_more_than_there_are_is_refused(k):
    with pytest.raises(ValueError, match=r"k must be in 1..3"):
        pass_at_k(3, 1, k)
    with pytest.raises(ValueError, match=r"k must be in 1..3"):
        best_at_k(np.zeros(3), k)


def test_diversity_against_enumeration():
    rng = np.random.default_rng(1)
    scores = rng.integers(0, 3, (7, 4)) / 2
    keys = [1, 1, 2, 3, 4, 5, 5]
    found = diversity(keys, scores)
    pairs = [np.abs(a - b).mean() for a, b in itertools.combinations(scores, 2)]
    rows = {tuple(row) for row in scores}
    best = [a for a in rows if not any(b != a and all(x >= y for x, y in zip(b, a, strict=True)) for b in rows)]
    assert found.distinct == pytest.approx(5 / 7)
    assert found.distance == pytest.approx(np.mean(pairs))
    assert found.coverage == pytest.approx(scores.max(axis=0).mean())
    assert found.pareto == pytest.approx(len(best) / len(rows))


def test_no_answer_and_one_answer_are_no_diversity():
    assert diversity([], np.zeros((0, 3))).distinct == 0
    alone = diversity([7], np.array([[1.0, 0.0]]))
    assert (alone.distance, alone.coverage, alone.pareto) == (0, 0.5, 1)


def comparison(rng, seeds=3, problems=40, gap=0.0):
    """Two arms on the same problems: problems differ, trainings differ, and each cell has noise of its own."""
    hardness = rng.beta(1, 2, problems)
    arms = []
    for shift in (gap, 0.0):
        training = rng.normal(0, 0.05, (seeds, 1))
        taste = rng.normal(0, 0.05, (1, problems))
        noise = rng.normal(0, 0.05, (seeds, problems))
        arms.append(np.clip(hardness + training + taste + noise + shift, 0, 1))
    return arms


@pytest.mark.parametrize(("seeds", "problems"), [(3, 40), (2, 160), (5, 12)])
def test_identical_arms_give_at_most_seven_percent_false_claims(seeds, problems):
    rng = np.random.default_rng(7)
    claims = [difference(*comparison(rng, seeds, problems), draws=500).claimed for _ in range(200)]
    assert np.mean(claims) <= 0.07


def measures(rng, count, gap=0.0):
    """Two arms in many measures of the same answers, most of what differs in common, as pass@1, pass@2, ... have it."""
    first, second = comparison(rng, gap=gap)
    noise = [rng.normal(0, 0.03, (2, *first.shape)) for _ in range(count)]
    return [(first + one, second + other) for one, other in noise]


def carried(bounds):
    return [low > 0 or high < 0 for low, high in bounds]


def test_of_many_measures_of_identical_arms_hardly_any_is_carried():
    rng = np.random.default_rng(11)
    alone, together = [], []
    for _ in range(200):
        pairs = measures(rng, 24)
        alone.append(any(difference(*pair, draws=300).claimed for pair in pairs))
        together.append(any(carried(simultaneous(pairs, draws=300))))
    assert np.mean(together) <= 0.07
    assert np.mean(alone) > 2 * np.mean(together)


def test_intervals_that_hold_together_are_no_shorter_and_still_carry_what_is_there():
    rng = np.random.default_rng(12)
    pairs = measures(rng, 24, gap=0.3)
    together = simultaneous(pairs, draws=500)
    for pair, (low, high) in zip(pairs, together, strict=True):
        own = difference(*pair, draws=500)
        assert low <= own.low <= own.high <= high
    assert np.mean(carried(together)) > 0.9
    mirrored = simultaneous([(second, first) for first, second in pairs], draws=500)
    assert np.allclose([(-high, -low) for low, high in mirrored], together)
    assert simultaneous([(np.ones((3, 5)), np.ones((3, 5)))]) == [(0, 0)]


def test_a_real_difference_is_claimed():
    rng = np.random.default_rng(3)
    found = [difference(*comparison(rng, gap=0.3), draws=500) for _ in range(20)]
    assert np.mean([one.claimed for one in found]) >= 0.9
    assert all(one.low <= one.mean <= one.high for one in found)


@settings(max_examples=20)
@given(st.integers(0, 1000))
def test_swapping_the_arms_mirrors_everything(seed):
    first, second = comparison(np.random.default_rng(seed), gap=0.1)
    one, other = difference(first, second, draws=300), difference(second, first, draws=300)
    assert one.mean == -other.mean
    assert one.low == pytest.approx(-other.high, abs=1e-12)
    assert (one.better, one.worse, one.claimed) == (other.worse, other.better, other.claimed)
    assert one.sign_p == other.sign_p


def test_one_training_claims_nothing():
    found = difference(np.full((1, 50), 0.9), np.zeros((1, 50)))
    assert found.low > 0
    assert not found.claimed


def test_equal_arrays_have_no_interval():
    found = difference(np.full((3, 5), 0.25), np.full((3, 5), 0.25))
    assert (found.mean, found.low, found.high, found.claimed, found.sign_p) == (0, 0, 0, False, 1)


def test_shapes_must_agree():
    with pytest.raises(ValueError, match="one shape"):
        difference(np.zeros((2, 3)), np.zeros((3, 2)))
    assert interval(np.array([[0.0, 1.0], [0.0, 1.0]]))[0] == 0.5
