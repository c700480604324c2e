"""Rollouts of a run as the training sees them."""

import asyncio
import sqlite3

import numpy as np
import pytest

from evolve.completion import Completion
from evolve.errors import BadInput
from evolve.scripted import ScriptedMutator
from evolve.selection import to_unit
from mutator_training.rollouts import VALID, Selection, groups
from tests.evolve.test_folders import SQUARE, Run, solve
from tests.evolve.test_loop import Run as LoopRun
from tests.evolve.test_loop import block


class Tokens:
    """Gives token ids with what a script says; every third completion is cut, the second token is the client's."""

    def __init__(self, replies):
        self.replies, self.count, self.name, self.format, self.room = replies, 0, "tokens", "scaffold", None

    async def sample(self, messages, positions, m, seed):
        found = []
        for _ in positions:
            self.count += 1
            text = self.replies[self.count % len(self.replies)]
            reason = "length" if self.count % 3 == 0 else "stop"
            found.append(
                Completion(text, "scaffold", m, reason, 3, 2, 0.0, 0.7, self.name, seed, [1, 2, 3], [7, 8, 9],
                           [-0.5, None, -0.25], [True, False, True])
            )  # fmt: skip
        return found


async def test_a_group_has_what_was_sampled_and_the_scores_of_its_answers(tmp_path, problem_folder):
    run = LoopRun(tmp_path / "run", problem_folder, prompts=2, completions=2, answers=2, candidates=16, retry=False)
    await run.go(Tokens([block("x * 2") + block("2"), "no idea", block("1 / 0")]))
    found = groups(run.folder)
    assert set(found.left_out) <= {"alone in its group"}  # the budget ended within the last group
    assert [len(group.rollouts) for group in found.groups] == [2] * len(found.groups)
    group = found.groups[0]
    assert (group.temperature, group.answers, group.prompt_ids.tolist()) == (0.7, 2, [1, 2, 3])
    rollout = group.rollouts[0]
    assert rollout.token_ids.tolist() == [7, 8, 9]
    assert rollout.logprobs.tolist() == [-0.5, 0.0, -0.25]
    assert rollout.sampled.tolist() == [True, False, True]
    shapes = {one.scores.shape for group in found.groups for one in group.rollouts}
    assert shapes == {(2, 3), (0, 3), (1, 3)}
    full = next(one for group in found.groups for one in group.rollouts if len(one.scores) == 2)
    assert full.scores.tolist() == [[1, 1, 1], [1, 0, 0]]
    raises = next(one for group in found.groups for one in group.rollouts if len(one.scores) == 1)
    assert raises.scores.tolist() == [[0, 0, 0]]


async def test_what_is_left_out_is_counted(tmp_path, problem_folder):
    run = LoopRun(tmp_path / "run", problem_folder, prompts=1, completions=3, answers=1, candidates=12, retry=True)
    await run.go(Tokens([block("2"), "no idea"]))
    everything = groups(run.folder)
    total = run.sql("select count(*) from completion")[0][0]
    retries = run.sql("select count(*) from completion where retry_of is not null")[0][0]
    assert everything.left_out["a retry, which is no member of the group"] == retries > 0
    assert sum(len(group.rollouts) for group in everything.groups) + sum(everything.left_out.values()) == total
    assert groups(run.folder, Selection(keep_cut=False)).left_out["cut at the token limit"] > 0
    assert not groups(run.folder, Selection(mutator="another")).groups
    later = groups(run.folder, Selection(after=2)).groups
    assert [group.prompt for group in later] == [group.prompt for group in everything.groups if group.prompt > 2]


async def test_a_run_without_tokens_is_refused(tmp_path, problem_folder):
    run = LoopRun(tmp_path / "run", problem_folder)
    await run.go(ScriptedMutator([block("x")]))
    with pytest.raises(BadInput, match="has no token ids"):
        groups(run.folder)


def test_metrics_are_mapped_by_scale_or_by_rank_among_the_valid_programs(tmp_path):
    replies = [SQUARE, solve("n + 1"), solve("1 / 0"), solve("n * 3"), solve("n + n + 1")]
    run = Run(tmp_path, "own_objectives", candidates=20, answers=2)
    run.mutator = Tokens(["\n".join(replies[i : i + 2]) for i in range(4)])
    asyncio.run(run.go())
    matrices = [one.scores for group in groups(run.folder).groups for one in group.rollouts]
    assert all(((matrix >= 0) & (matrix <= 1)).all() for matrix in matrices)
    connection = sqlite3.connect(run.folder / "run.sqlite")
    query = "select id, scores ->> 0, scores ->> 1 from program where status = 'scored' and duplicate_of is null order by id"
    rows = connection.execute(query).fetchall()
    connection.close()
    raw = np.array([row[1:] for row in rows], dtype=float)
    unit = VALID + (1 - VALID) * to_unit(raw, {1: (0.0, 10.0)})  # hits: {scale: [0, 10]}; error by rank
    seen = {tuple(np.round(row, 9)) for matrix in matrices for row in matrix}
    assert seen <= {tuple(np.round(row, 9)) for row in unit} | {(0.0, 0.0)}
    assert tuple(np.round(unit[raw[:, 1].argmax()], 9)) in seen
    assert unit[raw[:, 0].argmax(), 0] == 1.0
