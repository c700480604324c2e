"""The real parts together: `evolve` as a user runs it, with vLLM, a real model, Docker and SQLite."""

import json
import os
import signal
import sqlite3
import subprocess
import sys
import time
from pathlib import Path

import docker
import psutil
import pytest

from sandbox.container import OWNER_LABEL
from tests.conftest import ROOT

pytestmark = pytest.mark.slow
EVOLVE = [str(Path(sys.executable).parent / "evolve")]
SHORT = ["--sampling", "temperature=0.8", "--sampling", "max_tokens=200"]


def evolve(*arguments, timeout=600):
    done = subprocess.run([*EVOLVE, *map(str, arguments)], capture_output=True, text=True, timeout=timeout, check=False)
    print(done.stderr[-3000:])
    return done


def rows(folder, query):
    connection = sqlite3.connect(Path(folder) / "run.sqlite")
    try:
        return connection.execute(query).fetchall()
    finally:
        connection.close()


def containers_of(url, pid):
    """The containers of a process, but one that was being created when it died: that never starts, a reaper removes it."""
    client = docker.APIClient(base_url=url, version="auto")
    try:
        found = client.containers(all=True, filters={"label": OWNER_LABEL})
        started = [one for one in found if one["State"] != "created"]
        return [one for one in started if one["Labels"][OWNER_LABEL].split(":")[2] == str(pid)]
    finally:
        client.close()


def wait_for(condition, seconds):
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        if condition():
            return True
        time.sleep(0.25)
    return False


def completions_in(run):
    try:
        return rows(run, "select count(*) from completion")[0][0]
    except sqlite3.OperationalError:
        return 0


def test_kill_9_then_a_dead_engine_then_the_end(docker_url, image, tmp_path):
    """A run with its own server: killed in mid-generation, resumed, its engine killed, and it ends normally.

    It stands before the first test that uses the warm server, which would take a core from it even when idle.
    """
    run = tmp_path / "run"
    command = [*EVOLVE, "run", str(ROOT / "problems/csv_line"), "--out", str(run), "--model", "smollm2-135m-instruct"]
    shape = ["--budget", "36", "-P", "4", "-G", "3", "-m", "1", "--sampling", "max_tokens=150", "--seed", "3"]
    process = subprocess.Popen([*command, *shape])
    assert wait_for(lambda: completions_in(run) >= 5, 300)
    family = psutil.Process(process.pid).children(recursive=True)
    assert any("vllm" in " ".join(one.cmdline()).lower() for one in family)
    os.kill(process.pid, signal.SIGKILL)
    process.wait()
    before = rows(run, "select id, prompt_id, position, text from completion order by id")
    assert wait_for(lambda: not any(one.is_running() and one.status() != psutil.STATUS_ZOMBIE for one in family), 20)
    assert wait_for(lambda: not containers_of(docker_url, process.pid), 10)

    again = subprocess.Popen([*EVOLVE, "resume", str(run)])
    assert wait_for(lambda: completions_in(run) > len(before), 300)
    engines = [one for one in psutil.Process(again.pid).children(recursive=True) if "EngineCore" in " ".join(one.cmdline())]
    assert engines
    second = evolve("resume", run)
    assert second.returncode == 2
    assert "Another process" in " ".join(second.stderr.split())
    for one in engines:
        one.kill()
    assert again.wait(500) == 0
    assert set(before) <= set(rows(run, "select id, prompt_id, position, text from completion order by id"))
    assert rows(run, "select status from run") == [("finished",)]
    assert rows(run, "select count(*) from program where completion_id is not null")[0][0] >= 36
    assert rows(run, "select count(*) from prompt p where completions != (select count(*) from completion where "
                     "prompt_id = p.id and retry_of is null)") == [(0,)]  # fmt: skip
    assert rows(run, "pragma integrity_check") == [("ok",)]


def test_the_server_listens_on_loopback_only(server):
    port = int(server.split(":")[2].split("/")[0])
    listening = {c.laddr.ip for c in psutil.net_connections("inet") if c.status == "LISTEN" and c.laddr.port == port}
    assert listening == {"127.0.0.1"}


