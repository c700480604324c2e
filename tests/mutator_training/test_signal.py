"""What is trained is what the search found: one test for each fault of the signal that a review found."""

from dataclasses import replace

import numpy as np
import pytest
import torch

from evolve import problem as problems
from evolve.database import Database
from evolve.distribution import departures, effective, require
from evolve.errors import BadInput
from evolve.score import Score
from mutator_training import tiny as toy_model
from mutator_training.adapter import AdapterSpec, has_signal, is_alarming
from mutator_training.estimators import ESTIMATORS, answer_credits, max_at_k, vpo
from mutator_training.gate import compare, has_fallen
from mutator_training.rollouts import Group, Rollout, Scale, owners
from mutator_training.simplex import set_rewards
from mutator_training.trainer import FILLER, build
from sandbox.base import Verdict
from sandbox.judge import TestResult
from tests.evolve.test_hostile_folders import evaluated
from tests.mutator_training import tiny
from tests.mutator_training.test_trainer import caught, job, quiet  # noqa: F401  (a fixture)

RNG = np.random.default_rng(0)


def falls(count, fall, prompts=((0.35, 0.1), (0.9, 0.1)), rounds=200, seed=1):
    """The share of falls that the gate rejects: prompts of given mean and spread, `count` completions of each version."""
    rng = np.random.default_rng(seed)
    rejected = 0
    for _ in range(rounds):
        before = [rng.normal(mean, spread, count) for mean, spread in prompts]
        after = [rng.normal(mean - fall, spread, count) for mean, spread in prompts]
        rejected += not compare(before, after).accepted
    return rejected / rounds


@pytest.mark.parametrize(("fall", "least", "most"), [(0.0, 0.0, 0.08), (0.1, 0.45, 0.9), (0.2, 0.95, 1), (0.3, 1, 1)])
def test_2_the_gate_has_power_although_prompts_differ(fall, least, most):
    assert least <= falls(4, fall) <= most


def test_2_below_the_least_number_of_completions_the_gate_says_that_it_decides_nothing():
    few = compare([[0.9, 0.9]], [[0.1, 0.1]])
    assert few.accepted
    assert few.p is None
    assert "too few to decide" in few.text
    assert compare([[0.9, 0.91, 0.92]], [[0.1, 0.11, 0.12]]).p is None  # 20 orders: p = .05 at the least
    assert not compare([[0.9, 0.91, 0.92, 0.93]], [[0.1, 0.11, 0.12, 0.13]]).accepted
    assert not compare([[0.9, 0.91, 0.92]] * 2, [[0.1, 0.11, 0.12]] * 2).accepted
    assert compare([], []).text == "no gate"


def test_2_many_small_falls_add_up():
    rng = np.random.default_rng(3)
    level, changes, accepted = 0.7, [], 0
    for _ in range(12):
        verdict = compare([rng.normal(level, 0.1, 8)] * 2, [rng.normal(level - 0.05, 0.1, 8) for _ in range(2)])
        if not verdict.accepted or has_fallen([*changes, (verdict.change, verdict.variance)]):
            break
        changes.append((verdict.change, verdict.variance))
        accepted += 1
        level -= 0.05
    assert accepted <= 4


def test_2_versions_that_stay_equal_are_rarely_rejected_for_the_sum():
    rng = np.random.default_rng(4)
    rejected = 0
    for _ in range(100):
        changes = []
        for _ in range(6):
            verdict = compare([rng.normal(0.5, 0.1, 8) for _ in range(2)], [rng.normal(0.5, 0.1, 8) for _ in range(2)])
            changes.append((verdict.change, verdict.variance))
        rejected += has_fallen(changes)
    assert rejected <= 30  # of the sixth version against the best of six: 95 % each, and the best is chosen


