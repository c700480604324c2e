"""Plans: what a folder remembers, and that the presets can be run."""

from dataclasses import replace

import pytest

from evolve.errors import BadInput
from mutator_training.plan import load, store
from mutator_training.presets import PRESETS


@pytest.mark.parametrize("name", sorted(PRESETS))
def test_presets_are_plans_that_are_read_back_as_written(name, tmp_path):
    plan = PRESETS[name]
    assert [arm.label for arm in plan.parsed] == list(plan.arms)
    store(tmp_path, plan)
    assert replace(load(tmp_path), arms=plan.arms, problems=plan.problems, train=plan.train) == plan
    store(tmp_path, replace(plan, jobs=7))
    with pytest.raises(BadInput, match=r"another plan \(train_steps differ\)"):
        store(tmp_path, replace(plan, train_steps=1))
    store(tmp_path, replace(plan, seeds=plan.seeds + 1))
    assert load(tmp_path).seeds == plan.seeds + 1
    with pytest.raises(BadInput, match=r"another plan \(seeds differ\)"):
        store(tmp_path, plan)


def test_no_comparison(tmp_path):
    with pytest.raises(BadInput, match="holds no comparison"):
        load(tmp_path)
