"""Commands as a user gives them, with the real sandbox and a server on loopback that says what it is told to."""

import json
import sqlite3

import pytest

from tests.conftest import write_problem
from tests.evolve.fake_server import serving
from tests.evolve.test_folders import FOLDERS
from tests.evolve.test_real import evolve, rows

pytestmark = pytest.mark.slow
DOUBLE = "```python\ndef double(x):\n    return x * 2\n```"
HALF = "```python\ndef double(x):\n    return x + x if isinstance(x, int) else x\n```"


@pytest.fixture(scope="module", autouse=True)
def ready(docker_url, image):
    """The engine and the image."""


@pytest.fixture
def suite(tmp_path):
    """Three problems: one that is solved at once, two that no reply solves."""
    tests = [{"id": "a", "args": [1], "expected": 2}, {"id": "b", "args": [2], "expected": 99}]
    write_problem(tmp_path / "suite" / "easy")
    for name in ("hard", "harder"):
        write_problem(tmp_path / "suite" / name, spec={"name": name}, tests=tests)
    return tmp_path / "suite"


def test_a_suite_shares_its_budget_and_every_run_stands_by_itself(tmp_path, suite):
    out = tmp_path / "out"
    with serving(reply=DOUBLE) as server:
        shape = ["--budget", "30", "-P", "1", "-G", "2", "-m", "1", "--seed", "1", "--stop-when", "solved", "--json"]
        done = evolve("run", suite, "--out", out, "--base-url", server.url, *shape)
    assert done.returncode == 1, done.stderr  # not all are solved
    found = {row["run"]: row for row in json.loads(done.stdout)}
    assert set(found) == {"easy", "hard", "harder"}
    assert found["easy"]["solved"]
    assert found["easy"]["confirmed"]
    assert found["easy"]["candidates"] <= 2
    assert found["hard"]["candidates"] >= 13  # what the solved one left over went to the others
    assert sum(row["candidates"] for row in found.values()) <= 31
    assert json.loads(evolve("show", out, "--json").stdout) == list(found.values())
    assert json.loads(evolve("show", out / "hard", "--json").stdout)["run"]["candidates"] == found["hard"]["candidates"]
    again = evolve("resume", out, "--json")
    assert again.returncode == 0, again.stderr  # nothing is left to do, and no server is needed


def test_an_equal_share_leaves_what_is_left(tmp_path, suite):
    with serving(reply=DOUBLE) as server:
        shape = ["--budget", "12", "-P", "1", "-G", "2", "-m", "1", "--share", "equal", "--stop-when", "solved", "--json"]
        done = evolve("run", suite, "--out", tmp_path / "out", "--base-url", server.url, *shape)
    assert {row["run"]: row["candidates"] for row in json.loads(done.stdout)}["hard"] == 4


def test_a_suite_needs_a_candidate_for_each(tmp_path, suite):
    done = evolve("run", suite, "--out", tmp_path / "out", "--budget", "2")
    assert done.returncode == 2
    assert "less than one for each of 3 problems" in " ".join(done.stderr.split())


def test_the_baseline_gets_the_same_budget_and_stands_in_the_same_report(tmp_path):
    run = tmp_path / "run"
    with serving(reply=HALF) as server:
        shape = ["--budget", "8", "-P", "1", "-G", "2", "-m", "1", "--seed", "1", "--baseline", "best-of-n"]
        done = evolve("run", write_problem(tmp_path / "p"), "--out", run, "--base-url", server.url, *shape, "--json")
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    assert found["baseline"]["candidates"] == found["run"]["candidates"] == 8
    assert found["baseline"]["fitness"] == found["program"]["fitness"]
    assert rows(run / "baseline", "select distinct parent_id from prompt") == [(1,)]
    shown = evolve("show", run)
    assert "Best of 8 from the initial program alone" in " ".join(shown.stderr.split())


def test_a_run_goes_on_with_a_changed_problem_when_asked_to(tmp_path):
    run, problem = tmp_path / "run", write_problem(tmp_path / "p")
    with serving(reply=HALF) as server:
        shape = ["--budget", "4", "-P", "1", "-G", "2", "-m", "1", "--baseline", "best-of-n"]
        assert evolve("run", problem, "--out", run, "--base-url", server.url, *shape).returncode == 0
        write_problem(problem, spec={"statement": "Other words.", "limits": {"memory_mb": 300}})
        refused = evolve("resume", run, "--budget", "8")
        assert refused.returncode == 2
        told = " ".join(refused.stderr.split())
        assert "problem.yaml: limits has changed" in told
        assert "statement" not in told
        done = evolve("resume", run, "--budget", "8", "--accept-change", "--json")
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    assert found["run"]["candidates"] == found["baseline"]["candidates"] == 8
    for place in (run, run / "baseline"):
        assert rows(place, "select count(*) from event where kind = 'problem-changed'") == [(1,)]
        assert rows(place, "select count(*) from program where status = 'outdated'") == [(0,)]


