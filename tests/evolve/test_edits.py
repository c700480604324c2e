"""SEARCH/REPLACE edits as small models write them, with the expected program or a part of the reason."""

import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from evolve.answers import Rules, parse
from evolve.frame import Frame

PARENT = """\
import math


def f(x):
    if x > 0:
        y = x + 1
        return y
    return 0


def g(x):
    return 0
"""
ONE = "        y = x + 1\n", "        y = x * 2\n"
RIGHT = PARENT.replace(*ONE)


def edit(search, replace, begin="<<<<<<< SEARCH", middle="=======", end=">>>>>>> REPLACE"):
    return f"{begin}\n{search}\n{middle}\n{replace}\n{end}"


PLAIN = edit("        y = x + 1", "        y = x * 2")
BODY = "def f(x):\n    return 1"

REPLIES = {
    "plain": (PLAIN, RIGHT),
    "prose around": (f"I change one line.\n\n{PLAIN}\n\nThis doubles it.", RIGHT),
    "in a fence": (f"```diff\n{PLAIN}\n```", RIGHT),
    "in a fence of the language": (f"```python\n{PLAIN}\n```", RIGHT),
    "fences inside": (edit("```python\n        y = x + 1\n```", "```python\n        y = x * 2\n```"), RIGHT),
    "CRLF": (PLAIN.replace("\n", "\r\n"), RIGHT),
    "blanks after the markers": (edit("        y = x + 1", "        y = x * 2", "<<<<<<< SEARCH  ", "=======\t", ">>>>>>> REPLACE "),
                                 RIGHT),
    "lower case": (edit("        y = x + 1", "        y = x * 2", "<<<<<<< search", "=======", ">>>>>>> replace"), RIGHT),
    "colons": (edit("        y = x + 1", "        y = x * 2", "<<<<<<< SEARCH:", "=======", ">>>>>>> REPLACE:"), RIGHT),
    "short markers": (edit("        y = x + 1", "        y = x * 2", "<<<<< SEARCH", "=====", ">>>>> REPLACE"), RIGHT),
    "long markers": (edit("        y = x + 1", "        y = x * 2", "<<<<<<<<< SEARCH", "=========", ">>>>>>>>> REPLACE"), RIGHT),
    "no words": (edit("        y = x + 1", "        y = x * 2", "<<<<<<<", "=======", ">>>>>>>"), RIGHT),
    "words of another tool": (edit("        y = x + 1", "        y = x * 2", "<<<<<<< ORIGINAL", "=======", ">>>>>>> UPDATED"), RIGHT),
    "words of git": (edit("        y = x + 1", "        y = x * 2", "<<<<<<< HEAD", "=======", ">>>>>>>"), RIGHT),
    "no margin": (edit("y = x + 1", "y = x * 2"), RIGHT),
    "margin of 4 too little": (edit("    y = x + 1\n    return y", "    y = x * 2\n    return y"), RIGHT),
    "margin of 4 too much": (edit("            y = x + 1\n            return y", "            y = x * 2\n            return y"), RIGHT),
    "deeper replacement keeps its shape": (edit("y = x + 1", "y = x\nfor _ in range(2):\n    y += 1"), PARENT.replace(
        ONE[0], "        y = x\n        for _ in range(2):\n            y += 1\n")),
    "blanks at line ends": (edit("        y = x + 1   ", "        y = x * 2  "), RIGHT),
    "indented as in a list": ("1. Change:\n   " + PLAIN.replace("\n", "\n   "), RIGHT),
    "thinking first": (f"<think>\n{edit('    return 0', '    return 9')}\n</think>\n{PLAIN}", RIGHT),
    "only thinking": (f"<think>\n{PLAIN}\n</think>", "nothing outside the thinking"),
    "thinking without an end": (f"<think>\n{PLAIN}", "nothing outside the thinking"),
    "two edits": (PLAIN + "\n" + edit("def g(x):\n    return 0", "def g(x):\n    return 1"),
                  RIGHT.replace("def g(x):\n    return 0", "def g(x):\n    return 1")),
    "the second builds on the first": (PLAIN + "\n" + edit("        y = x * 2", "        y = x * 3"),
                                       PARENT.replace("x + 1", "x * 3")),
    "one of two fails": (PLAIN + "\n" + edit("nowhere = 1", "x = 2"), "edit 2 of 2: SEARCH is not in the program: nowhere = 1"),
    "delete": (edit("def g(x):\n    return 0", ""), PARENT.replace("def g(x):\n    return 0\n", "\n")),
    "across lines": (edit("    if x > 0:\n        y = x + 1\n        return y\n    return 0", "    return x"),
                     PARENT.replace("    if x > 0:\n        y = x + 1\n        return y\n    return 0\n", "    return x\n")),
    "two places": (edit("    return 0", "    return 1"), "SEARCH is at 2 places; it needs more lines"),
    "two places without a margin": (edit("return 0", "return 1"), "SEARCH is at 2 places"),
    "margin not constant": (edit("if x > 0:\n        y = x + 1", "pass"), "SEARCH is not in the program"),
    "not there": (edit("        y = x - 1", "        y = 2"), "SEARCH is not in the program: y = x - 1"),
    "the same": (edit("        y = x + 1", "        y = x + 1"), "the edits change nothing"),
    "there and back": (PLAIN + "\n" + edit("        y = x * 2", "        y = x + 1"), "the edits change nothing"),
    "empty SEARCH": (edit("", "x = 1"), "SEARCH is empty"),
    "blank SEARCH": (edit("  \n  ", "x = 1"), "SEARCH is empty"),
    "no middle": ("<<<<<<< SEARCH\n        y = x + 1\n>>>>>>> REPLACE", "edit 1 has no ======="),
    "no end": ("<<<<<<< SEARCH\n        y = x + 1\n=======\n        y = x * 2", "edit 1 has no end"),
    "cut in the middle": ("<<<<<<< SEARCH\n        y = x", "edit 1 has no end"),
    "no end before the next": ("<<<<<<< SEARCH\na\n=======\nb\n" + PLAIN, "has no end before the next"),
    "everything deleted": (edit(PARENT.rstrip("\n"), ""), "an empty program"),
    "a heading in an edit": (edit("        y = x + 1", "# Solution: twice\n        y = x * 2"),
                            PARENT.replace(ONE[0], "# Solution: twice\n        y = x * 2\n")),
    "words behind the end": (edit("        y = x + 1", "        y = x * 2", end=">>>>>>> new"), RIGHT),
    "words of branches": (edit("        y = x + 1", "        y = x * 2", "<<<<<<< ours", "=======", ">>>>>>> feature/double (v2)"), RIGHT),
    "blanks inside a text": (edit("        y = x + 1", "        y = \"\"\"a  \n  b\"\"\""), PARENT.replace("x + 1", "\"\"\"a  \n  b\"\"\"")),
    "an underlined title in REPLACE": (edit("        y = x + 1", "        y = x * 2  # Title\n        # ===\n=======\n".rstrip("\n")),
                                       PARENT.replace(ONE[0], "        y = x * 2  # Title\n        # ===\n=======\n")),
    "whole program instead": (f"```python\n{BODY}\n```", BODY + "\n"),
    "whole program without a tag": (f"```\n{BODY}\n```", BODY + "\n"),
    "prose only": ("I would change the line y = x + 1.", "no fenced code block"),
    "empty": ("", "empty reply"),
}  # fmt: skip


