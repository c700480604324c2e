"""Fenced blocks of a reply, found line by line. What is between the fences stays as it is, byte for byte."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Self

MOST_ENDS = 8
"""Lines at which one block may end that are tried: a program's own text may hold fences."""

PLAIN = {"", "plaintext", "text", "code", "txt"}
TAGS = {
    "python": {"py", "python", "pycon", "python3", "py3", "python2"},
    "cpp": {"cpp", "c++", "cxx", "cc", "hpp"},
    "javascript": {"javascript", "js", "node", "nodejs", "mjs"},
    "go": {"go", "golang"},
    "rust": {"rust", "rs"},
    "c": {"c", "h"},
    "r": {"r"},
    "bash": {"bash", "sh", "shell"},
    "julia": {"julia", "jl"},
    "ruby": {"ruby", "rb"},
    "java": {"java"},
    "text": {"text", "txt"},
}


@dataclass(frozen=True, slots=True)
class Fence:
    """A line that opens or closes a block.

    Attributes:
        indent: blanks before it.
        mark: its character, a backtick or a tilde.
        length: how many of them.
        info: what stands behind them.
    """

    indent: str
    mark: str
    length: int
    info: str

    @classmethod
    def of(cls, line: str) -> Self | None:
        """Return a line as a fence, or None when it is none."""
        bare = line.lstrip(" \t>")
        mark = bare[:1]
        if mark not in ("`", "~") or bare[:3] != 3 * mark:
            return None
        rest = bare.lstrip(mark)
        if mark == "`" and "`" in rest:
            return None
        return cls(line[: len(line) - len(bare)], mark, len(bare) - len(rest), rest.strip())

    def closes(self, opening: Fence) -> bool:
        """Return whether this can be the end of a block."""
        return not self.info and self.mark == opening.mark and self.length >= opening.length

    def speaks(self, language: str) -> bool:
        """Return whether its tag names a language: an alias, one with a version, or the name of a file."""
        word = self.info.split(None, 1)[0].lower().strip("{}.") if self.info else ""
        word = word.split("{", 1)[0].split(",", 1)[0]
        tags = TAGS.get(language, {language})
        names = [word, word.split(":", 1)[0], word.rsplit(".", 1)[-1] if "." in word else word, word.rstrip("0123456789.")]
        return any(name in tags for name in names)

    @property
    def is_plain(self) -> bool:
        """Whether it names no language."""
        return not self.info or self.info.split(None, 1)[0].lower() in PLAIN


@dataclass(frozen=True, slots=True)
class Block:
    """A fenced block: its opening fence and its text, with a line end at the end."""

    fence: Fence
    text: str


def blocks(lines: Sequence[str], language: str, is_whole: Callable[[str], bool] | None = None) -> Iterator[Block]:
    """Yield the blocks of a reply in the wanted language, or in none; the last one may lack its end.

    Args:
        lines: of the reply.
        language: of the programs.
        is_whole: says whether a text is a whole program: of several places where a block may end, the first one counts that
            makes it whole. Without it, or where none does, the first one at the block's own margin.
    """
    fences = [(number, fence) for number, line in enumerate(lines) if (fence := Fence.of(line)) is not None]
    at = 0
    while at < len(fences):
        start, opening = fences[at]
        ends = []
        for place in range(at + 1, len(fences)):
            if fences[place][1].closes(opening) or (fences[place][1].info and fences[place][1].mark == opening.mark):
                ends.append(place)
                if len(ends) == MOST_ENDS:
                    break
        wanted = opening.speaks(language) or opening.is_plain
        end = _end(lines, fences, at, ends, is_whole if wanted else None)
        last = fences[end][0] if end is not None else len(lines) - (lines[-1] == "")  # the last line's end is no line
        if wanted:
            yield Block(opening, _text(lines[start + 1 : last], opening))
        if end is None:
            return
        closing = fences[end][1]
        at = end + 1 if closing.closes(opening) else end
        if (
            closing.info and closing.length == 2 * opening.length
        ):  # the end of one and the beginning of the next, in one line
            fences[end] = (fences[end][0], replace(closing, length=opening.length))


def _end(
    lines: Sequence[str],
    fences: Sequence[tuple[int, Fence]],
    at: int,
    ends: Sequence[int],
    is_whole: Callable[[str], bool] | None,
) -> int | None:
    """Return which fence ends the block that fence `at` opens; None for the end of the reply."""
    start, opening = fences[at]
    if not ends:
        return None
    margin = len(opening.indent.expandtabs(4)) + 3
    usual = next((end for end in ends if len(fences[end][1].indent.expandtabs(4)) <= margin), ends[0])
    if is_whole is None or (len(ends) == 1 and usual == ends[0]):
        return usual
    for end in dict.fromkeys((usual, *ends)):
        if is_whole(_text(lines[start + 1 : fences[end][0]], opening)):
            return end
    return usual


def _text(lines: Sequence[str], opening: Fence) -> str:
    """Return a block's lines, without the margin that its fence has."""
    margin = opening.indent
    if margin:
        lines = [
            line[len(margin) :] if line.startswith(margin) else line.lstrip(" \t") if not line.strip() else line
            for line in lines
        ]
    return "".join(f"{line}\n" for line in lines)
