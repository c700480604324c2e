"""When a version of the mutator takes over, and what a kill at any moment leaves."""

import asyncio
import json
from pathlib import Path

import numpy as np
import pytest
from sqlalchemy import select

from evolve import problem as problems
from evolve import schema as s
from evolve.completion import Completion
from evolve.database import Database
from evolve.errors import BadInput
from evolve.grading import TestGrader
from evolve.loop import Search
from evolve.options import Options
from evolve.prompt import TestPrompter
from evolve.refresher import Context
from evolve.report import Report
from evolve.scoring import Scorer
from evolve.scripted import ScriptedMutator
from mutator_training.adapter import TrainingError
from mutator_training.gate import compare
from mutator_training.refresh import FAILURES, MutatorRefresher, RefreshOptions
from sandbox.inprocess import InProcessSandbox
from tests.conftest import write_problem
from tests.evolve.chaos import make

GOOD = "```python\ndef double(x):\n    return x * 2\n```"
BAD = "```python\ndef double(x):\n    return 3\n```"


class Server:
    """Serves versions by name, as vLLM does."""

    def __init__(self):
        self.loaded, self.paused = {}, 0

    async def load_adapter(self, name, folder):
        assert name not in self.loaded
        assert (Path(folder) / "adapter_config.json").is_file()
        self.loaded[name] = Path(folder)

    async def unload_adapter(self, name):
        del self.loaded[name]

    async def make_room(self, megabytes):
        self.paused += 1

    async def go_on(self):
        self.paused -= 1


class Versions(ScriptedMutator):
    """A mutator of which each version says one thing."""

    def __init__(self, replies):
        super().__init__(["-"], name="base")
        self.replies, self.asked = replies, []

    def use(self, name):
        self.name = name
        self.room = None

    async def sample(self, messages, positions, m, seed):
        self.asked.append(self.name)
        text = "\n".join([self.replies(self.name)] * m)
        return [
            Completion(text, "plain", m, "stop", 3, 2, 0.0, 1.0, self.name, seed, [1, 2, 3], [4, 5], [-0.1, -0.2])
            for _ in positions
        ]


class Case:
    """A search that is refreshed by a trainer which makes folders."""

    def __init__(self, folder, replies=lambda name: BAD, trainer=None, candidates=24, **given):
        self.folder = folder / "run"
        self.folder.mkdir()
        self.problem = problems.load(write_problem(folder / "p"))
        make(self.folder, self.problem, candidates=candidates, prompts=2, completions=2, answers=2, retry=False)
        self.given, self.specs, self.said = {"learning_rate": 1e-4, **given}, [], []
        self.trainer = trainer or self.train
        self.mutator = Versions(replies)

    def train(self, spec, say, stop):
        self.specs.append(spec)
        folder = Path(spec.out)
        folder.mkdir(parents=True)
        (folder / "adapter_config.json").write_text("{}")
        return {"groups": 2, "completions": 4, "trained_tokens": 10, "train_seconds": 0.1}

    async def go(self, candidates=None):
        database = Database.open(self.folder)
        self.server = Server()
        try:
            scorer = Scorer(TestGrader(self.problem, InProcessSandbox()), "python", database.known)
            options = Options.restored(database.run().options["search"])
            self.mutator.name = "base"
            context = Context(self.folder, self.problem, database, scorer, self.mutator, self.server, Path("base"), "base",
                              None, self.said.append)  # fmt: skip
            refresher = MutatorRefresher(self.given, context, self.trainer)
            await refresher.restore()
            self.search = Search(self.problem, options, database, scorer, TestPrompter(self.problem), "base")
            await self.search.begin()
            await self.search.run(self.mutator, refresher)
            return await self.search.finish()
        finally:
            database.close()

    def states(self):
        report = Report(self.folder)
        try:
            return {row["name"]: row["state"] for row in report.mutators()}
        finally:
            report.close()

    def events(self, kind):
        database = Database.open(self.folder)
        try:
            return database.read(lambda c: list(c.scalars(select(s.event.c.data).where(s.event.c.kind == kind))))
        finally:
            database.close()


async def test_each_generation_is_sampled_by_the_version_that_the_one_before_trained(tmp_path):
    case = Case(tmp_path)
    await case.go()
    assert case.states() == {"base": "retired", "run-v1": "retired", "run-v2": "serving"}
    report = Report(case.folder)
    rows = {row["name"]: row for row in report.mutators()}
    assert {name: row["completions"] for name, row in rows.items()} == {"base": 4, "run-v1": 4, "run-v2": 4}
    assert (rows["run-v1"]["trained_on"], rows["run-v1"]["gate_before"], rows["run-v1"]["p_fall"]) == (4, 0.0, 1.0)
    assert report.cost()["trained_tokens"] == 20
    report.close()
    assert [spec.selection for spec in case.specs] == [
        {"after": 0, "mutator": "base"},
        {"after": 2, "mutator": "run-v1"},
    ]
    assert [spec.start for spec in case.specs] == [None, str(case.folder / "adapters" / "v1")]
    assert set(case.server.loaded) == {"run-v2"}
    assert case.server.paused == 0


