"""Population and parent policies: pure, seeded, and true to what they promise."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from evolve.population import Member, Population, Shape
from evolve.selection import POLICIES, Pool, best, initial, inspirations, lexicase


def member(identity, scores, source="x"):
    scores = np.array(scores, dtype=float)
    return Member(identity, source, scores, float(scores.mean()))


score_lists = st.lists(st.lists(st.sampled_from([0.0, 1.0]), min_size=6, max_size=6), min_size=1, max_size=30)


@given(score_lists)
def test_the_archive_keeps_every_signature_and_the_best(lists):
    population = Population()
    members = [member(i + 1, scores) for i, scores in enumerate(lists)]
    population.seed(members[0])
    for one in members[1:]:
        population.add(one)
    assert {one.signature for one in population.islands[0]} == {one.signature for one in members}
    assert population.best.fitness == max(one.fitness for one in members)


@given(score_lists, st.integers(1, 5))
def test_the_archive_is_bounded_and_keeps_the_best_and_the_initial(lists, capacity):
    population = Population(Shape(capacity=capacity))
    members = [member(i + 1, scores) for i, scores in enumerate(lists)]
    population.seed(members[0])
    for one in members[1:]:
        population.add(one)
    assert len(population) <= capacity
    assert members[0] in population.members()
    assert max(one.fitness for one in population.islands[0]) == max(one.fitness for one in members)


def test_a_cell_prefers_fitness_then_the_shorter_then_the_older():
    population = Population()
    population.add(member(1, [1, 0.2], "long"))
    assert population.add(member(2, [1, 0.5], "longer"))
    assert population.add(member(3, [1, 0.5], "short"))
    assert not population.add(member(4, [1, 0.5], "short"))


@given(score_lists, st.integers(0, 100))
def test_policies_are_pure_and_seeded(lists, seed):
    members = [member(i + 1, scores) for i, scores in enumerate(lists)]
    for policy in POLICIES.values():
        assert policy(Pool(members, members), np.random.default_rng(seed)) is policy(
            Pool(members, members), np.random.default_rng(seed)
        )


def test_lexicase_prefers_specialists_that_fitness_would_drop():
    generalist, specialist, nobody = member(1, [1, 1, 1, 0]), member(2, [0, 0, 0, 1]), member(3, [0, 0, 0, 0])
    rng = np.random.default_rng(0)
    chosen = [lexicase(Pool([generalist, specialist, nobody]), rng).id for _ in range(300)]
    assert 40 < chosen.count(2) < 260
    assert chosen.count(3) == 0


def test_best_and_initial():
    members = [member(1, [0, 0]), member(2, [1, 0]), member(3, [1, 0], "")]
    rng = np.random.default_rng(0)
    assert best(Pool(members), rng).id == 3
    assert initial(Pool(members), rng).id == 1


def test_inspirations_pass_what_the_parent_fails():
    parent = member(1, [1, 0, 0, 0])
    useless, pair, single = member(2, [1, 0, 0, 0]), member(3, [0, 1, 1, 0]), member(4, [0, 0, 1, 0])
    assert inspirations(parent, [parent, useless, pair, single], 2) == [pair]
    last = member(5, [0, 0, 0, 1])
    assert inspirations(parent, [parent, single, last, pair], 2) == [pair, last]
