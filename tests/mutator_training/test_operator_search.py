"""The toy's parts behind the contracts of the search."""

import torch

from evolve.answers import Rules, parse
from evolve.completion import Message
from evolve.population import Member
from evolve.prompt import View
from mutator_training import tiny
from mutator_training.operator_search import OperatorGrader, OperatorProblem, OperatorPrompter, TinyMutator
from mutator_training.operators import NAMES, OperatorTask, outputs

TASK = OperatorTask("t", tuple(int(value) for value in outputs([1, 2, 3, 4])))


async def test_a_program_is_graded_by_its_outputs():
    grader = OperatorGrader(TASK)
    right = await grader.score(" ".join(NAMES[number] for number in (1, 2, 3, 4)))
    assert right.solved
    assert right.fitness == 1
    assert all(result.score == 1 for result in await grader.hidden("add3 double triple negate\n"))
    for wrong in ("add1 add1 add1 add1", "add1", "no such words here"):
        assert not (await grader.score(wrong)).solved
    assert OperatorProblem(TASK).dimensions[0] == ("x=0", "test")


async def test_the_mutator_keeps_the_beginning_of_the_parent_and_is_a_function_of_the_seed():
    mutator = TinyMutator(tiny.fresh(tiny.Shape(layers=1, width=16, heads=2), 0), "vpo", 1.0)
    score = await OperatorGrader(TASK).score("add1 add1 add1 add1")
    parent = Member(1, "square square square square\n", score.scores, score.fitness)
    messages: list[Message] = OperatorPrompter(TASK).build(View(parent, score))
    kept = set()
    for seed in range(12):
        found = await mutator.sample(messages, range(3), 2, seed)
        again = await mutator.sample(messages, range(3), 2, seed)
        assert [one.text for one in found] == [one.text for one in again]
        for completion in found:
            assert completion.completion_tokens <= tiny.longest(2)
            programs = [answer.source for answer in parse(completion.text, 2, Rules("text")) if answer.source]
            kept |= {program.split()[0] for program in programs[:1]}
    assert kept <= set(NAMES)
    assert torch.is_grad_enabled()
