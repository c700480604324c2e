"""SEARCH/REPLACE edits: tolerant of how small models write them, strict about what they do.

Blanks after markers, words behind them, CRLF, fences inside a block and an indentation that is off by a constant are
forgiven. All edits of an answer apply, or none does; each must match at exactly one place, inside the parts of the program
that may change. Everything here takes time in proportion to the text.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import re2

from evolve.fences import Fence
from evolve.frame import Frame, marker

MOST_MIDDLES = 8
"""Lines of `=======` in one edit that are tried as its middle: a program's own text may hold some."""

MOST_PLACES = 64
"""Places of which the margins are looked at."""

MOST_WORDS = 60
"""Characters behind a marker that are forgiven."""


class Unusable(Exception):
    """Edits that give no program; the text says why."""


@dataclass(frozen=True, slots=True)
class Edit:
    """Lines to find, and the lines that take their place.

    Attributes:
        choices: pairs of what to find and what to put; more than one where several lines could be the middle. The longest
            that is found counts.
    """

    choices: tuple[tuple[tuple[str, ...], tuple[str, ...]], ...]


@lru_cache(maxsize=16)
def pattern_of(text: str) -> Any:
    """Return a user's pattern, compiled by an engine that takes linear time whatever the pattern.

    Raises:
        re2.error: it is no pattern of RE2 (which has no look-around and no back references).
    """
    options = re2.Options()
    options.dot_nl = True
    options.log_errors = False
    return re2.compile(text, options=options)


def _mark(line: str, character: str) -> str | None:
    """Return what stands behind 5 to 9 of a character that a line begins with, or None when it doesn't."""
    bare = line.strip()
    rest = bare.lstrip(character)
    return rest.strip() if 5 <= len(bare) - len(rest) <= 9 and len(rest) <= MOST_WORDS else None


def opens(line: str) -> bool:
    """Return whether a line begins an edit."""
    return _mark(line, "<") is not None


def is_middle(line: str) -> bool:
    """Return whether a line parts SEARCH from REPLACE."""
    return _mark(line, "=") == ""


def closes(line: str) -> bool:
    """Return whether a line ends an edit."""
    return _mark(line, ">") is not None


def mentions(text: str, pattern: str | None = None) -> bool:
    """Return whether a text holds the beginning of an edit, or what the pattern of another form matches."""
    if pattern is not None and pattern_of(pattern).search(_unicode(text)):
        return True
    return any(map(opens, text.split("\n")))


def parse(text: str, pattern: str | None = None) -> list[Edit]:
    """Return the edits in a text, prose around them left out.

    Args:
        text: a reply, or a part of one.
        pattern: of RE2, with two groups, what to find and what to put; where it matches, it alone counts.

    Raises:
        Unusable: an edit has no middle or no end.
    """
    if pattern is not None:
        found = [Edit(((_lines(match[1]), _lines(match[2])),)) for match in pattern_of(pattern).finditer(_unicode(text))]
        if found:
            return found
    edits: list[Edit] = []
    inside: list[str] | None = None
    for line in text.split("\n"):
        if opens(line):
            if inside is not None:
                raise Unusable(f"edit {len(edits) + 1} has no end before the next begins")
            inside = []
        elif inside is None:
            continue
        elif closes(line):
            edits.append(_edit(inside, len(edits) + 1))
            inside = None
        else:
            inside.append(line)
    if inside is not None:
        raise Unusable(f"edit {len(edits) + 1} has no end")
    return edits


def _edit(lines: Sequence[str], number: int) -> Edit:
    middles = [place for place, line in enumerate(lines) if is_middle(line)]
    if not middles:
        raise Unusable(f"edit {number} has no ======= between SEARCH and REPLACE")
    choices = []
    for place in middles[:MOST_MIDDLES]:
        search, replace = _without_fences(lines[:place]), _without_fences(lines[place + 1 :])
        choices.append((_without_markers(search), _without_markers(replace)))
    return Edit(tuple(choices))


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
    if not any(line.strip() for line in edit.choices[0][0]):
        raise Unusable("SEARCH is empty")
    for search, replace in reversed(edit.choices):
        for match in (_exactly, _shifted):
            places = [(part, at, indent) for part in parts for at, indent in match(part, search)]
            if len(places) > 1:
                raise Unusable(f"SEARCH is at {len(places)} places; it needs more lines")
            if places:
                part, at, indent = places[0]
                part[at : at + len(search)] = [indent(line) for line in replace]
                return
    search = edit.choices[0][0]
    if frame.marked and any(next(_shifted(list(fixed), search), None) for fixed in frame.fixed):
        raise Unusable("SEARCH lies outside the EVOLVE-BLOCK, which can't be changed")
    first = next(line for line in search if line.strip()).strip()
    raise Unusable(f"SEARCH is not in the program: {first[:80]}")


