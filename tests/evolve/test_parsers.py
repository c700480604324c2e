"""Replies as models write them: which text is the program, byte for byte, and in no more than linear time."""

import random
import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from evolve import edits
from evolve.answers import Rules, fingerprint, parse
from evolve.frame import Frame
from evolve.thinking import without_thinking

F = "def f(x):\n    return x\n"
G = "def f(x):\n    return 2 * x\n"
DOC = 'def f(x):\n    """Example:\n\n    ```\n    f(1)\n    ```\n    """\n    return x\n'
BARE = 'TEXT = """\n```\ninside\n```\n"""\ndef f(x):\n    return x\n'
INNER = 'TEXT = """\n```python\nprint(1)\n```\n"""\ndef f(x):\n    return x\n'
SPACES = 'TEXT = """a  \n\tb \n\n\n"""\n\n\ndef f(x):\n    return x  # end \n\n\n'
TAGGED = 'def f(x):\n    print("<think>", x, "</think>")\n    return "[THINK]"\n'
ALONE = 'TEXT = """\n<think>\n</think>\n"""\ndef f(x):\n    return x\n'
STDIN = "import sys\nprint(sum(map(int, sys.stdin)))\n"


def fenced(text, tag="python", mark="```"):
    return f"{mark}{tag}\n{text}{mark}\n"


CALL = fenced("f(3)\n")
REPLIES = {
    "a call quoted before": (f"Use it as\n{CALL}Here it is:\n{fenced(F)}", F),
    "a call quoted before, without a tag": (f"{fenced('f(3)', '')}\n{fenced(F)}", F),
    "a call quoted after": (f"{fenced(F)}Then\n{CALL}", F),
    "output quoted in a plain block": (f"{fenced(F)}It prints\n{fenced('f(3) = 6', '')}", F),
    "a fence in a docstring": (fenced(DOC), DOC),
    "a fence in a docstring, a call after": (f"{fenced(DOC)}And a call:\n{CALL}", DOC),
    "fences at the margin of a text": (fenced(BARE), BARE),
    "a tagged fence in a text": (fenced(INNER), INNER),
    "four ticks": (fenced(BARE, mark="````"), BARE),
    "tildes": (fenced(DOC, mark="~~~"), DOC),
    "blanks in a text": (fenced(SPACES), SPACES),
    "python3.11": (fenced(F, "python3.11"), F),
    "a file name": (fenced(F, "solution.py"), F),
    "a language and a file name": (fenced(F, "python:src/solution.py"), F),
    "attributes in braces": (fenced(F, "{.python .numberLines}"), F),
    "a block in a list": ("1. First:\n   ```python\n   def f(x):\n\n       return x\n   ```", "def f(x):\n\n    return x\n"),
    "indented but for the fence": (fenced("    def f(x):\n        return x\n"), F),
    "the end is missing": ("```python\n" + F, F),
    "nothing but the program": (F, F),
    "a lambda": (fenced("f = lambda x: x\n"), "f = lambda x: x\n"),
    "the broken one is all there is": (fenced("def f(x) return x\n"), "def f(x) return x\n"),
    "the broken one and a whole one": (fenced("def f(x) return x\n") + fenced(F), F),
    "separators of lines in a text": (fenced('T = "a\u2028b\x0cc\x85d"\n' + F), 'T = "a\u2028b\x0cc\x85d"\n' + F),
    "a closing tag alone": (f"I think\n{fenced(G)}so\n</think>\n{fenced(F)}", F),
    "closing in a line of prose": (f"maybe\n{fenced(G)}that is it.</think>\n\n{fenced(F)}", F),
    "closing before an open fence": (f"maybe\n```python\n{G}</think>\n{fenced(F)}", F),
    "just before a fence": (f"<think>\n{fenced(G)}</think>{fenced(F)}", F),
    "in brackets": (f"[THINK]\n{fenced(G)}[/THINK]\n{fenced(F)}", F),
    "reasoning": (f"<reasoning>\n{fenced(G)}</reasoning>\n{fenced(F)}", F),
    "twice": (f"<think>\n{fenced(G)}</think>\nhm\n<think>\n{fenced(G)}</think>\n{fenced(F)}", F),
    "never closed": (f"<think>\n{fenced(F)}", None),
    "never closed, after a program": (f"{fenced(F)}\n<think>\n{fenced(G)}", F),
    "nothing after it": (f"{fenced(F)}</think>\n", None),
    "tags in the program": (fenced(TAGGED), TAGGED),
    "tags alone on a line of the program": (fenced(ALONE), ALONE),
    "tags quoted in prose": (f"I don't use `<think>` or '</think>'.\n{fenced(F)}", F),
    "other tags stay": (f"<answer>\n{fenced(F)}</answer>", F),
    "an open edit in thinking": (f"<think>\n<<<<<<< SEARCH\nx\n</think>\n{fenced(F)}", F),
    "nested": (f"<think>\n<think>\n{fenced(G)}</think>\n{fenced(G)}</think>\n{fenced(F)}", F),
    "in the scaffold's block": (f"### Solution 1\n{fenced(TAGGED)}", TAGGED),
}