def test_a_run_improves_the_calculator(server, tmp_path):
    run = tmp_path / "run"
    done = evolve(
        "run",
        ROOT / "problems/calculator",
        "--out",
        run,
        "--base-url",
        server,
        "--budget",
        32,
        "--seed",
        1,
        *SHORT,
        "--json",
    )
    assert done.returncode == 0
    found = json.loads(done.stdout)
    initial = rows(run, "select verdicts from program where id = 1")[0][0].count('"pass"')
    best = found["program"]
    assert best["passed"] > initial
    assert best["mutator"] == "qwen2.5-coder-0.5b-instruct"
    query = "select id from program where status = 'scored' and duplicate_of is null"
    query += " order by solved desc, fitness desc, (select length(text) from source where hash = source_hash), id limit 1"
    assert best["id"] == rows(run, query)[0][0]
    assert json.loads(evolve("show", run, "--json").stdout)["program"]["id"] == best["id"]
    for view in ("top", "tests", "cost"):
        assert json.loads(evolve("show", run, view, "--json").stdout)
        assert evolve("show", run, view).returncode == 0
    completions = rows(run, "select token_ids, logprobs, completion_tokens, prompt_token_ids from completion")
    for ids, logprobs, count, prompt in completions:
        assert len(json.loads(ids)) == len(json.loads(logprobs))
        assert sum(logprob is not None for logprob in json.loads(logprobs)) == count
        assert len(json.loads(prompt)) > 100
    assert rows(run, "select distinct level from program where level is not null") == [("docker-oneshot",)]


def test_the_scaffold_gives_every_answer_and_marks_its_frames(server, tmp_path):
    run = tmp_path / "run"
    options = ["--budget", 12, "-P", 1, "-G", 4, "-m", 3, "--way", "scaffold", "--sampling", "max_tokens=150"]
    assert evolve("run", ROOT / "problems/csv_line", "--out", run, "--base-url", server, *options).returncode == 0
    found = rows(run, "select token_ids, logprobs, sampled, completion_tokens, text from completion")
    for ids, logprobs, sampled, count, text in found:
        ids, logprobs, sampled = json.loads(ids), json.loads(logprobs), json.loads(sampled)
        assert len(ids) == len(logprobs) == len(sampled)
        assert sum(sampled) == count < len(ids)
        assert [logprob is not None for logprob in logprobs] == sampled
        assert text.startswith("### Solution 1\n```python\n")
    held = rows(run, "select count(*) from program where status != 'unusable' group by completion_id")
    assert sum(count == 3 for (count,) in held[1:]) >= len(found) / 2


def test_humaneval_is_solved_and_confirmed(server, tmp_path):
    only = [option for task in (2, 23) for option in ("--only", f"HumanEval/{task}")]
    assert evolve("import", "humaneval", *only, "--out", tmp_path / "he").returncode == 0
    confirmed = []
    for folder in sorted(path for path in (tmp_path / "he").iterdir() if path.is_dir()):
        run = tmp_path / "runs" / folder.name
        shape = ["--budget", 24, "-m", 1, "-P", 3, "-G", 8, "--stop-when", "solved", *SHORT]
        done = evolve("run", folder, "--out", run, "--base-url", server, "--json", *shape)
        assert done.returncode in (0, 1)
        program = json.loads(done.stdout)["program"]
        assert (done.returncode == 0) is program["solved"]
        confirmed.append(program["confirmed"])
    assert any(confirmed)


def test_check_and_doctor(server):
    done = evolve("check", ROOT / "problems/calculator", "--json")
    found = json.loads(done.stdout)
    assert (done.returncode, found["visible_tests"], found["hidden_tests"], found["runs"]) == (0, 17, 12, True)
    done = evolve("doctor", "--json")
    assert done.returncode == 0, done.stdout
    assert {one["name"] for one in json.loads(done.stdout)} == {"disk", "docker", "image", "sandbox", "vllm", "model"}


MODEL_RUNS = ["artifacts", "stages", "features"]


@pytest.mark.parametrize("name", MODEL_RUNS)
def test_a_real_model_works_on_an_openevolve_folder(tmp_path, name, server):
    run = tmp_path / "run"
    shape = ["--budget", "12", "--seed", "1", "--edits", "full", "--sampling", "max_tokens=125", "--json"]
    done = evolve("run", ROOT / "tests/evolve/folders" / name, "--out", run, "--base-url", server, *shape)
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    assert found["run"]["candidates"] >= 12
    assert found["run"]["best"]["fitness"] >= 0.2
    assert found["program"]["metrics"]
    assert Path(run, "run.sqlite").is_file()