def test_a_replay_takes_seed_and_options_and_needs_no_server(tmp_path):
    problem = write_problem(tmp_path / "p")
    shape = ["--budget", "12", "-P", "2", "-G", "2", "-m", "1", "--seed", "7", "--selection", "best"]
    with serving(reply=HALF) as server:
        assert evolve("run", problem, "--out", tmp_path / "a", "--base-url", server.url, *shape).returncode == 0
    done = evolve("run", problem, "--out", tmp_path / "b", "--replay", tmp_path / "a", "--json")
    assert done.returncode == 0, done.stderr
    query = "select id, parent_id, source_hash, scores, duplicate_of from program order by id"
    assert rows(tmp_path / "a", query) == rows(tmp_path / "b", query)
    assert rows(tmp_path / "b", "select seed from run") == [(7,)]


def test_exports(tmp_path):
    run = tmp_path / "run"
    with serving(reply=f"{DOUBLE}\n{HALF}") as server:
        shape = ["--budget", "8", "-P", "1", "-G", "2", "-m", "2", "--seed", "1"]
        problem = write_problem(tmp_path / "p")
        assert evolve("run", problem, "--out", run, "--base-url", server.url, *shape).returncode == 0
    assert evolve("export", run, "--out", tmp_path / "best.py").returncode == 0
    assert (tmp_path / "best.py").read_text() == "def double(x):\n    return x * 2\n"
    assert json.loads(evolve("export", run, "--what", "all", "--out", tmp_path / "all", "--json").stdout)["programs"] == 3
    assert len(list((tmp_path / "all").glob("*.py"))) == 3
    done = evolve("export", run, "--what", "traces", "--out", tmp_path / "t.jsonl", "--json")
    lines = [json.loads(line) for line in (tmp_path / "t.jsonl").read_text().splitlines()]
    assert json.loads(done.stdout)["completions"] == len(lines) == rows(run, "select count(*) from completion")[0][0]
    assert lines[0]["scores"] == [[1.0, 1.0, 1.0], [1.0, 0.0, 0.0]]
    assert lines[0]["verdicts"][1] == ["pass", "wrong", "wrong"]
    assert lines[0]["objectives"] == ["one", "text", "list"]
    assert lines[0]["prompt"][1]["role"] == "user"
    datasets = pytest.importorskip("datasets", reason="the package datasets is part of the extra `train`")
    loaded = datasets.load_dataset(
        "json", data_files=str(tmp_path / "t.jsonl"), split="train", cache_dir=str(tmp_path / "c")
    )
    assert len(loaded) == len(lines)


def test_check_says_what_a_config_means(tmp_path):
    done = evolve("check", FOLDERS / "unknown_keys", "--json")
    found = json.loads(done.stdout)
    assert done.returncode == 0, done.stderr
    assert not found["self_scored"]
    assert found["metrics"] == {"hits": 2.0, "combined_score": 0.2}
    assert "novelty" in found["ignored"]
    assert found["honoured"]["max_iterations"] == 12
    assert "api_key" not in json.dumps(found)
    shell = json.loads(evolve("check", FOLDERS / "shell", "--json").stdout)
    assert shell["self_scored"]
    assert "run by the evaluator" in shell["why"]


def test_models_of_a_config_are_drawn_by_weight(tmp_path):
    folder = tmp_path / "plain"
    folder.mkdir()
    for name in ("initial_program.py", "evaluator.py"):
        (folder / name).write_text((FOLDERS / "plain" / name).read_text())
    with serving(reply="```python\ndef solve(n):\n    return n * n\n```") as server:
        (folder / "config.yaml").write_text(
            f"llm: {{api_base: '{server.url}', api_key: 'sk-of-the-config', temperature: 0.3, models: "
            "[{name: m, weight: 0.9}, {name: m, weight: 0.1}]}\n"
        )
        done = evolve("run", folder, "--out", tmp_path / "run", "--budget", "6", "-P", "1", "-m", "1", "--json")
        assert done.returncode == 0, done.stderr
        assert {request["temperature"] for request in server.requests} == {0.3}
    assert "using the config's m at" in " ".join(done.stderr.split())
    assert all(b"sk-of-the-config" not in path.read_bytes() for path in (tmp_path / "run").iterdir() if path.is_file())


def test_an_imported_population_is_resumed(tmp_path):
    shinka = tmp_path / "db.sqlite"
    connection = sqlite3.connect(shinka)
    connection.execute(
        "create table programs (id text, code text, parent_id text, generation integer, timestamp real, "
        "combined_score real, public_metrics text, text_feedback text, correct boolean)"
    )
    connection.execute("insert into programs values ('a', 'def solve(n): return n', null, 0, 1.0, 0.2, '{}', '', 1)")
    connection.commit()
    connection.close()
    run = tmp_path / "run"
    done = evolve("import", "shinka", shinka, "--problem", FOLDERS / "plain", "--out", run)
    assert done.returncode == 0, done.stderr
    with serving(reply="```python\ndef solve(n):\n    return n * n\n```") as server:
        done = evolve("resume", run, "--budget", "4", "--base-url", server.url, "--json")
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["program"]["fitness"] == 1.0
    assert (
        rows(run, "select level, count(*) from program where level is not null group by level order by 1")[-1][0]
        == "imported"
    )
