"""Nothing is lost and nothing depends on when: kill -9, order of arrival, replay, resume."""

import asyncio
import random
import sqlite3
import subprocess
import sys
import time

import pytest

from evolve import problem as problems
from evolve.database import Database
from evolve.doctor import examine_run
from evolve.errors import BadInput, MutatorError
from evolve.grading import TestGrader
from evolve.loop import Search
from evolve.options import Options, Reason
from evolve.population import Shape
from evolve.prompt import TestPrompter
from evolve.replay import ReplayMutator
from evolve.report import Report
from evolve.scoring import Scorer
from tests.conftest import ROOT
from tests.evolve.chaos import SeededMutator, SlowSandbox, make, search

CANDIDATES = 300
TABLES = {
    "prompt": "id, generation, position, parent_id, inspirations, messages, completions, answers, seed, island, retries",
    "completion": "id, prompt_id, position, text, retry_of, edits",
    "program": "id, completion_id, position, generation, parent_id, source_hash, fingerprint, status, reason, duplicate_of, "
    "fitness, solved, scores, verdicts",
    "run": "rng_state, committed, seed",
}


def rows(folder, query):
    connection = sqlite3.connect(folder / "run.sqlite", timeout=30)
    try:
        return connection.execute(query).fetchall()
    finally:
        connection.close()


def content(folder):
    return {table: rows(folder, f"select {columns} from {table} order by 1") for table, columns in TABLES.items()}


@pytest.fixture
def problem(problem_folder):
    return problems.load(problem_folder)


async def reference(folder, problem, candidates=CANDIDATES, pause=0.0, **options):
    folder.mkdir()
    shape = Shape(islands=2, migration_interval=20, stagnation=60)
    make(folder, problem, candidates=candidates, population=shape, **options)
    return await search(folder, problem, SeededMutator(pause), pause / 3)


@pytest.mark.slow
async def test_killed_at_20_random_moments_a_run_ends_with_the_same_rows(tmp_path, problem_folder, problem):
    await reference(tmp_path / "whole", problem)
    killed = tmp_path / "killed"
    command = [sys.executable, "-m", "tests.evolve.chaos", str(killed), str(problem_folder), str(CANDIDATES)]
    moments = random.Random(3)
    kills = 0
    done = 0
    while kills < 20:
        process = subprocess.Popen(command, cwd=ROOT)
        deadline = time.monotonic() + 30
        more = moments.randint(1, 12)
        while process.poll() is None and time.monotonic() < deadline:
            try:
                (count,) = rows(killed, "select count(*) from completion")[0]
            except sqlite3.OperationalError:
                count = 0
            if count >= done + more:
                break
            await asyncio.sleep(moments.random() * 0.02)
        process.kill()
        assert process.wait() == -9
        before, done = done, rows(killed, "select count(*) from completion")[0][0]
        assert done >= before
        assert rows(killed, "pragma integrity_check") == [("ok",)]
        kills += 1
        if done > 150 and kills < 20:  # leave something for the kills that are to come
            done = before + 1
    assert (await asyncio.to_thread(subprocess.run, command, cwd=ROOT, check=False)).returncode == 0
    assert content(killed) == content(tmp_path / "whole")


async def test_the_order_of_arrival_changes_nothing(tmp_path, problem):
    await reference(tmp_path / "a", problem, candidates=120)
    await reference(tmp_path / "b", problem, candidates=120, pause=0.03)
    assert content(tmp_path / "a") == content(tmp_path / "b")
    arrived = rows(tmp_path / "b", "select id from completion order by created")
    assert arrived != sorted(arrived)


async def test_a_replay_is_the_same_run_bit_for_bit_also_after_a_resume_in_the_middle(tmp_path, problem):
    await reference(tmp_path / "recorded", problem, candidates=100, prompts=3)
    replay = ReplayMutator(tmp_path / "recorded")
    again = tmp_path / "again"
    again.mkdir()
    make(again, problem, candidates=100, prompts=3, population=Shape(islands=2, migration_interval=20, stagnation=60))

    class Faulty(SeededMutator):
        async def sample(self, messages, positions, m, seed):
            if rows(again, "select count(*) from completion")[0][0] > 20:
                raise MutatorError("gone")
            return await replay.sample(messages, positions, m, seed)

    with pytest.raises(MutatorError):
        await search(again, problem, Faulty(), 0.01)
    assert 20 < rows(again, "select count(*) from completion")[0][0] < 60
    assert (await search(again, problem, replay)).reason is Reason.CANDIDATES
    assert content(again) == content(tmp_path / "recorded")
    more = tmp_path / "more"
    more.mkdir()
    make(more, problem, candidates=200, prompts=3, population=Shape(islands=2, migration_interval=20, stagnation=60))
    with pytest.raises(MutatorError, match=r"has no completion \d+ for the seed"):
        await search(more, problem, replay)
    replay.close()


class Held(SeededMutator):
    """Gives eight completions, then nothing more."""

    def __init__(self):
        super().__init__()
        self.given = 0
        self.silent = asyncio.Event()

    async def sample(self, messages, positions, m, seed):
        if self.given >= 8:
            self.silent.set()
            await asyncio.sleep(60)
        self.given += len(positions)
        return await super().sample(messages, positions, m, seed)


async def test_an_interrupt_records_what_was_sampled(tmp_path, problem):
    """What the model has given is scored and kept; only what it is still writing is dropped."""
    folder, mutator = tmp_path / "run", Held()
    folder.mkdir()
    make(folder, problem, candidates=400, retry=False)
    database = Database.open(folder)
    scorer = Scorer(TestGrader(problem, SlowSandbox(0.3)), "python", database.known)
    options = Options.restored(database.run().options["search"])
    one = Search(problem, options, database, scorer, TestPrompter(problem), "chaos")
    await one.begin()
    running = asyncio.create_task(one.run(mutator))
    await mutator.silent.wait()
    one.interrupt()
    await running
    assert (await one.finish()).reason is Reason.INTERRUPTED
    database.close()
    assert rows(folder, "select count(*) from completion") == [(mutator.given,)]


async def test_show_answers_while_the_run_is_written(tmp_path, problem):
    folder = tmp_path / "run"
    folder.mkdir()
    make(folder, problem, candidates=600, retry=False)
    task = asyncio.create_task(search(folder, problem, SeededMutator()))
    waits = []
    while not task.done():
        await asyncio.sleep(0.01)
        started = time.monotonic()
        report = Report(folder)
        report.summary()
        if report.summary()["best"] is not None:
            report.program()
        report.close()
        waits.append(time.monotonic() - started)
    await task
    assert len(waits) > 2
    assert sorted(waits)[len(waits) // 2] < 1.0


async def test_doctor_finds_a_damaged_database(tmp_path, problem):
    await reference(tmp_path / "run", problem, candidates=60)
    assert all(check.works for check in examine_run(tmp_path / "run"))
    path = tmp_path / "run" / "run.sqlite"
    rows(tmp_path / "run", "pragma wal_checkpoint(truncate)")
    data = bytearray(path.read_bytes())
    page = 4096
    data[-2 * page + 8 : -2 * page + 60] = b"\xff" * 52
    path.write_bytes(data)
    assert not all(check.works for check in examine_run(tmp_path / "run"))


def test_doctor_wants_a_run(tmp_path):
    with pytest.raises(BadInput, match="not a run"):
        examine_run(tmp_path)
