"""Folders as OpenEvolve's users write them, unmodified, through the whole search with a scripted mutator."""

import asyncio
import json
import shutil
import sqlite3
from dataclasses import asdict
from pathlib import Path

import numpy as np
import pytest

from evolve import problem as problems
from evolve.database import Database
from evolve.errors import BadInput, ProblemError
from evolve.grading import EvaluatorGrader
from evolve.loop import Search
from evolve.metrics_prompt import MetricsPrompter
from evolve.options import Reason
from evolve.report import Report
from evolve.scoring import Scorer
from evolve.scripted import ScriptedMutator
from evolve.settings import search_options
from sandbox.evaluator import Evaluator
from sandbox.inprocess import TrustedEvaluator

FOLDERS = Path(__file__).parent / "folders"


def block(body, language="python"):
    return f"```{language}\n{body}\n```"


def solve(expression):
    return block(f"def solve(n):\n    return {expression}")


SQUARE = solve("n * n")
REPLIES = [solve("n + n + 1"), "I don't know.", solve("1 / 0"), solve("n * 3"), SQUARE, solve("n *"), solve("n ** 2")]
GOOD = {
    "shell": [block("echo $(($1 + 2))", "sh"), block("echo $(($1 * $1))", "bash")],
    "text": [block("Please sum up.", "text"), block("Sum up the whole text, please, and be brief.", "")],
    "own_edits": ["FIND:\n    return n + n\nPUT:\n    return n * n\nEND", "FIND:\nnothing here\nPUT:\nx\nEND", SQUARE],
}
NAMES = {"several_configs": {"config": "config_fast.yaml"},
         "other_names": {"initial": "start.py", "evaluator": "judge.py", "config": "settings.yml"}}  # fmt: skip
BEST = {"no_config": 1.0, "negative": -1.0, "text": pytest.approx((1.0 + 1 / 4) / 2), "own_objectives": 5.0,
        "features": 1.0}  # fmt: skip


class Run:
    """A search on a copy of a fixture folder."""

    def __init__(self, folder, name, replies=None, copied=None, **given):
        self.folder = folder / "run"
        self.problem = problems.load(copied or FOLDERS / name, **NAMES.get(name, {}))
        if not {"candidates", "patience"} & set(given) and not self.problem.config.given.get("max_iterations"):
            given["candidates"] = 16
        self.options = search_options(self.problem, {"answers": 1, "completions": 2, "prompts": 2, **given})
        self.mutator = ScriptedMutator(replies or GOOD.get(name, REPLIES))
        problem = self.problem
        self.evaluator = Evaluator(problem.files, problem.evaluator, problem.program, problem.thresholds)
        state = np.random.default_rng(0).bit_generator.state
        Database.create(self.folder, problem, {"search": asdict(self.options)}, 0, state).close()

    async def go(self):
        database = Database.open(self.folder)
        try:
            sandbox = TrustedEvaluator(self.evaluator, self.problem.limits.wall)
            grader = EvaluatorGrader(self.problem, sandbox, database.best_fitness())
            scorer = Scorer(grader, self.problem.language, database.known)
            prompter = MetricsPrompter(self.problem)
            search = Search(self.problem, self.options, database, scorer, prompter, "scripted")
            await search.begin()
            await search.run(self.mutator)
            return await search.finish()
        finally:
            database.close()

    def sql(self, query):
        connection = sqlite3.connect(self.folder / "run.sqlite")
        try:
            return connection.execute(query).fetchall()
        finally:
            connection.close()

    @property
    def asked(self):
        return [messages[-1]["content"] for messages in self.mutator.prompts]


