"""EVOLVE-BLOCK markers: what of a program may change. What lies outside never does, by construction.

A line that holds `EVOLVE-BLOCK-START` or `EVOLVE-BLOCK-END`, in whatever comment syntax, is a marker. A program without
markers may change everywhere.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

START, END = "EVOLVE-BLOCK-START", "EVOLVE-BLOCK-END"
SHORT = 8
"""Characters of a line which, being so short, says nothing about where it is from."""


@dataclass(frozen=True, slots=True)
class Frame:
    """A program cut at its markers.

    Attributes:
        fixed: the lines that stay, marker lines among them; one part more than `free`.
        free: the lines between markers, which may change.
        marked: whether the program has markers.
    """

    fixed: tuple[tuple[str, ...], ...]
    free: tuple[tuple[str, ...], ...]
    marked: bool

    @classmethod
    def of(cls, source: str) -> Frame:
        """Cut a program. An end without a start is an ordinary line; a start without an end reaches to the last line."""
        fixed: list[list[str]] = [[]]
        free: list[list[str]] = []
        inside = False
        for line in source.split("\n"):
            if not inside and START in line:
                fixed[-1].append(line)
                free.append([])
                inside = True
            elif inside and END in line:
                fixed.append([line])
                inside = False
            else:
                (free if inside else fixed)[-1].append(line)
        if not free:
            return cls(((), ()), (tuple(source.split("\n")),), False)
        if inside:
            fixed.append([])
        return cls(tuple(map(tuple, fixed)), tuple(map(tuple, free)), True)

    def fill(self, parts: Sequence[Sequence[str]]) -> str:
        """Return the program with other lines in the free parts; markers among them are left out."""
        lines = list(self.fixed[0])
        for part, after in zip(parts, self.fixed[1:], strict=True):
            lines += [line for line in part if not (self.marked and (START in line or END in line))]
            lines += after
        return "\n".join(lines)

    def graft(self, program: str) -> str | None:
        """Return this program with the free parts of another one; None when it can't be told which they are.

        The other one has the same number of blocks, or no markers and this one's fixed text around one block, or it is the
        block's text alone.
        """
        if not self.marked:
            return program
        other = Frame.of(program)
        if other.marked:
            return self.fill(other.free) if len(other.free) == len(self.free) else None
        if len(self.free) != 1:
            return None
        lines = _stripped(program.split("\n"))
        before = _stripped([line for line in self.fixed[0] if START not in line])
        after = _stripped([line for line in self.fixed[1] if END not in line])
        if (
            lines[: len(before)] == before
            and lines[len(lines) - len(after) :] == after
            and len(before) + len(after) <= len(lines)
        ):
            return self.fill([program.strip("\n").split("\n")[len(before) : len(lines) - len(after)]])
        outside = {line.strip() for line in (*before, *after) if len(line.strip()) > SHORT}
        if outside & {line.strip() for line in lines if not line.startswith(("import ", "from "))}:
            return None
        return self.fill([program.strip("\n").split("\n")])


def _stripped(lines: Sequence[str]) -> list[str]:
    """Return lines without blanks at their ends and without blank lines at both ends."""
    return "\n".join(line.rstrip() for line in lines).strip("\n").split("\n") if any(map(str.strip, lines)) else []