@pytest.mark.parametrize("name", REPLIES)
def test_the_program_of_a_reply(name):
    reply, expected = REPLIES[name]
    (answer,) = parse(reply, 1, Rules(entry="f"))
    assert answer.source == expected, answer.reason


def test_blocks_whose_fences_touch_are_two():
    answers = parse(f"```python\n{F}``````python\n{G}```", 2, Rules(entry="f"))
    assert [answer.source for answer in answers] == [F, G]


def test_a_stdin_program_is_told_from_its_input_and_its_call():
    reply = f"{fenced('python x.py < in', '')}with\n{fenced('3', '')}{fenced(STDIN)}{fenced('x = 1')}"
    assert [answer.source for answer in parse(reply, 2)] == [STDIN]


def test_without_an_entry_the_parent_says_what_is_defined():
    program = "def run(n):\n    return n\n"
    (answer,) = parse(f"{fenced('run(3)')}{fenced(program)}", 1, Rules(), parent="def run(n):\n    return 0\n")
    assert answer.source == program


LINE = st.text(st.characters(blacklist_categories=("Cs",), blacklist_characters="\r\n\0"), max_size=30)
PROGRAMS = st.lists(LINE, max_size=6).map(lambda lines: f"TEXT = {chr(10).join(lines)!r}\n{F}")
WRAPPINGS = (
    fenced,
    lambda program: fenced(program, ""),
    lambda program: fenced(program, "python3.12"),
    lambda program: fenced(program, "main.py"),
    lambda program: fenced(program, mark="~~~~"),
    lambda program: f"Sure!\n\n{fenced(program)}\nDone.",
    lambda program: f"<think>\n{fenced(G)}\n</think>\n{fenced(program)}",
    lambda program: f"```python\n{program}",
    lambda program: f"Usage:\n{CALL}\n{fenced(program)}",
)


@given(PROGRAMS, st.sampled_from(WRAPPINGS))
def test_a_program_comes_out_byte_for_byte(program, wrap):
    (answer,) = parse(wrap(program), 1, Rules(entry="f"))
    assert answer.source == program


PIECES = [
    *("```", "```python", "~~~", "`", "~", "<think>", "</think>", "[THINK]", "[/THINK]", "<<<<<<< SEARCH", "=======", ">>>>>>> REPLACE"),
    *("<<<<<<<", ">>>>>>>", "=", "<", ">", " ", "\t", "\n", "\n", "# Solution 1", "### Solution 2", "# EVOLVE-BLOCK-START"),
    *("# EVOLVE-BLOCK-END", "def f(x):", "    return x", "x", "'", '"', '"""', "(", ")", "[", "{", "\\", "\u2028", "\0", "\ud800", "é"),
]  # fmt: skip
PARENT = f"# a\n# EVOLVE-BLOCK-START\n{F}# EVOLVE-BLOCK-END\nlast = 1\n"
PATTERN = r"<<<<<<< SEARCH\n(.*?)=======\n(.*?)>>>>>>> REPLACE\n"


def every_parser(text):
    """Read a reply in every way."""
    for rules in (Rules(entry="f"), Rules("cpp"), Rules(entry="f", edit_pattern=PATTERN)):
        for parent in (None, PARENT):
            assert 1 <= len(parse(text, 3, rules, parent)) <= 3
    fingerprint(text)
    Frame.of(text)
    without_thinking(text)


@given(st.lists(st.sampled_from(PIECES), max_size=40).map("".join))
def test_no_reply_raises(text):
    every_parser(text)


