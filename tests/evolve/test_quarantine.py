"""Numbers from outside are bounded, and no data in a database stops a resume."""

import json
import random
import sqlite3

import pytest

from evolve.database import Database
from evolve.metrics import MOST, InvalidMetrics, checked, number, numeric
from evolve.scripted import ScriptedMutator
from tests.evolve.test_folders import Run as FolderRun
from tests.evolve.test_loop import Run, block

BAD = [float("nan"), float("inf"), -float("inf"), 1.7e308, -1e101, 10**400, True, "1", None, [1]]


@pytest.mark.parametrize("value", BAD, ids=lambda value: str(value)[:20])
def test_what_is_no_number_of_ours(value):
    assert number(value) is None
    assert numeric({"a": value, "b": 2}) == {"b": 2.0}


def test_bounds_of_an_evaluation():
    assert checked({"a": MOST, "flag": True, "text": "x"}, {"log": "y"}) == (
        {"a": MOST, "flag": True, "text": "x"},
        {"log": "y"},
    )
    for metrics, artifacts in (
        ({"a": 1.7e308}, {}),
        ({"a": 10**400}, {}),
        ({"a": [1]}, {}),
        ([], {}),
        ({"a": 1}, {"log": 1}),
        ({"x" * 201: 1}, {}),
        ({str(i): i for i in range(200_000)}, {}),
        ({"a": 1}, {str(i): "" for i in range(101)}),
    ):
        with pytest.raises(InvalidMetrics):
            checked(metrics, artifacts)


JUNK = [
    "",
    "x",
    "[",
    "{}",
    "[]",
    "null",
    "[1e999]",
    '["a"]',
    "[[1]]",
    '{"values": 1}',
    '{"values": {"a": 1e999}, "given": {}}',
    b"\xff\xfe",
    7,
]
COLUMNS = ["scores", "verdicts", "results", "metrics", "artifacts", "hidden_verdicts", "hidden_scores", "fitness"]
TOKENS = ["prompt_token_ids", "token_ids", "logprobs", "sampled"]


@pytest.mark.parametrize("seed", range(6))
async def test_rows_at_random_do_not_stop_a_resume(tmp_path, problem_folder, seed):
    rng = random.Random(seed)
    run = Run(tmp_path / "run", problem_folder, prompts=2, completions=2, answers=1, candidates=12, retry=False)
    await run.go(ScriptedMutator([block("x * 2 if x == 1 else 0"), block("3"), block("1 / 0"), "no idea"]))
    with sqlite3.connect(tmp_path / "run" / "run.sqlite") as connection:
        for _ in range(8):
            table, columns = rng.choice((("program", COLUMNS), ("completion", TOKENS)))
            ids = [row[0] for row in connection.execute(f"select id from {table}")]
            column = rng.choice(columns)
            connection.execute(f"update {table} set {column} = ? where id = ?", (rng.choice(JUNK), rng.choice(ids)))
    connection.close()
    database = Database.open(tmp_path / "run")
    try:
        found = database.quarantine()
        assert database.quarantine() == []
    finally:
        database.close()
    result = await run.go(ScriptedMutator([block("x * 2"), block("4")]), candidates=20)
    assert result.candidates == 20
    kept = run.sql("select data from event where kind = 'quarantine' order by id")
    assert [json.loads(data)["id"] for (data,) in kept] == [int(line.split()[1].rstrip(":")) for line in found]


async def test_metrics_beyond_all_bounds_end_as_invalid(tmp_path):
    huge = "```python\ndef square(n):\n    return 1.7e308\n```"
    run = FolderRun(tmp_path, "plain", [huge], retry=False)
    await run.go()
    assert run.sql("select count(*) from program where fitness > 1e100 or fitness < -1e100") == [(0,)]
