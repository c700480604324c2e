"""Build the messages that ask for better programs: the task, the parent with its verdicts, programs that do what it can't.

Hidden tests never come here.
"""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from evolve import templates
from evolve.completion import Message
from evolve.excerpt import excerpt
from evolve.frame import Frame
from evolve.population import Member
from evolve.score import Score
from evolve.tested import Test, TestedProblem
from sandbox.base import Verdict
from sandbox.judge import TestResult

SHOWN_FAILURES = 6
SHOWN_CHARACTERS = 200
MAX_REPLY = 20_000
"""Characters of a reply that is answered with what is wrong with it."""
ROOM = 60_000
"""Characters of a prompt's programs, where the context of the model isn't known."""
PARENTS_SHARE = 0.75
SHORTEST = 200
"""Characters of a section that is not cut further."""


@dataclass(frozen=True, slots=True)
class View:
    """What a prompt is built from.

    Attributes:
        parent: the program to improve.
        score: its score.
        fittest: the best programs of its island.
        others: programs that do what the parent can't, or that differ.
        m: answers that a completion should hold.
        as_edits: whether SEARCH/REPLACE edits of the parent are asked for, instead of whole programs.
        seed: of the prompt, for what is random in its text.
        generation: number of the generation.
        room: characters that the programs may take together.
    """

    parent: Member
    score: Score
    fittest: Sequence[Member] = ()
    others: Sequence[Member] = ()
    m: int = 1
    as_edits: bool = False
    seed: int = 0
    generation: int = 1
    room: int = ROOM


class Prompter(Protocol):
    """Asks for better programs."""

    def build(self, view: View) -> list[Message]:
        """Return the messages of a prompt: the same for the same view."""
        ...


class TestPrompter:
    """Shows the tests that the parent fails.

    Args:
        problem: statement and tests.
    """

    __test__ = False

    def __init__(self, problem: TestedProblem):
        self._problem = problem

    def build(self, view: View) -> list[Message]:
        """See `Prompter.build`."""
        problem, language, entry = self._problem, self._problem.language, self._problem.entry
        contract = (
            f"Each program must define the function `{entry}`." if entry else "Each program reads stdin and writes stdout."
        )
        if language == "text":
            contract = templates.TEXT
        results = view.score.results
        passed = sum(result.verdict is Verdict.PASS for result in results)
        shown = programs(view, language)
        parts = [
            f"# Task\n{problem.spec.statement.strip()}",
            f"# Current program, passes {passed} of {len(results)} tests\n{block(language, shown[view.parent.id])}",
        ]
        failures = _failures(problem, results)
        if failures:
            parts.append("# Tests that it fails\n" + "\n".join(failures))
        blocks = [block(language, shown[member.id]) for member in (*view.fittest, *view.others) if member.id in shown]
        if blocks:
            parts.append("# Programs that pass some of these tests\n" + "\n".join(blocks))
        parts.append(f"# Your answer\n{ask(view, language, contract, templates.PASS_TESTS)}")
        system = templates.TESTS_SYSTEM.format(language=language.capitalize())
        if language == "text":
            system = templates.TEXT_SYSTEM
        return [{"role": "system", "content": system}, {"role": "user", "content": "\n\n".join(parts)}]


def ask(view: View, language: str, contract: str, goal: str) -> str:
    """Return the end of a prompt: how many answers, of which form."""
    if Frame.of(view.parent.source).marked:
        contract += templates.KEEP
    if view.as_edits:
        text = templates.EDIT if view.m == 1 else templates.EDIT + templates.EDIT_MANY
    else:
        text = templates.ONE if view.m == 1 else templates.MANY
    return text.format(m=view.m, language=language, contract=contract.strip(), goal=goal)


def retry(messages: Sequence[Message], reply: str, reasons: Sequence[str], language: str, m: int) -> list[Message]:
    """Return a prompt that answers a reply without a program with the reason why there is none."""
    as_edits = "<<<<<<< SEARCH" in messages[-1]["content"]
    form = templates.FORM_EDITS if as_edits else templates.FORM.format(m=m, language=language, s="" if m == 1 else "s")
    text = templates.RETRY.format(reason="; ".join(dict.fromkeys(reasons)), form=form)
    return [
        *messages,
        {"role": "assistant", "content": excerpt(reply, MAX_REPLY, "text")},
        {"role": "user", "content": text},
    ]