def test_3_random_weights_are_drawn_anew_for_every_step_and_prompt(tmp_path):
    model = tiny.model()
    groups = [tiny.group(model, 8, seed) for seed in range(2)]
    groups = [Group(number, 1, "t", one.prompt_ids, one.rollouts, one.answers) for number, one in enumerate(groups)]
    trainer = build(job(tmp_path, model, groups, 2, size=8, estimator="random_weighting", groups_per_step=1, micro_batch=8))
    same = [Group(number, 1, "t", groups[0].prompt_ids, groups[0].rollouts, groups[0].answers) for number in range(6)]
    found = {tuple(np.round(trainer.advantages_of(group), 9)) for group in same}
    trainer.state.global_step = 1
    found |= {tuple(np.round(trainer.advantages_of(group), 9)) for group in same}
    assert len(found) == 12
    assert tuple(np.round(trainer.advantages_of(same[0]), 9)) in found  # and the same draw is the same


@pytest.mark.parametrize(("count", "per_step", "steps"), [(7, 4, 2), (6, 4, 2), (5, 4, 2), (4, 4, 1), (3, 4, 1), (9, 2, 5)])
def test_4_every_group_trains(tmp_path, count, per_step, steps):
    """Whole groups are found in the loss by their tokens; fillers are there without a token that counts."""
    model = tiny.model()
    groups = [tiny.group(model, 4, seed) for seed in range(count)]
    groups = [Group(n + 1, 1, "t", one.prompt_ids, one.rollouts, one.answers) for n, one in enumerate(groups)]
    trainer = build(job(tmp_path, model, groups, count, size=4, groups_per_step=per_step, micro_batch=4))
    seen, weights = [], []
    original = trainer._source

    def spy(step, rows, trainer):
        found = original(step, rows, trainer)
        seen.extend(group.prompt for group in found)
        return found

    trainer._source = spy
    batches = caught(trainer)
    weights.append(trainer._weight)
    assert sorted(one for one in seen if one != FILLER) == list(range(1, count + 1))
    assert trainer.state.global_step == steps
    counted = sum(int((batch["completion_mask"] * batch["tool_mask"]).any(dim=1).sum()) for batch in batches)
    assert counted == 4 * count
    assert weights[-1] >= 1.0


def test_4_a_smaller_last_step_is_the_mean_over_what_is_there(tmp_path):
    """One group alone, and one beside a filler, make the same step."""
    after = []
    for name, per_step in (("alone", 1), ("beside", 2)):
        model = tiny.model()
        before = np.concatenate([value.detach().numpy().ravel().copy() for value in model.parameters()])
        groups = [tiny.group(model, 4, 5)]
        given = groups if per_step == 1 else [*groups, Group(FILLER, 1, "t", groups[0].prompt_ids[:1], [
            Rollout(0, one.token_ids[:1], np.zeros(1), np.zeros(1, dtype=bool), one.scores[:0], False)
            for one in groups[0].rollouts], 1)]  # fmt: skip
        plain = {"optim": "sgd", "max_grad_norm": 1e9}  # Adam would make the same step of half the gradient
        options = {"groups_per_step": per_step, "micro_batch": 4, "trainer": plain, "learning_rate": 1.0}
        build(job(tmp_path / name, model, given, 2, size=4, **options)).train()
        after.append(np.concatenate([value.detach().numpy().ravel() for value in model.parameters()]))
    assert np.abs(after[0] - before).max() > 1e-3
    assert np.allclose(after[0], after[1], atol=1e-6)


def cycle(order):
    """Six answers, each passing two tests that lie beside each other on a ring of six."""
    return np.array([[float(test in (answer, (answer + 1) % 6)) for test in range(6)] for answer in range(6)])[list(order)]