@pytest.mark.parametrize("name", REPLIES)
def test_replies(name):
    reply, expected = REPLIES[name]
    (answer,) = parse(reply, 1, Rules(entry="f"), PARENT)
    if expected.endswith("\n"):
        assert answer.source == expected, answer.reason
    else:
        assert answer.source is None
        assert expected in answer.reason


def test_a_heading_in_an_edit_parts_no_answers():
    reply = f"### Solution 1\n{edit('y = x + 1', '# Solution 2: better' + chr(10) + 'y = 2')}\n### Solution 2\n{PLAIN}"
    first, second = parse(reply, 2, Rules(entry="f"), PARENT)
    assert "# Solution 2: better\n        y = 2" in first.source
    assert second.source == RIGHT


def test_there_are_enough_of_them():
    assert len(REPLIES) >= 40


def test_several_answers_under_headings():
    reply = f"### Solution 1\n{PLAIN}\n### Solution 2\n{edit('nowhere', 'x')}\n## Solution 3: shorter\n{edit('y = x + 1', 'y = 3')}"
    first, second, third = parse(reply, 3, Rules(entry="f"), PARENT)
    assert (first.source, second.source, third.source) == (RIGHT, None, PARENT.replace("x + 1", "3"))
    assert len(parse(reply, 2, Rules(entry="f"), PARENT)) == 2


