"""The operator tasks: what programs give, and that held-out tasks stay out."""

import numpy as np

from mutator_training.operators import NAMES, VISIBLE, OperatorTask, every_program, outputs, split


def test_what_operations_do():
    values = dict(zip(NAMES, (outputs([number]).tolist() for number in range(len(NAMES))), strict=True))
    assert values["add3"][:3] == [3, 4, 5]
    assert values["square"][4] == 5
    assert values["negate"][1] == 10
    assert (values["max5"][0], values["min6"][10]) == (5, 6)
    assert (values["halve_even"][8], values["halve_even"][7]) == (4, 7)
    assert (values["reflect"][4], values["reflect"][5], values["reflect"][10]) == (4, 3, 9)


def test_tasks_are_solved_by_their_program_and_split_by_what_they_show():
    train, held_out = split(50, 3)
    assert len(held_out) == 50
    assert not {task.visible for task in train} & {task.visible for task in held_out}
    again = split(50, 3)[1]
    assert [task.name for task in held_out] == [task.name for task in again]
    programs = every_program()
    task = held_out[0]
    program = programs[int(task.name.split("-")[1])]
    assert task.scores(program).all()
    assert not task.scores(program[:3]).any()


def test_a_score_is_one_number_per_input():
    task = OperatorTask("t", tuple(int(value) for value in outputs([0, 0, 0, 0])))
    scores = task.scores([0, 0, 0, 4])
    assert scores.shape == (11,)
    assert set(np.unique(scores)) <= {0.0, 1.0}
    assert len(task.visible) == VISIBLE