def test_7_every_answer_of_the_toy_keeps_the_beginning_of_the_parent():
    model = toy_model.fresh(toy_model.Shape(layers=1, width=16, heads=2), 0)
    begins = [toy_model.OPERATION + 3, toy_model.OPERATION + 5]
    prompts = np.tile(np.array([*range(9), *begins]), (200, 1))
    ids, logprobs = toy_model.sample(model, prompts, 14, torch.Generator().manual_seed(1), 1.0, begins)
    seconds = 0
    for row, logs in zip(ids, logprobs, strict=True):
        for place in np.flatnonzero(row == toy_model.NEXT):
            after = row[place + 1 : place + 3]
            assert after.tolist() == begins[: len(after)]
            assert not logs[place + 1 : place + 3].any()
            seconds += len(after) == 2
    assert seconds > 50
    free, _ = toy_model.sample(model, prompts, 14, torch.Generator().manual_seed(1))
    assert any(
        row[place + 1 : place + 3].tolist() not in ([], begins[:1], begins)
        for row in free
        for place in np.flatnonzero(row == toy_model.NEXT)
    )


def test_8_sets_that_differ_in_the_order_of_their_answers_alone_get_no_advantage():
    group = [cycle(RNG.permutation(6)) for _ in range(13)]
    rewards, error = set_rewards(group, 1.0)
    assert error > 0 or np.ptp(rewards) == 0
    assert not vpo(group).any()
    better = [*group[:12], np.ones((1, 6))]
    assert vpo(better)[12] > 1  # what is better is seen all the same


def test_10_groups_without_a_difference_are_no_signal():
    model = tiny.model()
    group = tiny.group(model, 4, 1)
    tied = Group(1, 1, "t", group.prompt_ids, [group.rollouts[0]] * 4, group.answers)
    for estimator in ESTIMATORS:
        spec = AdapterSpec([], "", "", "", trainer={"estimator": estimator})
        assert not has_signal([tied], spec), estimator
    assert has_signal([tied, group], AdapterSpec([], "", "", ""))


SAMPLING = [
    ({}, {}, None),
    ({"temperature": 0.7, "top_p": 1.0, "top_k": -1, "max_tokens": 9, "seed": 3}, {"max-model-len": 9}, None),
    ({"top_p": 0.8}, {}, "top_p=0.8"),
    ({"top_k": 20}, {}, "top_k=20"),
    ({"min_p": 0.1}, {}, "min_p=0.1"),
    ({"repetition_penalty": 1.1}, {}, "repetition_penalty=1.1"),
    ({"presence_penalty": 0.5}, {}, "presence_penalty=0.5"),
    ({"logit_bias": {"5": 3}}, {}, "logit_bias"),
    ({"temperature": 0}, {}, "temperature=0"),
    ({"response_format": {"type": "json_object"}}, {}, "response_format"),
    ({}, {"generation-config": "auto"}, "generation-config=auto"),
    ({}, {"generation_config": "auto"}, "generation-config=auto"),
    ({}, {"logprobs-mode": "raw_logprobs"}, "logprobs-mode"),
]


@pytest.mark.parametrize(("sampling", "server", "named"), SAMPLING)
def test_1_what_changes_the_distribution_is_refused(sampling, server, named):
    found = departures(sampling, server)
    assert (named is None and not found) or (named is not None and named in " ".join(found))
    if named is not None:
        with pytest.raises(BadInput, match="can't be trained"):
            require(sampling, server, "Options")


def test_1_what_is_recorded_says_what_was_left_out():
    found = effective({"temperature": 0.5, "max_tokens": 7}, {})
    assert (found["top_p"], found["repetition_penalty"], found["generation-config"]) == (1.0, 1.0, "vllm")
    assert found["temperature"] == 0.5
    assert effective({"max_tokens": 7}, None) == {"temperature": 1.0, "max_tokens": 7}  # somebody else's server: unknown


def test_1_the_trainer_compares_its_log_probabilities_with_the_samplers(tmp_path):
    model = tiny.model()
    group = tiny.group(model, 8, 1)
    trainer = build(job(tmp_path / "a", model, [group], 1, size=8, learning_rate=0.0))
    trainer.train()
    assert trainer.mismatch["tokens"] == 8 * 4
    assert trainer.mismatch["mean"] < 1e-4
    assert trainer.mismatch["effective"] > 0.999
    assert not is_alarming(trainer.mismatch)
    sharper = [replace(one, logprobs=one.logprobs * 0.5) for one in group.rollouts]  # as top-p and penalties leave them
    trainer = build(job(tmp_path / "b", model, [replace(group, rollouts=sharper)], 1, size=8, learning_rate=0.0))
    trainer.train()
    assert trainer.mismatch["mean"] > 0.3
    assert is_alarming(trainer.mismatch)


