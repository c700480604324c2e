"""The whole search with a scripted mutator and an in-process sandbox, on real SQLite."""

import asyncio
import json
import sqlite3
from dataclasses import asdict

import numpy as np
import pytest
from sqlalchemy import event

from evolve import problem as problems
from evolve.database import Database
from evolve.errors import BadInput, ContextOverflow, DatabaseError, MutatorError
from evolve.grading import TestGrader
from evolve.loop import Search
from evolve.options import Options, Reason
from evolve.prompt import TestPrompter
from evolve.report import Report
from evolve.scoring import Scorer
from evolve.scripted import ScriptedMutator
from sandbox.base import SandboxError
from sandbox.inprocess import InProcessSandbox
from tests.conftest import write_problem


def block(body):
    return f"```python\ndef double(x):\n    return {body}\n```"


REPLIES = [block("x * 2"), block("3") + "\n" + block("x + 1"), "no idea", block("1 / 0"), block("2 if x == 1 else x * 3")]


class Run:
    """A run in a folder, opened anew with every call."""

    def __init__(self, folder, problem_folder, seed=0, **options):
        self.folder = folder
        self.problem = problems.load(problem_folder)
        self.options = Options(**{"prompts": 2, "completions": 2, "answers": 2, "candidates": 12} | options)
        self.sandbox = InProcessSandbox()
        state = np.random.default_rng(seed).bit_generator.state
        Database.create(folder, self.problem, {"search": asdict(self.options)}, seed, state).close()

    async def go(self, mutator, **changes):
        database = Database.open(self.folder)
        try:
            options = Options.restored(asdict(self.options) | changes)
            self.search = self.search_on(database, options)
            await self.search.begin()
            await self.search.run(mutator)
            return await self.search.finish()
        finally:
            database.close()

    def search_on(self, database, options):
        scorer = Scorer(TestGrader(self.problem, self.sandbox), self.problem.language, database.known)
        return Search(self.problem, options, database, scorer, TestPrompter(self.problem), "scripted")

    def sql(self, query):
        connection = sqlite3.connect(self.folder / "run.sqlite")
        try:
            return connection.execute(query).fetchall()
        finally:
            connection.close()


async def test_a_search_finds_records_and_confirms(tmp_path, problem_folder):
    run = Run(tmp_path / "run", problem_folder)
    result = await run.go(ScriptedMutator(REPLIES))
    assert result.solved
    assert result.confirmed
    assert result.reason is Reason.CANDIDATES
    assert run.sql("select count(*) from program where completion_id is not null")[0][0] >= 12
    assert run.sql("select text from source join program on hash = source_hash where solved limit 1")[0][0] == (
        "def double(x):\n    return x * 2\n"
    )
    statuses = dict(run.sql("select status, count(*) from program group by status"))
    assert statuses["unusable"] >= 1
    assert run.sql("select fitness, scores from program where reason != ''")[0] == (None, None)


async def test_a_program_that_raises_when_called_is_scored_zero_but_one_that_cannot_load_has_no_fitness(
    tmp_path, problem_folder
):
    run = Run(tmp_path / "run", problem_folder, completions=1, prompts=1, answers=1, candidates=3)
    await run.go(ScriptedMutator([block("1 / 0"), "```python\ndef double(x) syntax\n```", "```python\ndouble = 1\n```"]))
    rows = run.sql("select status, fitness, scores from program where completion_id is not null order by id")
    assert rows == [
        ("scored", 0.0, "[0.0, 0.0, 0.0]"),
        ("failed", None, "[0.0, 0.0, 0.0]"),
        ("failed", None, "[0.0, 0.0, 0.0]"),
    ]


async def test_twins_run_once(tmp_path, problem_folder):
    run = Run(tmp_path / "run", problem_folder)
    await run.go(ScriptedMutator([block("x*2"), block("x * 2  # twice")]))
    assert len(run.sandbox.programs) == 3  # the initial program, one of the twins, and the winner's hidden tests
    rows = run.sql("select id, duplicate_of, scores from program where completion_id is not null")
    originals = [row for row in rows if row[1] is None]
    assert len(originals) == 1
    assert all(row[1] == originals[0][0] and row[2] == originals[0][2] for row in rows if row[1] is not None)


