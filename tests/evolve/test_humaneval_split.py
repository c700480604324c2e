"""Which tasks of HumanEval are taken, and which of them are held out."""

import pytest

from evolve.errors import BadInput
from evolve.humaneval import shortest, split, tasks


def test_the_shortest_are_those_with_the_shortest_references():
    found = tasks()
    few = shortest(found, 20)
    assert len(few) == 20
    longest = max(len(task["canonical_solution"]) for task in few.values())
    assert all(len(task["canonical_solution"]) >= longest for name, task in found.items() if name not in few)


def test_a_seed_decides_what_is_held_out():
    names = [f"HumanEval/{number}" for number in range(30)]
    parts = split(names, 10, seed=1)
    assert sorted(parts) == sorted(names)
    assert list(parts.values()).count("held_out") == 10
    assert parts == split(list(reversed(names)), 10, seed=1)
    assert parts != split(names, 10, seed=2)
    assert set(split(names, 0, seed=1).values()) == {""}
    with pytest.raises(BadInput, match="leaves none to train on"):
        split(names, 30, seed=1)