def test_1_truncated_importance_sampling_weighs_tokens_by_what_the_sampler_got_wrong(tmp_path):
    model = tiny.model()
    group = tiny.group(model, 4, 1)
    shifted = [replace(one, logprobs=one.logprobs - np.log([3.0, 1.5, 1.0, 0.5])) for one in group.rollouts]
    given = [replace(group, rollouts=shifted)]
    trainer = build(job(tmp_path, model, given, 1, size=4, micro_batch=4, truncation=2.0, learning_rate=0.0))
    (batch,) = caught(trainer)
    advantages = trainer.advantages_of(given[0])
    for row in batch["advantages"].numpy():
        whole = advantages[np.argmin(np.abs(advantages - row[2]))]
        assert np.allclose(row, whole * np.array([2.0, 1.5, 1.0, 0.5]), atol=1e-3)


def test_credit_of_an_answer_is_what_it_adds_over_others_in_its_place():
    a, b = [1.0, 0.0], [0.0, 1.0]
    matrices = [np.array([a, b]), np.array([a, a]), np.zeros((0, 2))]
    found = answer_credits("vpo", matrices, {})
    assert [one.shape for one in found] == [(2,), (2,), (0,)]
    credit = np.array([0.0, 0.75 - 0.5, 0.0, 0.5 - 0.75])  # R of both is 3/4, of one kind alone 1/2
    assert np.allclose(np.concatenate(found), credit / credit.std(), atol=1e-4)
    with pytest.raises(ValueError, match="sets"):
        answer_credits("grpo", matrices, {})
    assert not np.concatenate(answer_credits("best_of_m", [np.ones((2, 2))] * 3, {})).any()
    assert not np.concatenate(answer_credits("vpo", [np.array([a, b])], {})).any()  # nobody to compare with


def test_credit_sees_what_a_third_kind_adds_to_two_that_are_there_twice():
    a, b, c = [1.0, 0.0], [0.0, 1.0], [0.6, 0.6]
    twice, third = np.array([a, b, a, b]), np.array([a, b, a, c])
    found = answer_credits("vpo", [twice, twice, twice, third], {})
    assert found[3][3] == max(np.concatenate(found)) > 1
    assert not found[3][:3].any()


def test_credit_per_answer_reaches_the_loss_and_the_rest_has_the_completions(tmp_path):
    model = tiny.model()
    group = tiny.group(model, 4, 1)
    owner = np.array([0, 1, -1, 2])  # the third token parts answers: it has the completion's
    given = [replace(group, rollouts=[replace(one, owner=owner) for one in group.rollouts])]
    trainer = build(job(tmp_path, model, given, 1, size=4, micro_batch=4, credit="answer", learning_rate=0.0))
    (batch,) = caught(trainer)
    whole, credits_ = trainer.advantages_of(given[0]), answer_credits("vpo", given[0].matrices, {})
    wanted = {tuple(one.token_ids): np.array([c[0], c[1], a, c[2]])
              for one, a, c in zip(given[0].rollouts, whole, credits_, strict=True)}  # fmt: skip
    assert batch["advantages"].shape == (4, 4)
    for ids, row in zip(batch["completion_ids"].numpy(), batch["advantages"].numpy(), strict=True):
        assert np.allclose(row, wanted[tuple(ids)], atol=1e-5)


