"""Leave out what a model thought before it answered. One pass over the lines, whatever they hold."""

from __future__ import annotations

import re
from collections.abc import Iterator

from evolve.fences import Fence

NAMES = "think|thinking|thought|thoughts|reasoning|reflection|analysis|scratchpad"
_TAG = re.compile(rf"(?<![\"'`\\])(?:<(/?)(?:{NAMES})>|\[(/?)(?:{NAMES})\])(?![\"']|`(?!``))", re.IGNORECASE)


def without_thinking(text: str) -> str:
    """Return a reply without its thinking.

    Thinking begins at an opening tag (`<think>`, `[THINK]`, `<reasoning>` ...) and ends at the next closing one, or with the
    reply. A closing tag without an opening one ends a thinking that the template of the prompt began. Tags in a fenced
    block, in an edit or between quotes belong to the program there.
    """
    if _TAG.search(text) is None:
        return text
    lines = text.split("\n")
    fenced = _fenced(lines)
    kept: list[str] = []
    thinking = False
    for line, inside in zip(lines, fenced, strict=True):
        if inside and not thinking and not _ends_alone(line):
            kept.append(line)
            continue
        rest = ""
        place = 0
        for tag in _TAG.finditer(line):
            closes = bool(tag[1] or tag[2])
            if not thinking:
                rest += line[place : tag.start()]
            if closes and not thinking:
                if inside:
                    continue
                kept, rest = [], ""  # all before it was thinking
            thinking = not closes
            place = tag.end()
        if not thinking:
            rest += line[place:]
        if not thinking or rest.strip():
            kept.append(rest)
    return "\n".join(kept)


def _ends_alone(line: str) -> bool:
    """Return whether a line is a closing tag and nothing else."""
    tag = _TAG.fullmatch(line.strip())
    return tag is not None and bool(tag[1] or tag[2])


def _fenced(lines: list[str]) -> Iterator[bool]:
    """Tell of each line whether it lies in a fenced block that ends, or in an edit.

    A block that a thinking left open ends at a closing tag alone on its line, where the next fence opens another block.
    """
    fences = [(number, fence) for number, line in enumerate(lines) if (fence := Fence.of(line)) is not None]
    opened: Fence | None = None
    at = 0
    edit = False
    for number, line in enumerate(lines):
        while at < len(fences) and fences[at][0] < number:
            at += 1
        if opened is None and line.lstrip().startswith("<<<<<"):
            edit = True
        fence = fences[at][1] if at < len(fences) and fences[at][0] == number else None
        if opened is not None and _ends_alone(line):
            following = fences[at][1] if at < len(fences) else None
            if following is None or following.info:
                opened = None
        yield opened is not None or edit
        if edit and line.lstrip().startswith(">>>>>"):
            edit = False
        if fence is not None:
            if opened is None:
                opened = fence
            elif fence.closes(opened):
                opened = None
