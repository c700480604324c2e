"""A search that can be killed at any moment: `python -m tests.evolve.chaos RUN PROBLEM CANDIDATES [ISLANDS]`.

Its mutator is a function of the prompt's seed and the completion's position, and answers after random pauses.
"""

import asyncio
import random
import sys
from dataclasses import asdict
from pathlib import Path

import numpy as np

from evolve import problem as problems
from evolve.database import Database
from evolve.grading import TestGrader
from evolve.loop import Search
from evolve.options import Options
from evolve.population import Shape
from evolve.prompt import TestPrompter
from evolve.scoring import Scorer
from evolve.scripted import ScriptedMutator
from sandbox.inprocess import InProcessSandbox

EXPRESSIONS = ["x * 2", "x", "x + x", "2", "x * 3", "[x, x]", "str(x) * 2", "x + 1", "1 / 0", "x[::-1]", "x or 2", "-x"]


def reply(seed, position):
    """What the model says: two programs, one, or none."""
    rng = random.Random(f"{seed} {position}")
    bodies = [f"    y = {rng.choice(EXPRESSIONS)}\n    return {rng.choice(['y', 'y', 'y if x else x'])}" for _ in range(2)]
    blocks = [f"```python\ndef double(x):\n{body}\n```" for body in bodies]
    return "\n".join(blocks[: rng.choice([0, 1, 2, 2, 2])]) or "No idea."


class SeededMutator(ScriptedMutator):
    """Answers by seed and position, late and in any order."""

    def __init__(self, pause=0.0):
        super().__init__(["-"])
        self._pause = pause

    async def sample(self, messages, positions, m, seed):
        await asyncio.sleep(random.random() * self._pause)
        self._script = lambda *_: ""
        replies = [reply(seed, position) for position in positions]
        counted = iter(replies)
        self._script = lambda *_: next(counted)
        return await super().sample(messages, positions, m, seed)


class SlowSandbox(InProcessSandbox):
    """Takes a moment for each program."""

    def __init__(self, pause):
        super().__init__()
        self._pause = pause

    async def run(self, program, inputs):
        await asyncio.sleep(random.random() * self._pause)
        return await super().run(program, inputs)


def make(folder, problem, **options):
    """Make a run of this search."""
    state = np.random.default_rng(5).bit_generator.state
    Database.create(folder, problem, {"search": asdict(Options(**options))}, 5, state).close()


async def search(folder, problem, mutator, pause=0.0):
    """Go on with a run until it ends."""
    database = Database.open(folder)
    try:
        scorer = Scorer(TestGrader(problem, SlowSandbox(pause)), problem.language, database.known)
        options = Options.restored(database.run().options["search"])
        one = Search(problem, options, database, scorer, TestPrompter(problem), "chaos")
        await one.begin()
        await one.run(mutator)
        return await one.finish()
    finally:
        database.close()


def main():
    """Make the run if it isn't there, and go on with it."""
    folder, problem, candidates = Path(sys.argv[1]), problems.load(Path(sys.argv[2])), int(sys.argv[3])
    if not (folder / "run.sqlite").exists():
        folder.mkdir(exist_ok=True)
        make(folder, problem, candidates=candidates, population=Shape(islands=2, migration_interval=20, stagnation=60))
    asyncio.run(search(folder, problem, SeededMutator(0.03), 0.01))


if __name__ == "__main__":
    main()