GROWING = {
    "blanks behind a marker": lambda n: "<<<<<<<" + " " * n + "x",
    "ticks": lambda n: "`" * n + "x`",
    "a long tag": lambda n: "```" + "a" * n + "`",
    "fences": lambda n: "```python\n" * (n // 10),
    "fences and tildes": lambda n: "```python\n~~~\n" * (n // 14),
    "bare fences in a text": lambda n: "```python\nx = '''\n" + "```\n" * (n // 4),
    "open tags": lambda n: "<think>" * (n // 7),
    "closing tags": lambda n: "</think>\n" * (n // 9),
    "edits": lambda n: "<<<<<<< SEARCH\nreturn x\n=======\nreturn x\n>>>>>>> REPLACE\n" * (n // 60),
    "one long edit": lambda n: "<<<<<<< SEARCH\n" + "x\n" * (n // 4) + "=======\n" + "x\n" * (n // 4) + ">>>>>>> REPLACE",
    "middles": lambda n: "<<<<<<< SEARCH\n" + "=======\n" * (n // 8) + ">>>>>>> REPLACE",
    "headings": lambda n: "### Solution 1\n" * (n // 15),
    "markers": lambda n: "# EVOLVE-BLOCK-START\n" * (n // 21),
    "parentheses": lambda n: "```python\n" + "(" * n + "\n```",
    "quotes": lambda n: "```python\n" + "'" * n + "\n```",
}


def seconds(text):
    best = float("inf")
    for _ in range(3):
        fingerprint.cache_clear()
        start = time.process_time()
        every_parser(text)
        best = min(best, time.process_time() - start)
    return best


@pytest.mark.parametrize("name", GROWING)
def test_time_grows_with_the_text_and_not_faster(name):
    """Four times the text takes less than ten times as long: a square would take sixteen."""
    small, large = (seconds(GROWING[name](size)) for size in (30_000, 120_000))
    assert large < 10 * small + 0.05, (small, large)


def test_an_edit_of_thousands_of_lines_is_quick():
    lines = [f"    x{i % 7} = {i % 3}" for i in range(4900)]
    source = "def f(x):\n" + "\n".join(lines) + "\n"
    reply = "<<<<<<< SEARCH\n" + "\n".join(line[2:] for line in lines) + "\n=======\n  return x\n>>>>>>> REPLACE"
    start = time.process_time()
    (answer,) = parse(reply, 1, Rules(entry="f"), source)
    assert answer.source == "def f(x):\n    return x\n"
    assert time.process_time() - start < 2


def test_too_long_a_reply_is_unusable():
    assert "1000001 characters" in parse("x" * 1_000_001, 1)[0].reason


def test_a_pattern_of_the_user_is_linear():
    start = time.process_time()
    assert not edits.mentions("a" * 100_000, r"(a+)+b(x)")
    assert time.process_time() - start < 2


def test_a_number_too_long_for_the_interpreter_has_a_fingerprint():
    assert len(fingerprint("K = 0x" + "f" * 4000)) == 64


@pytest.mark.slow
def test_100_000_replies_at_random():
    rng = random.Random(14)
    for _ in range(100_000):
        text = "".join(rng.choices(PIECES, k=rng.randint(1, 30)))
        assert 1 <= len(parse(text, rng.randint(1, 3), Rules(entry="f"), rng.choice((None, PARENT, F)))) <= 3
        fingerprint(text)


TAGS = {
    "think": ("<think>", "</think>"),
    "upper case": ("<THINK>", "</THINK>"),
    "thinking": ("<thinking>", "</thinking>"),
    "reasoning": ("<reasoning>", "</reasoning>"),
    "brackets": ("[THINK]", "[/THINK]"),
    "thought": ("<thought>", "</thought>"),
    "scratchpad": ("<scratchpad>", "</scratchpad>"),
}
THOUGHTS = {
    "a program thought of": (lambda begin, end: f"{begin}\n{fenced(G)}{end}\n\n{fenced(F)}", F),
    "begun by the template": (lambda begin, end: f"Let me see.\n{fenced(G)}So be it.\n{end}\n{fenced(F)}", F),
    "in one line": (lambda begin, end: f"{begin}short{end}\n{fenced(F)}", F),
    "an open fence": (lambda begin, end: f"{begin}\n```python\n{G}\n{end}\n{fenced(F)}", F),
    "never closed": (lambda begin, end: f"{begin}\n{fenced(G)}", None),
    "an edit thought of": (
        lambda begin, end: f"{begin}\n<<<<<<< SEARCH\nx\n=======\ny\n>>>>>>> REPLACE\n{end}\n{fenced(F)}",
        F,
    ),
    "quoted in the program": (lambda begin, end: fenced(f'def f(x):\n    return "{begin}" + x + "{end}"\n'), None),
}


@pytest.mark.parametrize("tag", TAGS)
@pytest.mark.parametrize("thought", THOUGHTS)
def test_49_replies_of_models_that_think(tag, thought):
    begin, end = TAGS[tag]
    reply, wanted = THOUGHTS[thought]
    (answer,) = parse(reply(begin, end), 1, Rules("python", "f"))
    if thought == "quoted in the program":
        wanted = f'def f(x):\n    return "{begin}" + x + "{end}"\n'
    assert answer.source == wanted