@pytest.mark.parametrize("name", sorted(path.name for path in FOLDERS.iterdir()))
async def test_every_folder_runs_and_gets_better(tmp_path, name):
    before = {path: path.read_bytes() for path in (FOLDERS / name).rglob("*") if path.is_file()}
    run = Run(tmp_path, name)
    result = await run.go()
    assert result.reason in (Reason.CANDIDATES, Reason.STAGNANT)
    ((initial,), *_) = run.sql("select fitness from program where id = 1")
    best, text = run.sql(
        f"select fitness, text from program join source on hash = source_hash where program.id = {result.best}"
    )[0]
    assert best == BEST.get(name, 1.0)
    assert best > initial
    if "EVOLVE-BLOCK" in run.problem.initial:
        assert "EVOLVE-BLOCK-START" in text
    assert run.sql("select count(*) from program where status = 'scored' and fitness is null") == [(0,)]
    assert {path: path.read_bytes() for path in (FOLDERS / name).rglob("*") if path.is_file()} == before
    report = Report(run.folder)
    assert report.program()["id"] == result.best
    assert report.tests()[0]["best"] is not None
    report.close()


async def test_stages_are_climbed_and_recorded(tmp_path):
    run = Run(tmp_path, "stages")
    await run.go()
    metrics = [json.loads(row)["given"] for (row,) in run.sql("select metrics from program where metrics is not null")]
    assert {tuple(sorted(found)) for found in metrics if found} == {
        ("first", "reached", "second"),
        ("first", "reached"),
        ("combined_score", "first", "reached", "second", "third"),
    }
    names = [name for (name,) in run.sql("select name from objective order by id")]
    assert set(names) == {"first", "second", "combined_score"}
    for scores, given in run.sql("select scores, metrics from program where status = 'scored'"):
        values = dict(zip(names, json.loads(scores), strict=False))
        assert {key: value for key, value in values.items() if value is not None} == json.loads(given)["values"]


async def test_artifacts_come_back_cut_into_the_next_prompt(tmp_path):
    run = Run(tmp_path, "artifacts")
    await run.go()
    assert "wrong inputs\n[1, 3, 4, 5]" in run.asked[0]
    assert "raw \ufffd bytes" in run.asked[0]
    assert all(len(text) < 12_000 for text in run.asked)


async def test_a_program_that_raises_never_becomes_best_among_negative_scores(tmp_path):
    run = Run(tmp_path, "negative", [solve("1 / 0"), solve("n + n - 30")], candidates=8)
    result = await run.go()
    assert result.best == 1
    rows = run.sql("select distinct status, fitness is null, json_extract(verdicts, '$[0]') from program order by 1")
    assert rows == [("failed", 1, "exception"), ("scored", 0, "pass")]
    parents = {parent for (parent,) in run.sql("select distinct parent_id from program where parent_id is not null")}
    assert parents <= {identity for (identity,) in run.sql("select id from program where status = 'scored'")}


async def test_nan_and_infinity_and_other_results_are_invalid_and_never_best(tmp_path):
    run = Run(tmp_path, "not_a_number", [solve("n + 7"), solve("n + 4"), solve("n + 5"), SQUARE], candidates=8)
    result = await run.go()
    assert run.sql(f"select fitness from program where id = {result.best}") == [(1.0,)]
    assert run.sql("select count(distinct source_hash) from program where json_extract(verdicts, '$[0]') = 'invalid'") == [
        (3,)
    ]


async def test_an_evaluator_that_hangs_is_a_timeout_not_a_score(tmp_path):
    run = Run(tmp_path, "hanging", [solve("n + 7"), SQUARE], candidates=4)
    assert run.problem.limits.wall == 1
    result = await run.go()
    assert run.sql(f"select fitness from program where id = {result.best}") == [(1.0,)]
    assert run.sql("select fitness from program where json_extract(verdicts, '$[0]') = 'timeout'") == [(None,), (None,)]


def test_every_ignored_key_is_named_and_keys_of_services_are_kept_out(tmp_path):
    problem = problems.load(FOLDERS / "unknown_keys")
    assert problem.config.ignored == (
        "algotune", "allow_full_rewrites", "checkpoint_interval", "checkpoints", "evaluation", "evaluator.use_llm_feedback",
        "evolution", "llm.reasoning_effort", "logging", "max_program_length", "novelty", "optimization",
        "parallel_evaluations",
    )  # fmt: skip
    copied = tmp_path / "plain"
    shutil.copytree(FOLDERS / "plain", copied)
    (copied / "config.yaml").write_text("llm: {api_key: sk-very-secret, models: [{name: a, api_key: sk-other}]}\n")
    run = Run(tmp_path, "plain", copied=copied, candidates=4)
    assert run.problem.config.api_key == "sk-very-secret"
    assert "sk-" not in repr(run.problem)
    asyncio.run(run.go())
    assert all(b"sk-" not in path.read_bytes() for path in run.folder.iterdir())