async def test_hidden_tests_never_reach_the_mutator_and_run_for_the_best_only(tmp_path):
    tests = [{"id": "v", "args": [1], "expected": 2}, {"id": "secret", "args": [777], "expected": 1554, "hidden": True}]
    folder = write_problem(tmp_path / "p", tests=tests, files={"initial_program.py": "def double(x):\n    return 0\n"})
    run = Run(tmp_path / "run", folder)
    mutator = ScriptedMutator(REPLIES)
    await run.go(mutator)
    assert "777" not in str(mutator.prompts)
    assert "1554" not in str(mutator.prompts)
    assert run.sql("select count(*) from program where hidden_verdicts is not null") == [(1,)]


async def test_solved_but_not_confirmed(tmp_path, problem_folder):
    run = Run(tmp_path / "run", problem_folder, stop_when="solved", candidates=None)
    cheat = block("{1: 2, 'ab': 'abab'}.get(x) if type(x) is not list else x * 2")
    result = await run.go(ScriptedMutator([cheat]))
    assert (result.reason, result.solved, result.confirmed) == (Reason.SOLVED, True, False)


@pytest.mark.parametrize(
    ("options", "reason"),
    [({"candidates": 5}, Reason.CANDIDATES), ({"candidates": None, "tokens": 30}, Reason.TOKENS),
     ({"candidates": None, "minutes": 0.002}, Reason.MINUTES)],
)  # fmt: skip
async def test_budgets(tmp_path, problem_folder, options, reason):
    run = Run(tmp_path / "run", problem_folder, **options)
    assert (await run.go(ScriptedMutator(["no idea"]))).reason is reason


async def test_a_budget_of_candidates_is_not_overshot_by_more_than_one_completion(tmp_path, problem_folder):
    run = Run(tmp_path / "run", problem_folder, prompts=4, completions=4, answers=2, candidates=5)
    await run.go(ScriptedMutator([block("x") + "\n" + block("x + 1")]))
    assert run.sql("select count(*) from program where completion_id is not null")[0][0] in (5, 6)


async def test_interrupt_keeps_what_is_recorded_and_resume_completes_the_groups(tmp_path, problem_folder):
    run = Run(tmp_path / "run", problem_folder, candidates=40, retry=False)

    class Slow(ScriptedMutator):
        async def sample(self, messages, positions, m, seed):
            if self._count >= 6:
                run.search.interrupt()
                await asyncio.sleep(60)
            return await super().sample(messages, positions, m, seed)

    result = await run.go(Slow(["no idea"]))
    assert result.reason is Reason.INTERRUPTED
    before = run.sql("select id, text from completion order by id")
    assert 4 <= len(before) <= 6
    missing = run.sql("select count(*) from prompt where id not in (select prompt_id from completion)")[0][0]
    assert missing > 0
    assert (await run.go(ScriptedMutator(REPLIES))).reason is Reason.CANDIDATES
    assert set(before) <= set(run.sql("select id, text from completion"))
    assert run.sql("select completions - (select count(*) from completion where prompt_id = prompt.id) from prompt where "
                   "generation < (select max(generation) from prompt)") == [(0,)] * (
        run.sql("select count(*) from prompt where generation < (select max(generation) from prompt)")[0][0])  # fmt: skip


async def test_a_fault_of_the_machine_is_no_score_and_burns_no_budget(tmp_path, problem_folder):
    run = Run(tmp_path / "run", problem_folder)

    class Broken(InProcessSandbox):
        async def run(self, program, inputs):
            if len(self.programs) >= 2:
                raise SandboxError("no more containers")
            return await super().run(program, inputs)

    run.sandbox = Broken()
    with pytest.raises(SandboxError, match="no more containers"):
        await run.go(ScriptedMutator(REPLIES))
    recorded = run.sql("select count(*) from program where completion_id is not null")[0][0]
    assert recorded < 12
    run.sandbox = InProcessSandbox()
    result = await run.go(ScriptedMutator(REPLIES))
    assert result.reason is Reason.CANDIDATES