def test_tokens_of_a_scaffold_belong_to_its_answers():
    sampled = np.array([0, 1, 1, 0, 0, 1, 1, 1, 0, 1], dtype=bool)
    assert owners(sampled, [0, 1, 2]).tolist() == [-1, 0, 0, -1, -1, 1, 1, 1, -1, 2]
    assert owners(sampled, [0, 2]).tolist() == [-1, 0, 0, -1, -1, -1, -1, -1, -1, 1]  # the second gave no program


def test_tokens_of_the_toy_belong_to_its_programs():
    one, next_, end = toy_model.OPERATION, toy_model.NEXT, toy_model.EOS
    tokens = [one, one, one, one, next_, one, one, next_, one, one + 1, one, one, end]
    assert toy_model.owners(tokens, 3) == [0] * 4 + [-1] * 4 + [1] * 4 + [-1]
    assert len(toy_model.parse(tokens, 3)) == 2


EVALUATED = """def evaluate(path): return {"combined_score": 1.0}
"""


def vectors(tmp_path, values):
    """A run of an evaluator whose programs have these vectors of (combined_score, speed)."""
    folder = evaluated(tmp_path / "p", evaluator__py=EVALUATED, problem__yaml="objectives: {speed: {direction: max}}\n")
    problem = problems.load(folder)
    database = Database.create(tmp_path / "run", problem, {"search": {}, "mutator": {}}, 0, {})
    for combined, speed in values:
        numbers = {"combined_score": combined, "speed": speed}
        score = Score((TestResult(Verdict.PASS, 1.0),), np.empty(0), True, "x", combined, False, numbers, numbers)
        database.record_seed(f"x = {combined}, {speed}\n", "python", score)
    return database


def test_5_a_program_that_ran_is_worth_more_than_one_that_did_not(tmp_path):
    database = vectors(tmp_path, [(0.0, -5.0), (0.5, 3.0), (1.0, 9.0)])
    scale = database.read(Scale.of)
    rows = scale.apply([[-5.0, 0.0], [9.0, 1.0], None, [3.0, 0.5]])
    assert (rows[0] >= 1 / 16).all()
    assert (rows[1] == 1).all()
    assert not rows[2].any()
    assert scale.fitness == database.objectives.index("combined_score")


def test_5_a_scale_holds_until_the_run_outgrows_it(tmp_path):
    database = vectors(tmp_path, [(0.2, 1.0), (0.4, 2.0), (0.6, 8.0)])
    first = database.read(Scale.of)
    assert first.version == 0
    database.events.record("scale", **first.recorded(1))
    worth = database.read(Scale.of).apply([[2.0, 0.4]])
    for number, speed in enumerate((1.1, 1.2, 1.3, 1.4)):
        numbers = {"combined_score": 0.3, "speed": speed}
        score = Score((TestResult(Verdict.PASS, 1.0),), np.empty(0), True, "x", 0.3, False, numbers, numbers)
        database.record_seed(f"y = {number}\n", "python", score)
    frozen = database.read(Scale.of)
    assert frozen.version == 1
    assert np.array_equal(frozen.apply([[2.0, 0.4]]), worth)
    assert not np.array_equal(database.read(Scale.current).apply([[2.0, 0.4]]), worth)
    assert not frozen.outgrown_by(database.read(Scale.current))
    numbers = {"combined_score": 0.9, "speed": 99.0}
    score = Score((TestResult(Verdict.PASS, 1.0),), np.empty(0), True, "x", 0.9, False, numbers, numbers)
    database.record_seed("z = 1\n", "python", score)
    assert frozen.outgrown_by(database.read(Scale.current))
    database.close()


def test_5_grpo_optimises_the_fitness_where_that_is_one_number(tmp_path):
    model = tiny.model()
    group = tiny.group(model, 4, 1)
    scores = [np.array([[value, 1 - value]]) for value in (0.1, 0.2, 0.3, 0.9)]  # their means are all the same
    rollouts = [replace(one, scores=matrix, owner=None) for one, matrix in zip(group.rollouts, scores, strict=True)]
    for estimator, alive in (("grpo", True), ("max_at_k", True), ("vpo", False)):
        fit = replace(group, rollouts=rollouts, fitness=0)
        trainer = build(job(tmp_path / estimator, model, [fit], 1, size=4, micro_batch=4, estimator=estimator))
        found = trainer.advantages_of(fit)
        assert found.any() == alive
        assert not alive or found.argmax() == 3
        assert not trainer.advantages_of(replace(fit, fitness=None)).any()


