"""A family of small program problems for quick comparisons: four operations that give a wanted output.

A program is four unary operations on the integers mod 11, applied to eight visible inputs (the tests, k = 8) and three
hidden ones. A task is the output wanted at the visible inputs; the prompt is that vector. Different programs may solve a
task, most tasks can be solved in part in many ways, and an answer is checked in microseconds.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

MODULUS = 11
LENGTH = 4
VISIBLE = 8
HIDDEN = MODULUS - VISIBLE

_X = np.arange(MODULUS)
OPERATIONS: dict[str, NDArray[np.int64]] = {
    "add1": (_X + 1) % MODULUS,
    "add3": (_X + 3) % MODULUS,
    "double": (_X * 2) % MODULUS,
    "triple": (_X * 3) % MODULUS,
    "negate": (-_X) % MODULUS,
    "square": (_X * _X) % MODULUS,
    "max5": np.maximum(_X, 5),
    "min6": np.minimum(_X, 6),
    "halve_even": np.where(_X % 2 == 0, _X // 2, _X),
    "reflect": np.where(_X > 4, (8 - _X) % MODULUS, _X),
}
"""Each operation as the table of its values."""

TABLES = np.stack(list(OPERATIONS.values()))
NAMES = list(OPERATIONS)


def outputs(program: Sequence[int]) -> NDArray[np.int64]:
    """Return the (11,) outputs of a program, given as numbers of operations: visible inputs first, then hidden ones."""
    values = _X
    for operation in program:
        values = TABLES[operation][values]
    return values


@dataclass(frozen=True, slots=True)
class OperatorTask:
    """A wanted output.

    Attributes:
        name: for people and databases.
        wanted: (11,) values at the visible inputs, then at the hidden ones, of the program that the task was made from.
    """

    name: str
    wanted: tuple[int, ...]

    @property
    def visible(self) -> tuple[int, ...]:
        """What the prompt shows."""
        return self.wanted[:VISIBLE]

    def scores(self, program: Sequence[int]) -> NDArray[np.float64]:
        """Return (11,) of 0 and 1: visible tests, then hidden ones. A program of another length than 4 passes none."""
        if len(program) != LENGTH:
            return np.zeros(MODULUS)
        right: NDArray[np.bool_] = outputs(program) == np.array(self.wanted)
        return right.astype(np.float64)


def every_program() -> NDArray[np.int64]:
    """Return (10^4, 4), every program."""
    return np.array(np.meshgrid(*[np.arange(len(NAMES))] * LENGTH, indexing="ij")).reshape(LENGTH, -1).T


def every_output() -> NDArray[np.int64]:
    """Return (10^4, 11), the outputs of every program."""
    programs = every_program()
    values = np.broadcast_to(_X, (len(programs), MODULUS))
    for place in range(LENGTH):
        values = TABLES[programs[:, place][:, None], values]
    return values


def split(held_out: int, seed: int) -> tuple[list[OperatorTask], list[OperatorTask]]:
    """Return training and held-out tasks: different visible outputs, each of the first program that gives it.

    Args:
        held_out: how many are held out.
        seed: of the split.
    """
    values = every_output()
    _, first = np.unique(values[:, :VISIBLE], axis=0, return_index=True)
    varied = [index for index in sorted(first) if len(set(values[index, :VISIBLE])) > 2]
    order = np.random.default_rng(seed).permutation(varied)
    tasks = [OperatorTask(f"operators-{index}", tuple(int(value) for value in values[index])) for index in order]
    return tasks[held_out:], tasks[:held_out]
