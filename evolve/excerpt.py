"""Show a program that is longer than its room: what may change first, then what lies around it; every cut is marked."""

from __future__ import annotations

from evolve.frame import Frame

MARK = "[... {count} lines of this program are not shown ...]"
LINE = "[... {count} characters ...]"
LONGEST_LINE = 2000
COMMENTS = {"python": "# ", "r": "# ", "ruby": "# ", "sh": "# ", "bash": "# ", "julia": "# ", "perl": "# ", "text": ""}
"""What begins a comment; `// ` in every other language."""


def excerpt(source: str, room: int, language: str = "python") -> str:
    """Return a program's text, of about `room` characters at most, or all of it where it fits.

    Lines are kept whole, save those that are longer than the room. Lines between EVOLVE-BLOCK markers come first, from each
    block's start and end towards its middle; then the lines next to the blocks, and so outwards.

    Args:
        source: the program.
        room: characters that it may take, the marks of cuts aside.
        language: of the program, for the marks' comments.
    """
    text = source.rstrip()
    if len(text) <= room:
        return text
    comment = COMMENTS.get(language, "// ")
    lines = [_short(line, min(LONGEST_LINE, max(80, room // 4)), comment) for line in text.split("\n")]
    kept: set[int] = set()
    left = room
    for number in _order(text, len(lines)):
        left -= len(lines[number]) + 1
        if left < 0:
            break
        kept.add(number)
    shown: list[str] = []
    hidden = 0
    for number, line in enumerate([*lines, ""]):
        if number < len(lines) and number not in kept:
            hidden += 1
            continue
        if hidden:
            shown.append(comment + MARK.format(count=hidden))
            hidden = 0
        shown.append(line)
    return "\n".join(shown).rstrip()


def _short(line: str, most: int, comment: str) -> str:
    """Return a line, one that is very long without its middle."""
    if len(line) <= most:
        return line
    mark = f" {comment}{LINE.format(count=len(line) - most)} "
    return line[: most // 2] + mark + line[len(line) - most // 2 :]


def _order(text: str, count: int) -> list[int]:
    """Return the numbers of lines, those needed most first."""
    frame = Frame.of(text)
    place, blocks = 0, []
    for fixed, free in zip(frame.fixed, (*frame.free, ()), strict=True):
        start = place + len(fixed)
        if free:
            blocks.append(range(start, start + len(free)))
        place = start + len(free)
    inside = {number: min(number - block.start, block.stop - 1 - number) for block in blocks for number in block}
    around: dict[int, int] = {}
    edges = [edge for block in blocks for edge in (block.start, block.stop - 1)]
    for number in range(count):
        if number not in inside:
            around[number] = min((abs(number - edge) for edge in edges), default=number)
    return [*sorted(inside, key=inside.__getitem__), *sorted(around, key=around.__getitem__)]