async def test_a_mutator_that_stays_away_leaves_a_resumable_run(tmp_path, problem_folder):
    run = Run(tmp_path / "run", problem_folder)

    class Away(ScriptedMutator):
        async def sample(self, messages, positions, m, seed):
            raise MutatorError("gone")

    with pytest.raises(MutatorError):
        await run.go(Away(REPLIES))
    assert run.sql("select count(*) from completion") == [(0,)]
    assert (await run.go(ScriptedMutator(REPLIES))).solved


async def test_a_prompt_that_is_too_long_is_shortened_and_recorded(tmp_path, problem_folder):
    run = Run(tmp_path / "run", problem_folder, candidates=12, retry=False)

    class Short(ScriptedMutator):
        async def sample(self, messages, positions, m, seed):
            if "# Tests that it fails" in messages[1]["content"]:
                raise ContextOverflow("at most 4096 tokens")
            return await super().sample(messages, positions, m, seed)

    mutator = Short(REPLIES)
    await run.go(mutator)
    assert mutator.prompts
    assert all(title in messages[1]["content"] for messages in mutator.prompts for title in ("# Task", "# Your answer"))
    events = run.sql("select data from event where kind = 'prompt-shortened'")
    assert "at most 4096 tokens" in events[0][0]
    sent = {messages[1]["content"] for messages in mutator.prompts if len(messages) == 2}
    assert sent <= {json.loads(messages)[1]["content"] for (messages,) in run.sql("select messages from prompt")}


async def test_a_prompt_that_cannot_be_short_enough_stops_the_run(tmp_path, problem_folder):
    run = Run(tmp_path / "run", problem_folder)

    class Tiny(ScriptedMutator):
        async def sample(self, messages, positions, m, seed):
            raise ContextOverflow("10 tokens")

    with pytest.raises(ContextOverflow):
        await run.go(Tiny(REPLIES))
    assert run.sql("select count(*) from completion") == [(0,)]


async def test_one_seed_gives_one_search(tmp_path, problem_folder):
    programs = []
    for name in "ab":
        run = Run(tmp_path / name, problem_folder, seed=7, candidates=30, prompts=3)
        await run.go(ScriptedMutator(REPLIES))
        programs.append(run.sql("select parent_id, source_hash, fitness from program order by id"))
    assert programs[0] == programs[1]


async def test_an_initial_program_that_does_not_load_is_bad_input(tmp_path):
    folder = write_problem(tmp_path / "p", files={"initial_program.py": "def double(x) return x"})
    run = Run(tmp_path / "run", folder)
    with pytest.raises(BadInput, match=r"doesn't run.*SyntaxError"):
        await run.go(ScriptedMutator(REPLIES))


async def test_reports_agree_with_sql(tmp_path, problem_folder):
    run = Run(tmp_path / "run", problem_folder)
    await run.go(ScriptedMutator(REPLIES))
    report = Report(tmp_path / "run")
    best, summary = report.program(), report.summary()
    row = run.sql("select id, fitness from program where status = 'scored' order by fitness desc, id limit 1")[0]
    assert (best["id"], best["fitness"]) == row
    assert summary["candidates"] == run.sql("select count(*) from program where completion_id is not null")[0][0]
    assert {test["test"]: test["verdict"] for test in best["tests"]} == {"one": "pass", "text": "pass", "list": "pass"}
    assert report.tests()[0]["test"] == "one"
    assert report.cost()["completions"] == run.sql("select count(*) from completion")[0][0]
    with pytest.raises(BadInput, match="no program 999"):
        report.program(999)
    report.close()


async def test_a_full_disk_is_an_error_that_keeps_what_is_recorded(tmp_path, problem_folder):
    run = Run(tmp_path / "run", problem_folder, candidates=4000, prompts=1, completions=4)
    database = Database.open(run.folder)
    pages = run.sql("pragma page_count")[0][0]

    engine = database._store._engine

    @event.listens_for(engine, "connect")
    def shrink(connection, _):
        connection.execute(f"pragma max_page_count = {pages + 20}")

    engine.dispose()  # the listener is for new connections
    search = run.search_on(database, run.options)
    await search.begin()
    with pytest.raises(DatabaseError, match=r"full.*evolve resume"):
        await search.run(ScriptedMutator(["no idea " * 2000]))
    database.close()
    kept = run.sql("select count(*) from completion")[0][0]
    assert kept > 0
    assert run.sql("pragma integrity_check") == [("ok",)]
    assert (await run.go(ScriptedMutator(REPLIES), candidates=2 * kept + 10)).reason is Reason.CANDIDATES
    assert run.sql("select count(*) from completion")[0][0] > kept


