"""Runs that start from another system's population."""

import json
import shutil
import sqlite3
from dataclasses import asdict

import pytest
from openevolve.config import DatabaseConfig
from openevolve.database import Program, ProgramDatabase

from evolve import problem as problems
from evolve.database import Database
from evolve.errors import BadInput
from evolve.imports import read_openevolve, read_shinka, start_from
from evolve.settings import search_options
from tests.evolve.test_folders import FOLDERS, SQUARE, Run

SOURCES = {"a": "def solve(n): return n", "b": "def solve(n): return 2 * n", "c": "def solve(n): return n ** 2 or 1"}


@pytest.fixture
def problem():
    return problems.load(FOLDERS / "plain")


def started(folder, problem, programs):
    options = search_options(problem, {"candidates": 6, "answers": 1, "completions": 2, "prompts": 2, "islands": 2})
    return start_from(folder, problem, {"search": asdict(options)}, 0, programs)


def rows(folder, query):
    connection = sqlite3.connect(folder / "run.sqlite")
    try:
        return connection.execute(query).fetchall()
    finally:
        connection.close()


@pytest.fixture
def checkpoint(tmp_path):
    """A checkpoint that OpenEvolve itself wrote."""
    database = ProgramDatabase(DatabaseConfig(random_seed=0))
    parents = {"a": None, "b": "a", "c": "b"}
    for number, (key, source) in enumerate(SOURCES.items()):
        metrics = {"hits": number, "combined_score": number / 10}
        program = Program(key, source, parent_id=parents[key], generation=number, timestamp=float(number), metrics=metrics)
        program.artifacts_json = json.dumps({"log": f"program {key}"})
        database.add(program, iteration=number)
    database.save(str(tmp_path / "checkpoint_3"), iteration=3)
    return tmp_path / "checkpoint_3"


async def test_an_openevolve_checkpoint_keeps_lineage_and_scores_and_goes_on(tmp_path, problem, checkpoint):
    folder = tmp_path / "run"
    taken = started(folder, problem, read_openevolve(checkpoint))
    kept = len(list((checkpoint / "programs").glob("*.json")))
    assert taken == kept == 3
    query = "select text, parent_id, fitness, level, artifacts from program join source on hash = source_hash"
    query += " order by program.id"
    found = rows(folder, query)
    assert [(text, parent, fitness) for text, parent, fitness, _, _ in found] == [
        (SOURCES["a"], None, 0.0),
        (SOURCES["b"], 1, 0.1),
        (SOURCES["c"], 2, 0.2),
    ]
    assert {row[3] for row in found} == {"imported"}
    assert json.loads(found[1][4]) == {"log": "program b"}
    run = Run(tmp_path / "unused", "plain", [SQUARE], candidates=6)
    shutil.rmtree(run.folder)
    run.folder = folder
    result = await run.go()
    assert result.best > 3
    assert rows(folder, f"select fitness from program where id = {result.best}") == [(1.0,)]
    assert {parent for (parent,) in rows(folder, "select parent_id from program where id > 3")} <= {1, 2, 3, result.best}


def test_a_shinka_database_keeps_lineage_and_scores_and_incorrect_programs_are_no_parents(tmp_path, problem):
    path = tmp_path / "evolution_db.sqlite"
    connection = sqlite3.connect(path)
    connection.execute(
        "create table programs (id text primary key, code text, language text, parent_id text, generation integer, "
        "timestamp real, combined_score real, public_metrics text, private_metrics text, text_feedback text, "
        "correct boolean)"
    )
    for number, (key, source) in enumerate(reversed(SOURCES.items())):
        metrics = json.dumps({"hits": number})
        row = (
            key,
            source,
            "python",
            "c" if key != "c" else None,
            number,
            1.0,
            number / 4,
            metrics,
            "{}",
            "well",
            key != "a",
        )
        connection.execute("insert into programs values (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)", row)
    connection.commit()
    connection.close()
    folder = tmp_path / "run"
    assert started(folder, problem, read_shinka(path)) == 3
    assert rows(folder, "select parent_id, fitness, status from program order by id") == [
        (None, 0.0, "scored"),
        (1, 0.25, "scored"),
        (1, None, "failed"),
    ]
    database = Database.open(folder)
    assert [member.id for brought in database.history() for member in brought.members] == [1, 2]
    assert database.level() is None
    database.close()


def test_other_files_are_refused(tmp_path, problem):
    with pytest.raises(BadInput, match="no OpenEvolve checkpoint"):
        read_openevolve(tmp_path)
    (tmp_path / "programs").mkdir()
    (tmp_path / "programs" / "x.json").write_text("[]")
    with pytest.raises(BadInput, match=r"x\.json is not a program"):
        read_openevolve(tmp_path)
    with pytest.raises(BadInput, match="not a file"):
        read_shinka(tmp_path / "none.sqlite")
    (tmp_path / "junk.sqlite").write_bytes(b"junk" * 1000)
    with pytest.raises(BadInput, match="not a ShinkaEvolve database"):
        read_shinka(tmp_path / "junk.sqlite")
    with pytest.raises(BadInput, match="None of the 0 programs"):
        started(tmp_path / "run", problem, [])


def test_marks_of_byte_order_in_a_checkpoint(checkpoint):
    for path in (checkpoint / "programs").glob("*.json"):
        path.write_text(path.read_text(encoding="utf-8"), encoding="utf-8-sig")
    assert sorted(row.source for row in read_openevolve(checkpoint)) == sorted(SOURCES.values())
