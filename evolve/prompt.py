"""Build the messages that ask for better programs: the task, the parent with its verdicts, programs that do what it can't.

Hidden tests never come here. All text that a model sees stands in this file.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass

from evolve.completion import Message
from evolve.frame import Frame
from evolve.population import Member
from evolve.problem import Problem, Test
from sandbox.base import Verdict
from sandbox.judge import TestResult

SHOWN_FAILURES = 6
SHOWN_CHARACTERS = 200
MAX_PARENT = 6000

SYSTEM = "You are an expert {language} programmer. You rewrite programs so that they pass more tests."
ONE = "Write one improved, complete program in a single ```{language} block. {contract} Do not print tests or examples."
MANY = (
    "Write {m} complete programs that solve the task in {m} different ways, so that together they pass as many tests as "
    "possible. Put each under a heading `### Solution 1` to `### Solution {m}` in its own ```{language} block. {contract}"
)

EDIT = """\
Change the current program with edits of this form:

<<<<<<< SEARCH
lines of the current program, repeated exactly
=======
the lines that take their place
>>>>>>> REPLACE

Each SEARCH must be found at one place in the current program. {contract}"""
EDIT_MANY = (
    "\n\nGive {m} different sets of edits, each of the current program, so that together they pass as many tests as "
    "possible, under the headings `### Solution 1` to `### Solution {m}`."
)
KEEP = " Only the lines between the EVOLVE-BLOCK markers may change."


@dataclass(frozen=True, slots=True)
class Prompt:
    """Messages, and where they come from."""

    messages: list[Message]
    parent: Member
    inspirations: tuple[Member, ...]


def build(
    problem: Problem,
    parent: Member,
    results: Sequence[TestResult],
    inspirations: Sequence[Member],
    m: int,
    as_edits: bool = False,
) -> Prompt:
    """Return the prompt for one parent.

    Args:
        problem: what is solved.
        parent: the program to improve.
        results: the parent's results on the visible tests, in their order.
        inspirations: programs that pass tests which the parent fails.
        m: answers that a completion should hold.
        as_edits: whether SEARCH/REPLACE edits of the parent are asked for, instead of whole programs.
    """
    language = problem.spec.language
    entry = problem.entry
    contract = (
        f"Each program must define the function `{entry}`." if entry else "Each program reads stdin and writes stdout."
    )
    passed = sum(result.verdict is Verdict.PASS for result in results)
    parts = [
        f"# Task\n{problem.spec.statement.strip()}",
        f"# Current program, passes {passed} of {len(results)} tests\n{_block(language, parent.source[:MAX_PARENT])}",
    ]
    failures = _failures(problem, results)
    if failures:
        parts.append("# Tests that it fails\n" + "\n".join(failures))
    if inspirations:
        blocks = [_block(language, member.source[:MAX_PARENT]) for member in inspirations]
        parts.append("# Programs that pass some of these tests\n" + "\n".join(blocks))
    if Frame.of(parent.source).marked:
        contract += KEEP
    text = (EDIT if m == 1 else EDIT + EDIT_MANY) if as_edits else (ONE if m == 1 else MANY)
    ask = text.format(m=m, language=language, contract=contract)
    parts.append(f"# Your answer\n{ask}")
    messages: list[Message] = [
        {"role": "system", "content": SYSTEM.format(language=language.capitalize())},
        {"role": "user", "content": "\n\n".join(parts)},
    ]
    return Prompt(messages, parent, tuple(inspirations))


def _block(language: str, source: str) -> str:
    return f"```{language}\n{source.rstrip()}\n```"


def _failures(problem: Problem, results: Sequence[TestResult]) -> list[str]:
    """Return a line per failing test, the first of each kind of failure before its repetitions."""
    failing = [
        (test, result) for test, result in zip(problem.visible, results, strict=True) if result.verdict is not Verdict.PASS
    ]
    seen: set[str] = set()
    fresh: list[tuple[Test, TestResult]] = []
    repeated: list[tuple[Test, TestResult]] = []
    for test, result in failing:
        kind = f"{result.verdict}:{result.detail.splitlines()[-1:] if result.detail else result.got[:20]}"
        (repeated if kind in seen else fresh).append((test, result))
        seen.add(kind)
    lines = [_failure(problem.entry, test, result) for test, result in (fresh + repeated)[:SHOWN_FAILURES]]
    if len(failing) > SHOWN_FAILURES:
        lines.append(f"- and {len(failing) - SHOWN_FAILURES} more")
    return lines


def _failure(entry: str | None, test: Test, result: TestResult) -> str:
    if entry is not None:
        call = f"{entry}({', '.join(_cut(repr(argument)) for argument in test.input)})"
        expected = _cut(repr(test.expected))
    else:
        call = f"stdin {_cut(json.dumps(test.input))}"
        expected = _cut(json.dumps(test.expected))
    if result.verdict is Verdict.WRONG:
        came = f"got {_cut(result.got)}"
    else:
        reason = result.detail.strip().splitlines()[-1:] or [""]
        came = f"{result.verdict}: {_cut(reason[0])}".rstrip(": ")
    error = f" (stderr: {_cut(result.stderr.strip().splitlines()[-1])})" if entry is None and result.stderr.strip() else ""
    return f"- {call}: expected {expected}, {came}{error}"


def _cut(text: str) -> str:
    return text if len(text) <= SHOWN_CHARACTERS else text[: SHOWN_CHARACTERS - 3] + "..."