MARKED = """\
# fixed head
import math
# EVOLVE-BLOCK-START
def f(x):
    return x
# EVOLVE-BLOCK-END
def run():  # fixed
    return f(3)
"""


def test_edits_stay_inside_the_block():
    (inside,) = parse(edit("    return x", "    return 2 * x"), 1, Rules(entry="f"), MARKED)
    assert inside.source == MARKED.replace("return x", "return 2 * x")
    (outside,) = parse(edit("    return f(3)", "    return 999"), 1, Rules(entry="f"), MARKED)
    assert (outside.source, "outside the EVOLVE-BLOCK" in outside.reason) == (None, True)
    (across,) = parse(edit("    return x\n# EVOLVE-BLOCK-END", "    return 9"), 1, Rules(entry="f"), MARKED)
    assert across.source == MARKED.replace("return x", "return 9")
    (beyond,) = parse(
        edit("    return x\n# EVOLVE-BLOCK-END\ndef run():  # fixed", "    return 9"), 1, Rules(entry="f"), MARKED
    )
    assert beyond.source is None


WHOLE = {
    "markers kept": (MARKED.replace("return x", "return 7"), MARKED.replace("return x", "return 7")),
    "fixed text changed": (MARKED.replace("f(3)", "999").replace("return x", "return 7"), MARKED.replace("return x", "return 7")),
    "markers left out": (
        "\n".join(line for line in MARKED.replace("return x", "return 7").splitlines() if "EVOLVE" not in line),
        MARKED.replace("return x", "return 7"),
    ),
    "the block alone": ("def f(x):\n    return 7", MARKED.replace("return x", "return 7")),
    "markers left out and fixed text changed": ("# fixed head\nimport math\ndef f(x):\n    return 7\ndef run():  # fixed\n    return 1", None),
    "another number of blocks": (MARKED + MARKED, None),
}  # fmt: skip


@pytest.mark.parametrize("name", WHOLE)
def test_whole_programs_change_the_block_only(name):
    program, expected = WHOLE[name]
    (answer,) = parse(f"```python\n{program}\n```", 1, Rules(entry="f"), MARKED)
    assert answer.source == expected, answer.reason


TABS = "def f(x):\n\tif x:\n\t\ty = x + 1\n\treturn 0\n"
TABBED = {
    "the same tabs": (edit("\t\ty = x + 1", "\t\ty = x * 2\n\t\tz = 1"), "\t\ty = x * 2\n\t\tz = 1"),
    "no margin": (edit("y = x + 1", "if y:\n\ty = 2"), "\t\tif y:\n\t\t\ty = 2"),
    "a tab too much": (edit("\t\t\ty = x + 1", "\t\t\ty = x * 2"), "\t\ty = x * 2"),
    "four blanks for a tab": (edit("    if x:\n        y = x + 1", "    if x:\n        if y:\n            y = 2"),
                              "\tif x:\n\t\tif y:\n\t\t\ty = 2"),
    "two blanks for a tab": (edit("  if x:\n    y = x + 1", "  if x:\n    y = 2"), "\tif x:\n\t\ty = 2"),
}  # fmt: skip