def test_nulls_mean_the_default_and_fractions_are_taken():
    problem = problems.load(FOLDERS / "nulls")
    options = search_options(problem, {})
    assert (options.candidates, options.top, options.population.islands, options.population.capacity) == (8, 3, 5, 40)
    assert problem.limits.wall == 7.5
    assert problem.thresholds == [0.5, 0.75, 0.9]
    assert problem.language == "python"


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("a: [1", "not YAML"),
        ("- 1", "must hold keys"),
        ("max_iterations: many", "max_iterations must be a number of at least 0; came 'many'"),
        ("diff_based_evolution: sometimes", "must be true or false"),
        ("diff_pattern: '('", "no regular expression"),
        ("diff_pattern: 'a'", "must have two groups"),
        ("llm: {models: many}", "llm.models must be a list"),
        ("database: {feature_dimensions: complexity}", "must be a list"),
        ("evaluator: {timeout: -3}", "evaluator.timeout must be a number"),
        ("evaluator: {cascade_thresholds: [a]}", "must be numbers"),
    ],
)
def test_a_value_that_cannot_be_taken_is_named(tmp_path, text, message):
    copied = tmp_path / "plain"
    shutil.copytree(FOLDERS / "plain", copied)
    (copied / "config.yaml").write_text(text)
    with pytest.raises(ProblemError) as caught:
        problems.load(copied)
    assert message in str(caught.value)


def test_an_empty_config_is_the_default(tmp_path):
    copied = tmp_path / "plain"
    shutil.copytree(FOLDERS / "plain", copied)
    (copied / "config.yaml").write_text("# nothing yet\n")
    assert problems.load(copied).config.given == {}


REFUSED = {
    "a folder as program": ({"initial_program/main.py": "x = 1"}, {}, "programs of several files"),
    "another name": ({"init_program.py": "x = 1"}, {}, r"--initial.*init_program\.py"),
    "two programs": ({"initial_program.py": "x = 1", "initial_program.cpp": "x"}, {}, "several initial programs"),
    "no evaluate": ({"initial_program.py": "x = 1", "evaluator.py": "def judge(path): pass"}, {}, "no function evaluate"),
    "evaluator is no Python": ({"initial_program.py": "x = 1", "evaluator.py": "def ("}, {}, "is not Python"),
    "empty program": ({"initial_program.py": "\n"}, {}, "is empty"),
    "missing config": ({"initial_program.py": "x = 1"}, {"config": "other.yaml"}, r"other\.yaml is missing"),
    "wrong problem.yaml": ({"initial_program.py": "x = 1", "problem.yaml": "statment: x"}, {}, "did you mean 'statement'"),
    "bounds upside down": ({"initial_program.py": "x = 1", "problem.yaml": "objectives: {a: {bounds: [2, 1]}}"}, {},
                           "the lower one first"),
}  # fmt: skip


@pytest.mark.parametrize("what", REFUSED)
def test_what_is_not_such_a_folder_is_refused_with_a_reason(tmp_path, what):
    files, names, message = REFUSED[what]
    for name, text in {"evaluator.py": "def evaluate(path): return {}", **files}.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text)
    with pytest.raises(ProblemError, match=message):
        problems.load(tmp_path, **names)


async def test_templates_of_the_user_are_filled_by_openevolve(tmp_path):
    run = Run(tmp_path, "templates", answers=2, retry=False)
    await run.go()
    first = run.mutator.prompts[0]
    assert first[0]["content"] == "Only squares count here.\n"
    text = first[1]["content"]
    assert text.startswith(("Good day.", "Hello."))
    assert "combined_score: 0.3333" in text
    assert "wrong inputs" in text
    assert "### Solution 2" in text
    assert {text.split("\n")[0] for text in run.asked} == {"Good day.", "Hello."}


