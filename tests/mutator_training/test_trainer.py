"""The gradient step through the real TRL: our numbers reach the loss, and the paper's claim on the smallest model."""

import os

import numpy as np
import pytest
import torch

from mutator_training.estimators import ESTIMATORS
from mutator_training.rollouts import Group, Rollout
from mutator_training.trainer import Job, RolloutTrainer, TrainerOptions, build
from tests.mutator_training import tiny

pytestmark = [
    pytest.mark.slow,
    pytest.mark.filterwarnings("ignore"),  # TRL's and torch's own deprecations
]


@pytest.fixture(autouse=True)
def quiet():
    """TRL says that `rollout_func` is experimental; one thread is fastest for a tiny model."""
    os.environ["TRL_EXPERIMENTAL_SILENCE"] = "1"
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


def job(folder, model, source, rows, seed=0, size=16, **options):
    options = {"groups_per_step": 1, "micro_batch": 16, "learning_rate": 3e-3, "beta": 0.0} | options
    return Job(model, tiny.tokenizer(), source, rows, size, folder, TrainerOptions(**options), seed)


def live(step, rows, trainer):
    """On-policy: sampled from the model as it is."""
    return [tiny.group(trainer.model, 16, 7919 * step + row) for row in rows]


def caught(trainer):
    """Train; return what the loss was given in each of its calls."""
    batches = []
    original = trainer._compute_loss

    def spy(model, inputs):
        batches.append({name: value.clone() for name, value in inputs.items() if isinstance(value, torch.Tensor)})
        return original(model, inputs)

    trainer._compute_loss = spy
    trainer.train()
    return batches


@pytest.mark.parametrize(("estimator", "least", "most"), [("grpo", 0.58, 0.62), ("vpo", 0.74, 0.77)])
def test_grpo_collapses_to_the_middle_answer_and_vpo_covers_both_extremes(tmp_path, estimator, least, most):
    model = tiny.model()
    before = tiny.best_of_m(model)
    build(job(tmp_path, model, live, 130, estimator=estimator)).train()
    after = tiny.best_of_m(model)
    assert before < 0.65
    assert least <= after <= most
    letters, _ = tiny.sample(model, 64, 1)
    share_of_c = (letters == 5).mean()
    assert share_of_c > 0.9 if estimator == "grpo" else share_of_c < 0.5


@pytest.mark.parametrize("estimator", sorted(ESTIMATORS))
def test_the_advantages_reach_the_loss_unchanged(tmp_path, estimator):
    """Also the uncentred ones of max_at_k. TRL shuffles a batch, so rows are found by their tokens."""
    model = tiny.model()
    groups = [tiny.group(model, 8, seed) for seed in range(3)]
    trainer = build(job(tmp_path, model, groups, 3, size=8, estimator=estimator, groups_per_step=3, micro_batch=8))
    expected = {}
    for group in groups:
        for rollout, advantage in zip(group.rollouts, trainer.advantages_of(group), strict=True):
            expected.setdefault(tuple(rollout.token_ids), []).append(np.float32(advantage))
    seen = {}
    for batch in caught(trainer):
        for ids, advantage in zip(batch["completion_ids"], batch["advantages"].flatten(), strict=True):
            seen.setdefault(tuple(ids.tolist()), []).append(np.float32(advantage))
    assert {key: sorted(values) for key, values in seen.items()} == {key: sorted(values) for key, values in expected.items()}


def clipped(trainer):
    trainer.train()
    rows = [row for row in trainer.state.log_history if "clip_ratio/region_mean" in row]
    return [row["clip_ratio/region_mean"] for row in rows]


def test_fresh_rollouts_are_not_clipped_and_stale_ones_are(tmp_path):
    model = tiny.model()
    fresh = [tiny.group(model, 16, 1)]
    assert clipped(build(job(tmp_path / "a", model, fresh, 1))) == [0.0]
    build(job(tmp_path / "b", model, live, 20)).train()  # moves the policy away
    assert clipped(build(job(tmp_path / "c", model, fresh, 1)))[0] > 0.1


def test_tokens_that_the_client_wrote_are_masked_out_of_the_loss(tmp_path):
    model = tiny.model()
    plain = tiny.group(model, 4, 3)
    frame = np.array([False, True, True, False])
    rollouts = [Rollout(r.completion, r.token_ids, r.logprobs, frame, r.scores, False) for r in plain.rollouts]
    group = Group(1, 1, "tiny", plain.prompt_ids, rollouts, 4)
    trainer = build(job(tmp_path, model, [group], 1, size=4, micro_batch=4))
    (batch,) = caught(trainer)
    assert (batch["completion_mask"] * batch["tool_mask"]).tolist() == [[0, 1, 1, 0]] * 4


def test_groups_without_signal_move_nothing(tmp_path):
    model = tiny.model()
    tied = tiny.group(model, 4, 3)
    rollouts = [Rollout(r.completion, r.token_ids, r.logprobs, r.sampled, np.eye(2), False) for r in tied.rollouts]
    before = [parameter.detach().clone() for parameter in model.parameters()]
    build(job(tmp_path, model, [Group(1, 1, "t", tied.prompt_ids, rollouts, 4)], 1, size=4, micro_batch=4)).train()
    assert all(torch.equal(old, new) for old, new in zip(before, model.parameters(), strict=True))


def test_a_resumed_training_is_bit_identical(tmp_path):
    saving = {"save_strategy": "steps", "save_steps": 3, "save_only_model": False}
    whole = tiny.model()
    build(job(tmp_path / "whole", whole, live, 6, trainer=saving)).train()
    again = tiny.model()
    build(job(tmp_path / "again", again, live, 6, trainer=saving)).train(
        resume_from_checkpoint=str(tmp_path / "whole" / "checkpoint-3")
    )
    assert all(torch.equal(one, other) for one, other in zip(whole.parameters(), again.parameters(), strict=True))


def test_options_pass_through_to_trl_and_unknown_ones_fail_there(tmp_path):
    trainer = build(job(tmp_path, tiny.model(), live, 1, trainer={"epsilon": 0.1, "loss_type": "dr_grpo"}))
    assert isinstance(trainer, RolloutTrainer)
    assert (trainer.args.epsilon, trainer.args.loss_type) == (0.1, "dr_grpo")
    with pytest.raises(TypeError, match="no_such_option"):
        build(job(tmp_path, tiny.model(), live, 1, trainer={"no_such_option": 1}))


def test_groups_of_another_size_are_refused(tmp_path):
    model = tiny.model()
    trainer = build(job(tmp_path, model, [tiny.group(model, 5, 1)], 1, size=4, micro_batch=4))
    with pytest.raises(ValueError, match="expected 1 groups of 4 rollouts"):
        trainer.train()


def test_what_a_step_tells(tmp_path):
    trainer = build(job(tmp_path, tiny.model(), live, 2))
    trainer.train()
    row = trainer.state.log_history[0]
    assert {"rollouts/set_reward", "rollouts/coverage", "rollouts/tied_groups", "entropy", "grad_norm"} <= set(row)
    assert 0 <= row["rollouts/set_reward"] <= row["rollouts/coverage"] <= 1
