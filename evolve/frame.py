"""EVOLVE-BLOCK markers: what of a program may change. What lies outside never does, by construction.

A marker is a comment, in whatever syntax, that begins with `EVOLVE-BLOCK-START` or `EVOLVE-BLOCK-END`. A program without
markers may change everywhere.
"""

from __future__ import annotations

import io
import re
import tokenize
from collections.abc import Sequence
from dataclasses import dataclass

START, END = "EVOLVE-BLOCK-START", "EVOLVE-BLOCK-END"
SHORT = 8
"""Characters of a line which, being so short, says nothing about where it is from."""

_MARKER = re.compile(rf"\s*[^\w\s]{{0,6}}\s*({START}|{END})\b")


def marker(line: str) -> str | None:
    """Return `START` or `END` where a line is such a marker."""
    if "EVOLVE-BLOCK-" not in line:
        return None
    found = _MARKER.match(line)
    return found[1] if found else None


@dataclass(frozen=True, slots=True)
class Frame:
    """A program cut at its markers.

    Attributes:
        fixed: the lines that stay, marker lines among them; one part more than `free`.
        free: the lines between markers, which may change.
        marked: whether the program has markers.
        ends: whether its last block has an end.
    """

    fixed: tuple[tuple[str, ...], ...]
    free: tuple[tuple[str, ...], ...]
    marked: bool
    ends: bool = True

    @classmethod
    def of(cls, source: str) -> Frame:
        """Cut a program. An end without a start is an ordinary line; a start without an end reaches to the last line."""
        lines = source.split("\n")
        markers = _markers(source, lines)
        fixed: list[list[str]] = [[]]
        free: list[list[str]] = []
        inside = False
        for number, line in enumerate(lines):
            found = markers.get(number)
            if not inside and found == START:
                fixed[-1].append(line)
                free.append([])
                inside = True
            elif inside and found == END:
                fixed.append([line])
                inside = False
            else:
                (free if inside else fixed)[-1].append(line)
        if not free:
            return cls(((), ()), (tuple(lines),), False)
        if inside:
            fixed.append([])
        return cls(tuple(map(tuple, fixed)), tuple(map(tuple, free)), True, not inside)

    def fill(self, parts: Sequence[Sequence[str]]) -> str:
        """Return the program with other lines in the free parts; markers among them are left out."""
        lines = list(self.fixed[0])
        for part, after in zip(parts, self.fixed[1:], strict=True):
            lines += [line for line in part if not (self.marked and marker(line))]
            lines += after
        return "\n".join(lines)

    def graft(self, program: str) -> str | None:
        """Return this program with the free parts of another one; None when it can't be told which they are.

        The other one has the same number of blocks, or no markers and this one's fixed text around one block, or it is the
        block's text alone. Where it lacks its last end, this one's text behind it is not taken for the block's.
        """
        if not self.marked:
            return program
        other = Frame.of(program)
        if other.marked:
            return self._filled(other) if len(other.free) == len(self.free) else None
        if len(self.free) != 1:
            return None
        lines = _stripped(program.split("\n"))
        before = _stripped([line for line in self.fixed[0] if not marker(line)])
        after = _stripped([line for line in self.fixed[1] if not marker(line)])
        own = program.strip("\n").split("\n")
        if (
            lines[: len(before)] == before
            and lines[len(lines) - len(after) :] == after
            and len(before) + len(after) <= len(lines)
        ):
            return self.fill([own[len(before) : len(lines) - len(after)]])
        if _significant((*before, *after)) & {line.strip() for line in lines if not line.startswith(("import ", "from "))}:
            return None
        return self.fill([own])

    def _filled(self, other: Frame) -> str | None:
        parts = [list(part) for part in other.free]
        if self.ends and not other.ends:
            tail = _stripped([line for line in self.fixed[-1] if not marker(line)])
            last = _stripped(parts[-1])
            if tail and last[len(last) - len(tail) :] == tail:
                parts[-1] = parts[-1][: _place(parts[-1], len(tail))]
            elif _significant(tail) & {line.strip() for line in last}:
                return None
        return self.fill(parts)


def _markers(source: str, lines: Sequence[str]) -> dict[int, str]:
    """Return the markers by line. In Python they are comments, so that a text that shows some has none."""
    found = {number: kind for number, line in enumerate(lines) if (kind := marker(line)) is not None}
    if not found or not all(lines[number].lstrip().startswith("#") for number in found):
        return found
    comments = set()
    try:
        for token in tokenize.generate_tokens(io.StringIO(source).readline):
            if token.type == tokenize.COMMENT:
                comments.add(token.start[0] - 1)
    except (tokenize.TokenError, SyntaxError, ValueError, RecursionError):
        return found  # another language, or broken
    return {number: kind for number, kind in found.items() if number in comments}


def _significant(lines: Sequence[str]) -> set[str]:
    """Return the lines that say where they are from."""
    return {line.strip() for line in lines if len(line.strip()) > SHORT}


def _place(lines: Sequence[str], count: int) -> int:
    """Return where the last `count` lines begin, blank ones at the end apart."""
    end = len(lines)
    while end and not lines[end - 1].strip():
        end -= 1
    return end - count


def _stripped(lines: Sequence[str]) -> list[str]:
    """Return lines without blanks at their ends and without blank lines at both ends."""
    return "\n".join(line.rstrip() for line in lines).strip("\n").split("\n") if any(map(str.strip, lines)) else []