def test_10_what_is_looked_at_for_a_signal_is_what_trains():
    model = tiny.model()
    group = tiny.group(model, 4, 1)
    scores = [np.array([[value, 1 - value]]) for value in (0.1, 0.2, 0.3, 0.9)]
    rollouts = [replace(one, scores=matrix) for one, matrix in zip(group.rollouts, scores, strict=True)]
    grpo = AdapterSpec([], "", "", "", trainer={"estimator": "grpo"})
    assert has_signal([replace(group, rollouts=rollouts, fitness=0)], grpo)
    assert not has_signal([replace(group, rollouts=rollouts)], grpo)
    a, b = [1.0, 0.0], [0.0, 1.0]
    rollouts = [
        replace(one, scores=np.array(rows)) for one, rows in zip(group.rollouts, [[a, b]] * 3 + [[b, a]], strict=True)
    ]
    equal = [replace(group, rollouts=rollouts)]  # sets of one worth, whose answers would add to each other's
    assert not has_signal(equal, AdapterSpec([], "", "", ""))
    assert has_signal(equal, AdapterSpec([], "", "", "", trainer={"credit": "answer"}))


def test_13_max_at_k_takes_small_groups():
    rewards = [np.array([[value]]) for value in (0.0, 0.5, 1.0)]
    assert np.allclose(max_at_k(rewards), max_at_k(rewards, subset=3))
    assert max_at_k(rewards[:1]).tolist() == [0.0]


def test_13_dr_grpo_takes_its_own_loss(tmp_path):
    model = tiny.model()
    group = tiny.group(model, 4, 1)
    trainer = build(job(tmp_path, model, [group], 1, size=4, micro_batch=4, estimator="dr_grpo"))
    assert trainer.loss_type == "dr_grpo"
    assert trainer.max_completion_length == max(len(one.token_ids) for one in group.rollouts)
    assert build(job(tmp_path, model, [group], 1, size=4, micro_batch=4)).loss_type == "grpo"


def test_13_weights_in_float32_are_trained_in_float32(tmp_path):
    model = tiny.model()
    assert not build(job(tmp_path, model, [tiny.group(model, 4, 1)], 1, size=4)).args.bf16


@pytest.mark.parametrize("estimator", ["vpo", "grpo"])
def test_13_real_scores_of_many_objectives_are_told_apart(estimator):
    rng = np.random.default_rng(9)
    alive = 0
    for _ in range(20):
        group = [np.clip(rng.random((3, 20)) * 0.5 + 0.1 * rng.random(), 0, 1) for _ in range(6)]
        alive += ESTIMATORS[estimator](group).any()
    assert alive == 20


def test_a_training_ends_at_its_target_of_the_kl_divergence(tmp_path):
    from peft import LoraConfig

    steps = []
    for target in (None, 1e-5):
        model = tiny.model()
        groups = [tiny.group(model, 4, seed) for seed in range(12)]
        options = {"groups_per_step": 1, "micro_batch": 4, "beta": 1e-3, "target_kl": target, "learning_rate": 1e-2}
        lora = LoraConfig(r=4, target_modules="all-linear", task_type="CAUSAL_LM", init_lora_weights="gaussian")
        trainer = build(replace(job(tmp_path / str(target), model, groups, 12, size=4, **options), peft_config=lora))
        trainer.train()
        steps.append(trainer.state.global_step)
    assert steps[0] == 12
    assert 1 < steps[1] < 12
    with pytest.raises(ValueError, match="beta"):
        build(job(tmp_path, model, groups, 12, size=4, beta=0.0, target_kl=0.1))