Indent = Callable[[str], str]


def _exactly(part: Sequence[str], search: Sequence[str]) -> Iterator[tuple[int, Indent]]:
    """Yield where the lines are the same but for blanks at their ends, which then go from what is put there, too."""
    for at in _places([line.rstrip() for line in part], [line.rstrip() for line in search]):
        yield at, str if list(part[at : at + len(search)]) == list(search) else str.rstrip


def _shifted(part: Sequence[str], search: Sequence[str]) -> Iterator[tuple[int, Indent]]:
    """Yield where the lines are the same but for a constant margin, and how to indent a line that is put there.

    The margins are looked at in the first places only where the lines agree without them, so that the time stays bounded.
    """
    places = _places([line.strip() for line in part], [line.strip() for line in search])
    for at in itertools.islice(places, MOST_PLACES):
        indent = _margin([(part[at + i], line) for i, line in enumerate(search) if line.strip()])
        if indent is not None:
            yield at, indent


def _margin(pairs: Sequence[tuple[str, str]]) -> Indent | None:
    """Return how lines beside these are to be indented; None where the margins differ by no constant."""
    have, want = ([_blanks(line) for line in column] for column in zip(*pairs, strict=True))
    first_have, first_want = have[0], want[0]
    if first_have.endswith(first_want):
        more = first_have[: len(first_have) - len(first_want)]
        if all(one == more + other for one, other in zip(have, want, strict=True)):
            return lambda line: (more + line).rstrip() if line.strip() else ""
    if first_want.endswith(first_have):
        less = first_want[: len(first_want) - len(first_have)]
        if all(less + one == other for one, other in zip(have, want, strict=True)):
            return lambda line: _less(line, less)
    if all(set(one) <= {"\t"} for one in have):  # the program has tabs, the model wrote blanks
        for unit in (4, 2, 8, 3):
            steps = {unit * len(one) - len(other.expandtabs(unit)) for one, other in zip(have, want, strict=True)}
            if len(steps) == 1 and (step := steps.pop()) % unit == 0:
                return lambda line, unit=unit, step=step: _tabs(line, unit, step)  # type: ignore[misc]
    return None


def _less(line: str, margin: str) -> str:
    """Return a line without a margin, or without the part of it that it has."""
    if line.startswith(margin):
        return line[len(margin) :].rstrip()
    return line[min(len(margin), len(_blanks(line))) :].rstrip()


def _tabs(line: str, unit: int, step: int) -> str:
    """Return a line whose margin of blanks is one of tabs instead."""
    if not line.strip():
        return ""
    tabs, left = divmod(max(0, len(_blanks(line).expandtabs(unit)) + step), unit)
    return ("\t" * tabs + " " * left + line.lstrip()).rstrip()


def _blanks(line: str) -> str:
    return line[: len(line) - len(line.lstrip())]


def _places(lines: Sequence[str], wanted: Sequence[str]) -> Iterator[int]:
    """Yield where a sequence occurs in another one (Knuth, Morris and Pratt 1977)."""
    if not wanted:
        return
    border = [0] * len(wanted)
    known = 0
    for at in range(1, len(wanted)):
        while known and wanted[at] != wanted[known]:
            known = border[known - 1]
        known += wanted[at] == wanted[known]
        border[at] = known
    known = 0
    for at, line in enumerate(lines):
        while known and (known == len(wanted) or line != wanted[known]):
            known = border[known - 1]
        known += line == wanted[known]
        if known == len(wanted):
            yield at - len(wanted) + 1


def _unicode(text: str) -> str:
    """Return text that RE2 takes: no lone surrogates."""
    return text.encode("utf-8", "replace").decode()


def _lines(text: str | None) -> tuple[str, ...]:
    return tuple((text or "").strip("\n").split("\n"))


def _without_fences(lines: Sequence[str]) -> tuple[str, ...]:
    """Return the lines of one side, without a fence around all of them."""
    if len(lines) >= 2 and Fence.of(lines[0]) is not None and Fence.of(lines[-1]) is not None:
        return tuple(lines[1:-1])
    return tuple(lines)


def _without_markers(lines: tuple[str, ...]) -> tuple[str, ...]:
    """Return the lines of one side, without EVOLVE-BLOCK markers at its ends, which stay in any case."""
    while lines and marker(lines[0]):
        lines = lines[1:]
    while lines and marker(lines[-1]):
        lines = lines[:-1]
    return lines
