"""A problem that changes under a run: what decides a score is told from what does not, and the run goes on when asked to."""

import json
import sqlite3

import pytest

from evolve import compose
from evolve import problem as problems
from evolve.database import Database
from evolve.errors import BadInput
from evolve.parts import differences, digest, listed
from evolve.scripted import ScriptedMutator
from evolve.traces import traces
from mutator_training import rollouts
from tests.conftest import write_problem
from tests.evolve.test_hostile_folders import evaluated
from tests.evolve.test_loop import REPLIES, Run, block

TESTS = [{"id": "one", "args": [1], "expected": 3}, {"id": "two", "args": [2], "expected": 6}]


def changed(folder, **files):
    """Load a folder, write files into it, load it again; return what differs."""
    before = problems.load(folder)
    for name, text in files.items():
        (folder / name.replace("__", ".")).write_text(text)
    after = problems.load(folder)
    assert (before.digest != after.digest) == (before.parts != after.parts)
    return differences(before.parts, after.parts)


@pytest.mark.parametrize(
    ("spec", "found"),
    [
        ({"statement": "Other words."}, []),
        ({"name": "other"}, []),
        ({"preamble": ""}, []),
        ({"limits": {}}, []),
        ({"limits": {"memory_mb": 300}}, ["problem.yaml: limits has changed"]),
        ({"comparison": "lines"}, ["problem.yaml: comparison has changed"]),
        ({"preamble": "import math"}, ["problem.yaml: preamble is new"]),
        ({"objectives": {"size": {"best": 10, "worst": 100}}}, ["problem.yaml: objectives is new"]),
    ],
)
def test_keys_of_a_problem(problem_folder, spec, found):
    before = problems.load(problem_folder)
    write_problem(problem_folder, spec=spec)
    after = problems.load(problem_folder)
    assert differences(before.parts, after.parts) == found
    assert (before.digest == after.digest) is (not found)


def test_each_test_has_a_name_in_what_changed(problem_folder):
    found = changed(problem_folder, tests__jsonl="\n".join(map(json.dumps, TESTS)))
    assert "test one has changed" in found
    assert "test two is new" in found
    assert "test h (hidden) is gone" in found


def test_the_initial_program_and_foreign_files_decide_no_score(problem_folder):
    assert changed(problem_folder, initial_program__py="def double(x):\n    return 1\n", notes__txt="x") == []


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("config.yaml", "llm: {temperature: 0.3}\nmax_iterations: 7\n"),
        ("README.md", "x"),
        ("plot.png", "x"),
        ("run.log", "x"),
        ("LICENSE", "x"),
    ],
)
def test_what_an_evaluator_does_not_read_decides_no_score(tmp_path, name, text):
    folder = evaluated(tmp_path / "p")
    assert changed(folder, **{name.replace(".", "__"): text}) == []
    assert name not in problems.load(folder).files


@pytest.mark.parametrize(
    ("name", "text", "reads"),
    [
        ("config.yaml", "a: 1\n", "import yaml\n"),
        ("README.md", "x", "NAME = 'README.md'\n"),
        ("plot.png", "x", "import glob; ALL = glob.glob('*.png')\n"),
        ("data.csv", "x", ""),
    ],
)
def test_what_an_evaluator_may_read_does(tmp_path, name, text, reads):
    folder = evaluated(tmp_path / "p")
    (folder / "evaluator.py").write_text(reads + (folder / "evaluator.py").read_text())
    assert changed(folder, **{name.replace(".", "__"): text}) == [f"{name} is new"]
    assert name in problems.load(folder).files


@pytest.mark.parametrize(
    ("text", "part"),
    [
        ("evaluator: {timeout: 7}\n", "limits of time, memory and cores"),
        ("evaluator: {cascade_evaluation: false}\n", "thresholds of the stages"),
        ("database: {feature_dimensions: [size]}\n", "feature dimensions"),
    ],
)
def test_keys_of_a_config_that_decide_a_score(tmp_path, text, part):
    folder = evaluated(tmp_path / "p")
    assert changed(folder, config__yaml=text) == [f"{part} has changed"]


def test_many_differences_are_told_shortly():
    told = listed(differences({}, {str(number): "x" for number in range(30)}))
    assert told.endswith("and 22 more")
    assert digest({"a": "1", "b": "2"}) == digest({"b": "2", "a": "1"}) != digest({"a": "1"})


async def outdated(tmp_path, problem_folder):
    """A finished run whose tests have changed since, and whose change is accepted."""
    run = Run(tmp_path / "run", problem_folder)
    await run.go(ScriptedMutator(REPLIES))
    write_problem(problem_folder, tests=TESTS)
    run.problem = problems.load(problem_folder)
    database = Database.open(run.folder)
    try:
        assert database.outdate(run.problem, ["test one has changed"]) == 2
    finally:
        database.close()
    return run