async def test_the_named_objectives_count_with_their_direction_and_bounds(tmp_path):
    run = Run(tmp_path, "own_objectives", [SQUARE, solve("n * 1000"), solve("n + 1")], candidates=6)
    await run.go()
    assert run.sql("select name, kind from objective order by id") == [("error", "metric"), ("hits", "metric")]
    rows = run.sql("select scores from program where status = 'scored' order by fitness desc limit 1")
    assert json.loads(rows[0][0]) == [0.0, 10.0]
    ((verdicts, results),) = run.sql(
        "select distinct verdicts, results ->> '$[0].detail' from program where status = 'failed'"
    )
    assert json.loads(verdicts) == ["invalid"]
    assert "outside of [0.0, 1000.0]" in results


async def test_a_new_best_is_evaluated_again_and_the_worse_counts(tmp_path):
    copied = tmp_path / "lucky"
    shutil.copytree(FOLDERS / "plain", copied)
    marker = tmp_path / "marker"
    (copied / "evaluator.py").write_text(
        f"import os\ndef evaluate(path):\n    lucky = 'lucky' in open(path).read() and not os.path.exists({str(marker)!r})\n"
        f"    if lucky: open({str(marker)!r}, 'w').close()\n    return {{'combined_score': 0.9 if lucky else 0.2}}\n"
    )
    run = Run(tmp_path, "plain", [block("lucky = 1\ndef solve(n): return 1")], copied=copied, candidates=1)
    await run.go()
    assert run.sql("select max(fitness) from program") == [(0.2,)]


async def test_early_stopping_counts_candidates(tmp_path):
    run = Run(tmp_path, "early_stop", [solve("n + 3")])
    assert (await run.go()).reason is Reason.STAGNANT
    assert run.sql("select count(*) from program") < [(20,)]


async def test_max_code_length_binds(tmp_path):
    run = Run(tmp_path, "several_configs", [solve("n * n" + " * 1" * 40)], retry=False)
    await run.go()
    assert run.sql("select distinct reason from program where id > 1") == [
        ("a program of 256 characters; at most 120 are taken",)
    ]


async def test_a_reply_without_a_program_is_answered_once_with_the_reason(tmp_path):
    run = Run(tmp_path, "plain", lambda messages, _: SQUARE if len(messages) > 2 else "Sorry.", candidates=4)
    result = await run.go()
    assert run.sql(f"select fitness from program where id = {result.best}") == [(1.0,)]
    retry = next(messages for messages in run.mutator.prompts if len(messages) > 2)
    assert retry[-2] == {"role": "assistant", "content": "Sorry."}
    assert "no fenced code block" in retry[-1]["content"]
    rows = run.sql("select retry_of, position from completion where retry_of is not null")
    assert rows
    assert all(run.sql(f"select text from completion where id = {of}") == [("Sorry.",)] for of, _ in rows)
    stubborn = Run(tmp_path / "stubborn", "plain", ["Sorry."], candidates=4, retry=False)
    await stubborn.go()
    assert stubborn.sql("select count(*) from completion where retry_of is not null") == [(0,)]


async def test_islands_get_children_of_their_own_and_migrants(tmp_path):
    run = Run(tmp_path, "features", candidates=36)
    await run.go()
    assert {island for (island,) in run.sql("select distinct island from prompt")} == {0, 1, 2}
    assert run.options.selection == "openevolve"
    assert run.options.population.bins == {"complexity": 5, "evenness": 4}


def test_a_config_that_names_no_ratios_selects_by_the_vector():
    assert search_options(problems.load(FOLDERS / "plain"), {}).selection == "lexicase"
    assert search_options(problems.load(FOLDERS / "plain"), {"selection": "best"}).selection == "best"
    problem = problems.load(FOLDERS / "features")
    problem.config.given["database.feature_bins"] = "many"
    with pytest.raises(BadInput, match="feature_bins"):
        search_options(problem, {})