def shorten(messages: Sequence[Message]) -> list[Message] | None:
    """Return a prompt without its least needed section, the first message of the user cut in half where none is left.

    Returns None when that leaves nothing to cut. The last section, which says what to answer, always stays.
    """
    index = next(i for i, message in enumerate(messages) if message["role"] == "user")
    text = messages[index]["content"]
    head, *sections = _sections(text)
    for title in templates.EXPENDABLE:
        left = [section for section in sections if not section.startswith(f"# {title}")]
        if len(left) < len(sections):
            return _with(messages, index, head + "".join(left))
    if len(sections) > 1:
        longest = max(range(len(sections) - 1), key=lambda place: len(sections[place]))
        if len(sections[longest]) > SHORTEST:
            sections[longest] = _halved(sections[longest])
            return _with(messages, index, head + "".join(sections))
    return None


def _sections(text: str) -> list[str]:
    """Return a prompt cut before its headings; a comment in a program is none."""
    found: list[list[str]] = [[]]
    fence = ""
    for line in text.splitlines(keepends=True):
        mark = re.match(r"`{3,}", line)
        if mark and not fence:
            fence = mark[0]
        elif fence and line.rstrip() == fence:
            fence = ""
        if not fence and line.startswith("# "):
            found.append([])
        found[-1].append(line)
    return ["".join(lines) for lines in found]


def _halved(section: str) -> str:
    """Return a section of half the length: its longest program shortened, or where there is none, its second half cut."""
    fenced = max(re.finditer(r"(?ms)^(`{3,})(\w*)\n(.*?)\n\1$", section), key=lambda found: len(found[3]), default=None)
    if fenced is None or len(fenced[3]) < SHORTEST:
        half = section[: len(section) // 2].rstrip()
        open_fence = f"\n{fenced[1]}" if fenced is not None and half.count(fenced[1]) % 2 else ""
        return f"{half}\n[... cut here ...]{open_fence}\n\n"
    shorter = excerpt(fenced[3], len(fenced[3]) // 2, fenced[2])
    if len(shorter) >= len(fenced[3]):
        shorter = fenced[3][: len(fenced[3]) // 2] + "\n[... cut here ...]"
    return section[: fenced.start(3)] + shorter + section[fenced.end(3) :]


def _with(messages: Sequence[Message], index: int, content: str) -> list[Message]:
    changed: Message = {"role": messages[index]["role"], "content": content}
    return [*messages[:index], changed, *messages[index + 1 :]]


def block(language: str, source: str) -> str:
    """Return a program in a fence that is longer than any in it."""
    fence = "`" * max(3, 1 + max((len(run) for run in re.findall(r"^\s*(`{3,})", source, re.M)), default=0))
    return f"{fence}{language}\n{source.rstrip()}\n{fence}"


def programs(view: View, language: str) -> dict[int, str]:
    """Return by id how the programs of a prompt are shown: the parent first, the others in what room is left."""
    parent = view.parent
    others = list({member.id: member for member in (*view.fittest, *view.others)}.values())
    shown = {parent.id: excerpt(parent.source, round(PARENTS_SHARE * view.room) if others else view.room, language)}
    left = view.room - len(shown[parent.id])
    for place, member in enumerate(others):
        share = left // (len(others) - place)
        if share < SHORTEST:
            continue
        if member.id not in shown:
            shown[member.id] = excerpt(member.source, share, language)
            left -= len(shown[member.id])
    return shown


def _failures(problem: TestedProblem, results: Sequence[TestResult]) -> list[str]:
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
    if problem.language == "text":
        return [f"- {test.id}: {result.score:.2f} of 1. {cut(result.detail)}".rstrip() for test, result in failing]
    lines = [_failure(problem.entry, test, result) for test, result in (fresh + repeated)[:SHOWN_FAILURES]]
    if len(failing) > SHOWN_FAILURES:
        lines.append(f"- and {len(failing) - SHOWN_FAILURES} more")
    return lines


def _failure(entry: str | None, test: Test, result: TestResult) -> str:
    if entry is not None:
        call = f"{entry}({', '.join(cut(repr(argument)) for argument in test.input)})"
        expected = cut(repr(test.expected))
    else:
        call = f"stdin {cut(json.dumps(test.input))}"
        expected = cut(json.dumps(test.expected))
    if result.verdict is Verdict.WRONG:
        came = f"got {cut(result.got)}"
    else:
        reason = result.detail.strip().splitlines()[-1:] or [""]
        came = f"{result.verdict}: {cut(reason[0])}".rstrip(": ")
    error = f" (stderr: {cut(result.stderr.strip().splitlines()[-1])})" if entry is None and result.stderr.strip() else ""
    return f"- {call}: expected {expected}, {came}{error}"


def cut(text: str) -> str:
    """Return a value cut for a prompt."""
    return text if len(text) <= SHOWN_CHARACTERS else text[: SHOWN_CHARACTERS - 3] + "..."