@pytest.mark.parametrize("name", TABBED)
def test_tabs_stay_tabs(name):
    reply, expected = TABBED[name]
    (answer,) = parse(reply, 1, Rules(entry="f"), TABS)
    assert answer.source is not None, answer.reason
    assert expected in answer.source
    assert " " * 2 not in answer.source
    compile(answer.source, "x", "exec")


UNDERLINED = 'def f(x):\n    """\n    Title\n=======\n    """\n    return x\n'


def test_an_underlined_title_in_search_is_not_the_middle():
    reply = edit('    """\n    Title\n=======\n    """\n    return x', "    return 2")
    (answer,) = parse(reply, 1, Rules(entry="f"), UNDERLINED)
    assert answer.source == "def f(x):\n    return 2\n", answer.reason


def test_a_docstring_that_names_the_markers_is_no_marker():
    shown = MARKED.replace(
        "    return x", '    """Between\n    # EVOLVE-BLOCK-END\n    and EVOLVE-BLOCK-START it stays."""\n    return x'
    )
    assert Frame.of(shown).free == (tuple(shown.split("\n")[3:8]),)
    plain = '"""Code between EVOLVE-BLOCK-START\nand EVOLVE-BLOCK-END may change."""\nx = 1\n'
    assert not Frame.of(plain).marked


def test_a_forgotten_end_does_not_double_the_tail():
    forgotten = MARKED.replace("# EVOLVE-BLOCK-END\n", "").replace("return x", "return 7")
    (answer,) = parse(f"```python\n{forgotten}```", 1, Rules(entry="f"), MARKED)
    assert answer.source == MARKED.replace("return x", "return 7")
    changed = forgotten.replace("f(3)", "9")
    (answer,) = parse(f"```python\n{changed}```", 1, Rules(entry="f"), MARKED)
    assert answer.source is None


def test_markers_in_any_comment_syntax():
    for comment in ("#", "//", "--", "/* %s */", "<!-- %s -->", ";"):
        marks = [
            comment % word if "%" in comment else f"{comment} {word}" for word in ("EVOLVE-BLOCK-START", "EVOLVE-BLOCK-END")
        ]
        frame = Frame.of(f"a\n{marks[0]}\nb\n{marks[1]}\nc")
        assert (frame.free, frame.fixed) == ((("b",),), (("a", marks[0]), (marks[1], "c")))


TWO_BLOCKS = MARKED + "# EVOLVE-BLOCK-START\ny = 1\n# EVOLVE-BLOCK-END\nlast = 2\n"
LINES = st.sampled_from(
    [*TWO_BLOCKS.splitlines(), "", "    return x", "# EVOLVE-BLOCK-START", "# EVOLVE-BLOCK-END", "evil = 1"]
)
TEXTS = st.lists(LINES, min_size=1, max_size=8).map("\n".join)


@given(st.lists(st.tuples(TEXTS, TEXTS), min_size=1, max_size=3), st.booleans(), TEXTS)
def test_nothing_outside_the_blocks_ever_changes(edits, as_edits, whole):
    reply = "\n".join(edit(*pair) for pair in edits) if as_edits else f"```python\n{whole}\n```"
    for answer in parse(reply, 1, Rules(), TWO_BLOCKS):
        if answer.source is not None:
            assert Frame.of(answer.source).fixed == Frame.of(TWO_BLOCKS).fixed


def test_nothing_outside_the_blocks_changes_in_200_random_edits():
    rng = random.Random(1)
    lines = TWO_BLOCKS.splitlines()
    applied = 0
    for _ in range(200):
        at = rng.randrange(len(lines))
        search = lines[at : at + rng.randint(1, 3)]
        replace = rng.choices([*lines, "# EVOLVE-BLOCK-END", "evil = 1"], k=rng.randint(0, 4))
        (answer,) = parse(edit("\n".join(search), "\n".join(replace)), 1, Rules(), TWO_BLOCKS)
        if answer.source is not None:
            applied += 1
            assert Frame.of(answer.source).fixed == Frame.of(TWO_BLOCKS).fixed
    assert applied > 20