async def test_the_best_programs_are_scored_anew_and_the_search_goes_on(tmp_path, problem_folder):
    run = await outdated(tmp_path, problem_folder)
    assert run.sql("select count(*) from program where fitness is not null or solved or fingerprint is not null") == [(0,)]
    assert run.sql("select name, kind from objective order by id") == [("one", "test"), ("two", "test")]
    result = await run.go(ScriptedMutator([block("x * 3")]), candidates=20)
    assert result.solved
    assert result.candidates == 20
    assert result.best > 12
    assert run.sql("select count(*) from program where status = 'outdated'") == [(0,)]  # so few that all are the best
    assert all(len(json.loads(scores)) == 2 for (scores,) in run.sql("select scores from program where scores is not null"))
    ((solution,),) = run.sql("select min(id) from program where solved")
    twins = run.sql(f"select count(*) from program where duplicate_of = {solution}")
    assert twins > [(0,)]
    kept = sqlite3.connect(run.folder / "run.sqlite.scoring-1")
    assert kept.execute("select count(*) from program where solved").fetchone() > (0,)
    kept.close()


async def test_a_copy_that_a_kill_left_is_made_anew(tmp_path, problem_folder):
    run = Run(tmp_path / "run", problem_folder)
    await run.go(ScriptedMutator(REPLIES))
    stale = run.folder / "run.sqlite.scoring-1"
    stale.write_bytes(b"of an earlier try")
    database = Database.open(run.folder)
    database.outdate(run.problem, ["x"])
    database.close()
    kept = sqlite3.connect(stale)
    assert kept.execute("select count(*) from program where status = 'scored'").fetchone() > (1,)
    kept.close()


def test_a_run_of_the_schema_before_is_brought_up_to_date(tmp_path, problem_folder):
    run = Run(tmp_path / "run", problem_folder)
    with sqlite3.connect(run.folder / "run.sqlite") as connection:
        connection.execute("alter table run drop column problem_parts")
        connection.execute("update alembic_version set version_num = '0002'")
    connection.close()
    database = Database.open(run.folder)
    assert database.run().problem_parts is None
    database.close()


async def test_a_kill_while_scoring_anew_loses_nothing(tmp_path, problem_folder):
    run = await outdated(tmp_path, problem_folder)
    scored = run.sandbox.run

    async def dies(*arguments, **keywords):
        if run.sql("select count(*) from program where fitness is not null") != [(0,)]:
            raise RuntimeError("killed")
        return await scored(*arguments, **keywords)

    run.sandbox.run = dies
    with pytest.raises(RuntimeError, match="killed"):
        await run.go(ScriptedMutator([block("x * 3")]), candidates=20)
    run.sandbox.run = scored
    count = len(run.sandbox.programs)
    assert (await run.go(ScriptedMutator([block("x * 3")]), candidates=20)).solved
    assert len(run.sandbox.programs) > count


async def test_only_the_best_are_scored_anew_and_the_others_train_nothing(tmp_path, problem_folder):
    run = Run(tmp_path / "run", problem_folder, candidates=60, answers=1)
    await run.go(ScriptedMutator([block(f"x * 2 if x == 1 else {number}") for number in range(60)]))
    write_problem(problem_folder, tests=TESTS)
    run.problem = problems.load(problem_folder)
    with sqlite3.connect(run.folder / "run.sqlite") as connection:
        connection.execute("update completion set token_ids = '[1]', logprobs = '[-1.0]', prompt_token_ids = '[1]'")
    connection.close()
    assert sum(len(group.rollouts) for group in rollouts.groups(run.folder).groups) == 60
    database = Database.open(run.folder)
    database.outdate(run.problem, ["x"])
    database.close()
    await run.go(ScriptedMutator([block("x * 3")]), candidates=61)
    ((old,),) = run.sql("select count(*) from program where status = 'outdated'")
    traced = [one for trace in traces(run.folder) for one in zip(trace["statuses"], trace["scores"], strict=True)]
    assert [scores for status, scores in traced if status == "outdated"] == [[None, None]] * old
    assert old >= 39
    found = rollouts.groups(run.folder)
    assert found.left_out["scored before the problem changed"] == old


class NoSession:
    """A session that ends where a search would begin."""

    def __init__(self):
        self.said = []
        self.say = self.said.append


async def test_a_change_is_named_and_taken_only_when_asked_for(tmp_path, problem_folder, monkeypatch):
    run = Run(tmp_path / "run", problem_folder)
    with sqlite3.connect(run.folder / "run.sqlite") as connection:
        options = {"search": json.loads(run.sql("select options from run")[0][0])["search"], "mutator": {}}
        connection.execute("update run set options = ?", (json.dumps(options),))
    connection.close()
    await run.go(ScriptedMutator(REPLIES))
    session = NoSession()
    searched = []

    async def search(*_):
        searched.append(1)

    monkeypatch.setattr(compose, "_search_with_baseline", search)
    await compose.go_on(run.folder, session)
    write_problem(problem_folder, tests=TESTS)
    with pytest.raises(BadInput, match=r"test one has changed; .*test two is new.*--accept-change"):
        await compose.go_on(run.folder, session)
    assert len(searched) == 1
    await compose.go_on(run.folder, session, accept_change=True)
    await compose.go_on(run.folder, session)
    assert len(searched) == 3
    assert "scoring version 2" in session.said[0]
    with sqlite3.connect(run.folder / "run.sqlite") as connection:
        connection.execute("update run set problem_parts = null, problem_digest = 'old'")
    connection.close()
    with pytest.raises(BadInput, match=r"made by version .*, which did not record"):
        await compose.go_on(run.folder, session)
