"""Which metrics of an evaluator steer a search, which way, and what a metric that is missing means."""

import random

import pytest

from evolve import problem as problems
from evolve.compose import _check_directions
from evolve.directions import looks_like_a_cost
from evolve.errors import BadInput
from tests.evolve.test_folders import Run, block


def folder(at, evaluator, initial="def run():\n    return 0.5\n", **config):
    """Write a folder of OpenEvolve's shape."""
    at.mkdir()
    (at / "initial_program.py").write_text(initial)
    (at / "evaluator.py").write_text(evaluator)
    for name, text in config.items():
        (at / f"{name}.yaml").write_text(text)
    return at


LOAD = """import importlib.util
def load(path):
    spec = importlib.util.spec_from_file_location("candidate", path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module
"""
ERRORS = (
    LOAD
    + """
def evaluate(path):
    e = load(path).run()
    return {"combined_score": 1 - e, "error": e, "eval_time": e / 10}
"""
)
OTHER = (
    LOAD
    + """
def evaluate(path):
    return {"score": load(path).run(), "other": 1.0}
"""
)


def returns(value):
    return block(f"def run():\n    return {value}")


async def test_a_metric_that_falls_as_the_score_rises_never_prefers_the_worse_program(tmp_path):
    draw = random.Random(1)
    replies = [returns(round(draw.uniform(0.05, 0.95), 3)) for _ in range(60)]
    run = Run(tmp_path, "errors", replies, folder(tmp_path / "errors", ERRORS), candidates=60, islands=1)
    result = await run.go()
    rows = run.sql("select id, fitness, parent_id from program where status = 'scored'")
    fitness = {identity: value for identity, value, _ in rows}
    assert fitness[result.best] == max(fitness.values())
    assert run.sql("select name from objective") == [("combined_score",)]
    dominated = [parent for _, _, parent in rows if parent is not None and fitness[parent] < fitness[1]]
    assert not dominated


@pytest.mark.parametrize("value", ["None", "'0.99'", "[1.0]", "1j", "10**400", "float('nan')", "{'a': 1}", "True"])
async def test_a_program_that_lacks_a_metric_of_the_initial_program_is_invalid(tmp_path, value):
    run = Run(tmp_path, "other", [returns("0.9"), returns(value)], folder(tmp_path / "other", OTHER), candidates=4)
    result = await run.go()
    rows = run.sql("select status, fitness, json_extract(verdicts, '$[0]') from program order by id")
    assert rows[0] == ("scored", 0.75, "pass")
    assert {row for row in rows[1:] if row[0] == "scored"} == {("scored", 0.95, "pass")}
    assert [row for row in rows[1:] if row[0] == "failed"] == [("failed", None, "invalid")] * sum(
        row[0] == "failed" for row in rows
    )
    assert any(row[0] == "failed" for row in rows)
    ((best,),) = run.sql(f"select fitness from program where id = {result.best}")
    assert best == 0.95


async def test_numpy_flags_are_no_numbers(tmp_path):
    evaluator = LOAD + "import numpy as np\ndef evaluate(path):\n    v = load(path).run()\n"
    evaluator += "    return {'score': np.float64(v), 'ok': np.bool_(True), 'shape': np.array([1.0, 2.0])}\n"
    run = Run(tmp_path, "flags", [returns("0.9")], folder(tmp_path / "flags", evaluator), candidates=2)
    await run.go()
    assert run.sql("select name from objective") == [("score",)]
    assert run.sql("select max(fitness) from program") == [(0.9,)]


NAMES = {
    "eval_time": True, "error": True, "ms_per_frame": True, "runtime_seconds": True, "MSE": True, "validation_loss": True,
    "peak_memory_mb": True, "avgLatency": True, "num_violations": True,
    "score": False, "accuracy": False, "speedup": False, "time_score": False, "error_reduction": False,
    "success_rate": False, "inverse_runtime": False, "sum_radii": False, "target_ratio": False,
    "timeliness": False, "losslessness": False,
}  # fmt: skip


@pytest.mark.parametrize("name", NAMES)
def test_costs_are_told_by_their_names(name):
    assert looks_like_a_cost(name) == NAMES[name]


GIVEN = {"accuracy": 0.5, "eval_time": 2.0}


def problem(at, text=""):
    return problems.load(folder(at, OTHER, **({"problem": text} if text else {})))


def test_a_cost_without_a_direction_steers_nothing_and_stops_training(tmp_path):
    loaded = problem(tmp_path / "p")
    assert loaded.values(GIVEN) == {"accuracy": 0.5}
    assert loaded.fitness(GIVEN) == 0.5
    assert "problem.yaml" in loaded.roles(GIVEN)["eval_time"]
    with pytest.raises(BadInput, match=r"objectives: \{eval_time: \{direction: min\}\}"):
        _check_directions(loaded, GIVEN)


def test_a_cost_with_a_direction_steers(tmp_path):
    loaded = problem(tmp_path / "p", "objectives: {accuracy: {}, eval_time: {direction: min}}\n")
    assert loaded.values(GIVEN) == {"accuracy": 0.5, "eval_time": -2.0}
    assert loaded.roles(GIVEN)["eval_time"] == "an objective, less is better"
    _check_directions(loaded, GIVEN)


def test_a_cost_can_be_said_to_steer_nothing(tmp_path):
    loaded = problem(tmp_path / "p", "objectives: {accuracy: {}, eval_time: {direction: none}}\n")
    assert loaded.values(GIVEN) == {"accuracy": 0.5}
    _check_directions(loaded, GIVEN)


def test_costs_alone_give_no_fitness_and_say_the_line_to_add(tmp_path):
    loaded = problem(tmp_path / "p")
    assert loaded.fitness({"error": 1.0}) is None
    assert "objectives: {error: {direction: min}}" in loaded.no_fitness({"error": 1.0})


def test_the_combined_score_is_an_objective_beside_those_named(tmp_path):
    loaded = problem(tmp_path / "p", "objectives: {eval_time: {direction: min}}\n")
    assert loaded.values({**GIVEN, "combined_score": 0.7}) == {"combined_score": 0.7, "eval_time": -2.0}
    assert loaded.fitness({**GIVEN, "combined_score": 0.7}) == 0.7


async def test_halves_of_surrogate_pairs_in_metrics_and_artifacts_reach_rows_and_prompts_escaped(tmp_path):
    evaluator = LOAD + "def evaluate(path):\n    return {'score': load(path).run(), 'log \\ud801': 'a\\ud800b'}\n"
    run = Run(tmp_path, "halves", [returns(0.7)] * 4, folder(tmp_path / "halves", evaluator), candidates=4, islands=1)
    await run.go()
    rows = run.sql("select fitness from program where status = 'scored'")
    assert (0.7,) in rows
    assert "a\\ud800b" in " ".join(run.asked)
