"""Every estimator against values worked out by hand or by enumeration, and what all of them have in common."""

import itertools

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mutator_training.estimators import ESTIMATORS, SEVERAL_ANSWERS, diagnose


def run(name, matrices, **options):
    return ESTIMATORS[name]([np.array(matrix, dtype=float) for matrix in matrices], **options)


GROUP = [[[1, 0]], [[1, 1]], [[0, 0]], [[0, 1]]]  # means .5, 1, 0, .5
Z = np.sqrt(0.125)


def test_values_by_hand():
    assert run("grpo", GROUP) == pytest.approx([0, 0.5 / Z, -0.5 / Z, 0], rel=1e-5)
    assert run("dr_grpo", GROUP) == pytest.approx([0, 0.5, -0.5, 0])
    assert run("maxrl", GROUP) == pytest.approx([0, 1, -1, 0], rel=1e-5)
    assert run("gdpo", GROUP) == pytest.approx([0, 1, -1, 0], rel=1e-5)
    assert run("best_of_m", [[[1, 0], [0, 1]], [[0.6, 0.6]]]) == pytest.approx([-1, 1], rel=1e-4)
    assert run("vpo", [[[1, 0], [0, 1]], [[0.6, 0.6]]]) == pytest.approx([1, -1], rel=1e-4)
    assert run("multi_rlvr", [[[1, 0], [0, 1]], [[0.6, 0.6]]]) == pytest.approx([1, -1], rel=1e-4)


def test_gdpo_tells_apart_what_grpo_does_not():
    group = [[[1, 0]], [[0, 1]], [[0, 1]], [[0, 0]]]
    assert run("grpo", group)[0] == run("grpo", group)[1]
    assert run("gdpo", group)[0] > run("gdpo", group)[1] + 0.1  # the rarer test counts for more


@pytest.mark.parametrize("subset", [2, 3, 5])
def test_max_at_k_is_the_mean_gain_over_all_subsets(subset):
    rewards = np.random.default_rng(3).random(5)
    found = run("max_at_k", [[[value]] for value in rewards], subset=subset)
    for index, value in enumerate(rewards):
        others = [rewards[i] for i in range(5) if i != index]
        gains = [max(0.0, value - max(chosen)) for chosen in itertools.combinations(others, subset - 1)]
        assert found[index] == pytest.approx(np.mean(gains))


def test_random_weighting_depends_on_its_seed_alone():
    first, again, other = (run("random_weighting", GROUP, seed=seed) for seed in (1, 1, 2))
    assert (first == again).all()
    assert (first != other).any()


TIED = [
    [[[1, 0, 0, 0]], [[0, 1, 0, 0]], [[0, 0, 1, 0]], [[0, 0, 0, 1]]],  # each passes one other test
    [[[1, 0, 0], [0, 1, 0]], [[0, 1, 0], [0, 0, 1]], [[1, 0, 0], [0, 0, 1], [0, 0, 0]]],
    [[[1, 0, 0, 0], [0, 1, 0, 0], [0, 0, 1, 0]], [[0, 0, 0, 1], [0, 1, 0, 0], [1, 0, 0, 0]]],
    [[[0.3, 0.6], [0.6, 0.3]], [[0.6, 0.3], [0.3, 0.6]]],
    [[[0.1, 0.2, 0.6]], [[0.6, 0.1, 0.2]], [[0.2, 0.6, 0.1]]],
    [
        [[0.1, 0.9, 0.5], [0.9, 0.1, 0.5], [0.5, 0.5, 0.6]],
        [[0.5, 0.9, 0.1], [0.5, 0.1, 0.9], [0.6, 0.5, 0.5]],
    ],  # real, m = 3
]


@pytest.mark.parametrize("group", TIED)
def test_a_tied_group_gives_exact_zeros(group):
    assert run("vpo", group).tolist() == [0.0] * len(group)
    assert diagnose([np.array(matrix, dtype=float) for matrix in group]).tied


def test_sampled_weights_would_not():
    """What the canonical estimator is for: the reference's way gives a tied group advantages of about 1."""
    rng = np.random.default_rng(0)
    sizes = []
    for _ in range(50):
        weights = rng.dirichlet(np.ones(4), 100)
        rewards = np.array([(weights @ np.array(matrix).T).max(axis=1).mean() for matrix in TIED[0]])
        sizes.append(np.abs((rewards - rewards.mean()) / (rewards.std() + 1e-6)).mean())
    assert np.mean(sizes) > 0.7


MATRIX = st.integers(0, 3).flatmap(
    lambda m: st.lists(st.lists(st.sampled_from([0.0, 0.25, 0.5, 1.0]), min_size=4, max_size=4), min_size=m, max_size=m)
)
GROUPS = st.lists(MATRIX.map(lambda rows: np.array(rows, dtype=float).reshape(-1, 4)), min_size=4, max_size=6)


@pytest.mark.parametrize("name", ESTIMATORS)
@given(group=GROUPS, random=st.randoms())
@settings(max_examples=40, deadline=None)
def test_permuting_completions_permutes_advantages(name, group, random):
    order = random.sample(range(len(group)), len(group))
    found, other = ESTIMATORS[name](group), ESTIMATORS[name]([group[i] for i in order])
    assert found.shape == (len(group),)
    assert np.isfinite(found).all()
    assert other == pytest.approx(found[order], abs=1e-9)


@pytest.mark.parametrize("name", ESTIMATORS)
@given(group=GROUPS, random=st.randoms())
@settings(max_examples=40, deadline=None)
def test_permuting_answers_changes_nothing(name, group, random):
    shuffled = [matrix[random.sample(range(len(matrix)), len(matrix))] for matrix in group]
    found, other = ESTIMATORS[name](group), ESTIMATORS[name](shuffled)
    exact = name in ("grpo", "dr_grpo", "maxrl", "max_at_k", "multi_rlvr", "best_of_m", "vpo")
    assert (found == other).all() if exact else other == pytest.approx(found, abs=1e-9)


@pytest.mark.parametrize("name", ESTIMATORS)
def test_equal_completions_give_exact_zeros(name):
    group = [np.array([[0.1, 0.7, 0.3]])] * 5
    assert ESTIMATORS[name](group).tolist() == [0.0] * 5


@pytest.mark.parametrize("name", ESTIMATORS)
def test_wrong_matrices_are_errors(name):
    with pytest.raises(ValueError, match="at least one"):
        ESTIMATORS[name]([])
    with pytest.raises(ValueError, match="one k"):
        ESTIMATORS[name]([np.zeros((1, 2)), np.zeros((1, 3))])
    with pytest.raises(ValueError, match=r"\[0, 1\]"):
        ESTIMATORS[name]([np.array([[0.5, 1.5]])] * 4)
    with pytest.raises(ValueError, match=r"\[0, 1\]"):
        ESTIMATORS[name]([np.array([[0.5, np.nan]])] * 4)


def test_estimators_of_several_answers_are_known():
    assert set(ESTIMATORS) > SEVERAL_ANSWERS


def test_a_diagnosis():
    found = diagnose([np.array([[1.0, 0.0], [0.0, 1.0]]), np.array([[1.0, 0.0]]), np.zeros((0, 2))])
    assert found.set_reward == pytest.approx((0.75 + 0.5 + 0) / 3)
    assert found.coverage == pytest.approx((1 + 0.5 + 0) / 3)
    assert (found.answers, found.distinct, found.tied) == (3, 2, False)
