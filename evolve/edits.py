"""SEARCH/REPLACE edits: tolerant of how small models write them, strict about what they do.

Blanks after markers, CRLF, fences inside a block and an indentation that is off by a constant are forgiven. All edits of an
answer apply, or none does; each must match at exactly one place, inside the parts of the program that may change.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

from evolve.frame import Frame

_OPEN = re.compile(r"^\s*<{5,9}\s*(?:SEARCH|ORIGINAL|HEAD)?\s*:?\s*$", re.IGNORECASE)
_MIDDLE = re.compile(r"^\s*={5,9}\s*$")
_CLOSE = re.compile(r"^\s*>{5,9}\s*(?:REPLACE|UPDATED)?\s*:?\s*$", re.IGNORECASE)
_FENCE = re.compile(r"^\s*(?:```|~~~)")


class Unusable(Exception):
    """Edits that give no program; the text says why."""


@dataclass(frozen=True, slots=True)
class Edit:
    """Lines to find, and the lines that take their place."""

    search: tuple[str, ...]
    replace: tuple[str, ...]


def mentions(text: str, pattern: str | None = None) -> bool:
    """Return whether a text holds the beginning of an edit, or what the pattern of another form matches."""
    if pattern is not None and re.search(pattern, text, re.DOTALL):
        return True
    return any(_OPEN.match(line) for line in text.split("\n"))


def parse(text: str, pattern: str | None = None) -> list[Edit]:
    """Return the edits in a text, prose around them left out.

    Args:
        text: a reply, or a part of one.
        pattern: regular expression with two groups, what to find and what to put; where it matches, it alone counts.

    Raises:
        Unusable: an edit has no middle or no end.
    """
    found: list[Edit] = []
    if pattern is not None:
        found = [Edit(_lines(match[1]), _lines(match[2])) for match in re.finditer(pattern, text, re.DOTALL)]
        if found:
            return found
    search: list[str] | None = None
    replace: list[str] | None = None
    for line in text.split("\n"):
        if _OPEN.match(line):
            if search is not None:
                raise Unusable(f"edit {len(found) + 1} has no end before the next begins")
            search = []
        elif search is None:
            continue
        elif replace is None and _MIDDLE.match(line):
            replace = []
        elif _CLOSE.match(line):
            if replace is None:
                raise Unusable(f"edit {len(found) + 1} has no ======= between SEARCH and REPLACE")
            found.append(Edit(_without_fences(search), _without_fences(replace)))
            search = replace = None
        else:
            (search if replace is None else replace).append(line)
    if search is not None:
        raise Unusable(f"edit {len(found) + 1} has no end")
    return found


def apply(source: str, edits: Sequence[Edit]) -> str:
    """Return a program with all edits made.

    Raises:
        Unusable: one can't be made, or together they change nothing.
    """
    frame = Frame.of(source)
    parts = [list(part) for part in frame.free]
    for number, edit in enumerate(edits, start=1):
        try:
            _apply(frame, parts, edit)
        except Unusable as error:
            raise Unusable(f"edit {number} of {len(edits)}: {error}" if len(edits) > 1 else str(error)) from None
    changed = frame.fill(parts)
    if changed == source:
        raise Unusable("the edits change nothing")
    return changed


def _apply(frame: Frame, parts: list[list[str]], edit: Edit) -> None:
    if not any(line.strip() for line in edit.search):
        raise Unusable("SEARCH is empty")
    for match in (_exactly, _shifted):
        places = [(part, at, margin) for part in parts for at, margin in match(part, edit.search)]
        if len(places) > 1:
            raise Unusable(f"SEARCH is at {len(places)} places; it needs more lines")
        if places:
            part, at, margin = places[0]
            part[at : at + len(edit.search)] = [_indented(line, margin) for line in edit.replace]
            return
    if frame.marked and any(list(_shifted(list(fixed), edit.search)) for fixed in frame.fixed):
        raise Unusable("SEARCH lies outside the EVOLVE-BLOCK, which can't be changed")
    first = next(line for line in edit.search if line.strip()).strip()
    raise Unusable(f"SEARCH is not in the program: {first[:80]}")


def _exactly(part: Sequence[str], search: Sequence[str]) -> list[tuple[int, int]]:
    """Return where the lines are the same but for blanks at their ends."""
    wanted = [line.rstrip() for line in search]
    have = [line.rstrip() for line in part]
    return [(at, 0) for at in range(len(have) - len(wanted) + 1) if have[at : at + len(wanted)] == wanted]


def _shifted(part: Sequence[str], search: Sequence[str]) -> list[tuple[int, int]]:
    """Return where the lines are the same but for a constant margin, with the margin to add."""
    found = []
    for at in range(len(part) - len(search) + 1):
        margins = set()
        for have, wanted in zip(part[at : at + len(search)], search, strict=True):
            if have.strip() != wanted.strip():
                break
            if wanted.strip():
                margins.add(_margin(have) - _margin(wanted))
        else:
            if len(margins) == 1:
                found.append((at, margins.pop()))
    return found


def _margin(line: str) -> int:
    return len(line) - len(line.lstrip())


def _indented(line: str, margin: int) -> str:
    if not line.strip() or margin == 0:
        return line.rstrip()
    return (" " * margin + line if margin > 0 else line[min(-margin, _margin(line)) :]).rstrip()


def _lines(text: str | None) -> tuple[str, ...]:
    return tuple((text or "").strip("\n").split("\n"))


def _without_fences(lines: Sequence[str]) -> tuple[str, ...]:
    """Return the lines of one side, without a fence around all of them."""
    if len(lines) >= 2 and _FENCE.match(lines[0]) and _FENCE.match(lines[-1]):
        return tuple(lines[1:-1])
    return tuple(lines)