def test_a_newer_schema_and_other_files_are_refused(tmp_path, problem_folder):
    run = Run(tmp_path / "run", problem_folder)
    connection = sqlite3.connect(run.folder / "run.sqlite")
    connection.execute("update alembic_version set version_num = '9999'")
    connection.commit()
    connection.close()
    with pytest.raises(DatabaseError, match="newer"):
        Database.open(run.folder)
    with pytest.raises(BadInput, match="not a run"):
        Database.open(tmp_path)
    (tmp_path / "junk").mkdir()
    (tmp_path / "junk" / "run.sqlite").write_bytes(b"junk" * 1000)
    with pytest.raises(DatabaseError, match="not a database"):
        Database.open(tmp_path / "junk")


def test_a_run_is_never_overwritten(tmp_path, problem_folder):
    Run(tmp_path / "run", problem_folder)
    with pytest.raises(BadInput, match="evolve resume"):
        Run(tmp_path / "run", problem_folder)


def change(old, new):
    return f"<<<<<<< SEARCH\n{old}\n=======\n{new}\n>>>>>>> REPLACE"


async def test_edits_of_the_parent_are_asked_for_and_made(tmp_path, problem_folder):
    run = Run(tmp_path / "run", problem_folder, edits="diff", answers=1, candidates=4, stop_when="solved")
    mutator = ScriptedMutator([change("    return 2", "    return x * 2")])
    result = await run.go(mutator)
    assert result.solved
    assert "<<<<<<< SEARCH" in mutator.prompts[0][-1]["content"]
    assert run.sql("select text from source join program on hash = source_hash where solved")[0][0] == (
        "def double(x):\n    return x * 2\n"
    )


async def test_edits_are_given_up_when_they_fail_too_often(tmp_path, problem_folder):
    run = Run(
        tmp_path / "run", problem_folder, edits="auto", answers=1, prompts=4, completions=4, candidates=48, retry=False
    )

    def script(messages, number):
        return change("not there", "x") if "<<<<<<< SEARCH" in messages[-1]["content"] else block("x + 1")

    mutator = ScriptedMutator(script)
    await run.go(mutator, candidates=32)
    asked = ["<<<<<<< SEARCH" in messages[-1]["content"] for messages in mutator.prompts]
    assert asked == [True] * 7 + [False]  # the fourth prompt is committed before the eighth is built
    report = Report(run.folder)
    unusable = report.cost()["unusable_per_mutator"]
    report.close()
    assert unusable == {"scripted": {"answers": 32, "unusable": 28, "reasons": {"SEARCH is not in the program": 28}}}
    assert run.sql("select data from event where kind = 'edits-given-up'") == [('{"edited": 16, "failed": 16}',)]
    await run.go(mutator)  # a resumed run remembers
    assert not any("<<<<<<< SEARCH" in messages[-1]["content"] for messages in mutator.prompts[8:])


async def test_only_the_evolve_block_of_the_initial_program_changes(tmp_path):
    initial = "SECRET = 3  # fixed\n# EVOLVE-BLOCK-START\ndef double(x):\n    return 2\n# EVOLVE-BLOCK-END\n"
    folder = write_problem(tmp_path / "p", files={"initial_program.py": initial})
    run = Run(tmp_path / "run", folder)
    mutator = ScriptedMutator([*REPLIES, "```python\nSECRET = 4\ndef double(x):\n    return SECRET\n```"])
    await run.go(mutator, candidates=24)
    assert "EVOLVE-BLOCK markers may change" in mutator.prompts[0][-1]["content"]
    sources = [text for (text,) in run.sql("select text from source")]
    assert len(sources) > 3
    assert all(text.startswith("SECRET = 3  # fixed\n# EVOLVE-BLOCK-START\n") for text in sources)