async def test_a_version_that_is_worse_is_rejected_and_the_old_one_goes_on(tmp_path):
    case = Case(tmp_path, lambda name: GOOD if name == "base" else BAD, candidates=40, gate_prompts=2)
    case.given["every"] = 1
    await case.go()
    assert set(case.states().values()) == {"serving", "rejected"}
    assert case.states()["base"] == "serving"
    verdicts = case.events("refreshed")
    assert [data["accepted"] for data in verdicts] == [False] * FAILURES  # then training ends for this run
    assert verdicts[0]["gate"]["p"] < 0.05
    assert "goes on without training" in case.said[-1]
    assert case.server.loaded == {}
    await case.go()
    assert len(case.events("refreshed")) == FAILURES


async def test_without_a_gate_it_takes_over_all_the_same(tmp_path):
    case = Case(tmp_path, lambda name: GOOD if name == "base" else BAD, candidates=16, gate=False)
    await case.go()
    assert case.states() == {"base": "retired", "run-v1": "serving"}


async def test_a_failed_training_never_stops_the_search(tmp_path):
    def fails(spec, say, stop):
        Path(spec.out).mkdir(parents=True)  # what a broken trainer leaves
        raise TrainingError("out of memory")

    case = Case(tmp_path, trainer=fails)
    assert (await case.go()).candidates == 24
    assert case.states() == {"base": "serving"}
    assert "out of memory" in case.events("refreshed")[0]["error"]
    assert not list((case.folder / "adapters").iterdir())


class Killed(BaseException):
    """As if the process had ended here."""


async def test_killed_while_it_trains_the_refresh_is_done_again(tmp_path):
    def killed(spec, say, stop):
        (Path(spec.out).parent).mkdir(parents=True, exist_ok=True)
        (Path(spec.out).parent / ".v1.unborn").mkdir()
        raise Killed

    case = Case(tmp_path, trainer=killed)
    with pytest.raises(Killed):
        await case.go()
    assert case.events("refresh") == []
    case.trainer = case.train
    await case.go()
    assert [data["prompt"] for data in case.events("refresh")] == [2, 4]
    assert case.states()["run-v2"] == "serving"


async def test_killed_between_publishing_and_recording_the_folder_is_made_anew(tmp_path):
    case = Case(tmp_path)
    orphan = case.folder / "adapters" / "v1"
    orphan.mkdir(parents=True)
    (orphan / "half").write_text("")
    await case.go()
    assert not (orphan / "half").exists()
    assert case.states()["run-v2"] == "serving"


async def test_killed_in_the_gate_the_candidate_is_rejected_and_never_served(tmp_path):
    def replies(name):
        if name == "run-v1":
            raise Killed
        return BAD

    case = Case(tmp_path, replies)
    with pytest.raises(Killed):
        await case.go()
    assert case.states() == {"base": "serving", "run-v1": "candidate"}
    case.mutator.replies = lambda name: BAD
    await case.go()
    assert case.states() == {"base": "retired", "run-v1": "rejected", "run-v2": "retired", "run-v3": "serving"}
    assert "run-v1" not in set(case.mutator.asked[-8:])


async def test_a_resumed_run_serves_the_version_that_it_had(tmp_path):
    case = Case(tmp_path, candidates=16)
    await case.go()
    assert case.states() == {"base": "retired", "run-v1": "serving"}
    database = Database.open(case.folder)
    stored = dict(database.run().options)
    stored["search"] = {**stored["search"], "candidates": 24}
    database.set_options(stored)
    database.close()
    case.mutator.asked.clear()
    await case.go()
    assert case.mutator.asked[0] == "run-v2"  # the gate of the refresh that was due; the search itself had v1
    assert case.specs[-1].selection["mutator"] == "run-v1"


async def test_an_interrupt_ends_the_training_and_a_resume_repeats_it(tmp_path):
    started, ended = asyncio.Event(), []
    loop = asyncio.get_running_loop()

    def waits(spec, say, stop):
        loop.call_soon_threadsafe(started.set)
        ended.append(stop.wait(20))
        raise TrainingError("stopped")

    case = Case(tmp_path, trainer=waits)
    running = asyncio.create_task(case.go())
    await asyncio.wait_for(started.wait(), 30)
    case.search.interrupt()
    result = await asyncio.wait_for(running, 10)
    assert result.reason == "interrupted"
    for _ in range(100):
        if ended:
            break
        await asyncio.sleep(0.05)
    assert ended == [True]
    assert case.events("refresh") == []
    case.trainer = case.train
    await case.go()
    assert [data["prompt"] for data in case.events("refresh")] == [2, 4]


def test_options_are_checked():
    with pytest.raises(BadInput, match="did you mean 'learning_rate'"):
        RefreshOptions.checked({"learning_rat": 1})
    with pytest.raises(BadInput, match="did you mean 'vpo'"):
        RefreshOptions.checked({"estimator": "vpoo"})
    assert json.dumps(RefreshOptions.checked({"every": 2}).every) == "2"


def test_the_gate_rejects_falls_and_rarely_an_equal():
    rng = np.random.default_rng(0)

    def draw(count, mean):
        return [rng.normal(mean, 0.15, count)]

    assert not compare(draw(16, 0.7), draw(16, 0.2)).accepted
    assert compare(draw(16, 0.2), draw(16, 0.7)).accepted
    rejected = sum(not compare(draw(8, 0.5), draw(8, 0.5)).accepted for _ in range(200))
    assert rejected <= 20
    same = compare([[0.0] * 4], [[0.0] * 4])
    assert same.accepted
    assert same.p == 1.0
