"""Replies as models write them, with the expected programs or reasons."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from evolve.answers import MAX_PROGRAM, Rules, fingerprint, parse

F = "def f(x):\n    return x"
G = "def f(x):\n    return 2 * x"

REPLIES = {
    "one block": (f"```python\n{F}\n```", [F]),
    "prose around": (f"Sure!\n```python\n{F}\n```\nHope it helps.", [F]),
    "py tag": (f"```py\n{F}\n```", [F]),
    "Python tag": (f"```Python\n{F}\n```", [F]),
    "no tag": (f"```\n{F}\n```", [F]),
    "tag with blanks": (f"```python  \n{F}\n```  ", [F]),
    "tag with attributes": (f"```python title='x'\n{F}\n```", [F]),
    "tildes": (f"~~~python\n{F}\n~~~", [F]),
    "four ticks": (f"````python\n{F}\n````", [F]),
    "CRLF": (f"```python\n{F}\n```".replace("\n", "\r\n"), [F]),
    "indented in a list": ("1. First:\n   ```python\n   def f(x):\n       return x\n   ```", [F]),
    "two blocks": (f"### Solution 1\n```python\n{F}\n```\n### Solution 2\n```python\n{G}\n```", [F, G]),
    "more than wanted": (f"```python\n{F}\n```\n```python\n{G}\n```\n```python\n{F}\n```", [F, G]),
    "other language between": (f"```bash\npip install f\n```\n```python\n{F}\n```", [F]),
    "example without the entry": (f"```python\nprint(1)\n```\n```python\n{F}\n```", [F]),
    "unclosed last block": (f"```python\n{F}", [F]),
    "block not closed before the next": (f"```python\n{F}\n\n### Solution 2\n```python\n{G}\n```",
                                         [f"{F}\n\n### Solution 2", G]),
    "thinking": (f"<think>\n```python\n{G}\n```\n</think>\n```python\n{F}\n```", [F]),
    "thinking without an end": (f"<think>\n```python\n{G}\n```", None),
    "bare program": (F, [F]),
    "prose only": ("I cannot do that.", None),
    "empty": ("", None),
    "blank": (" \n ", None),
    "only a shell block": ("```bash\nls\n```", None),
    "empty block": ("```python\n\n```", None),
    "too long": (f"```python\n# f {'x' * MAX_PROGRAM}\n```", None),
    "lone surrogate": ("```python\nf = '\ud800'\n```", None),
}  # fmt: skip


@pytest.mark.parametrize("kind", REPLIES)
def test_replies(kind):
    text, expected = REPLIES[kind]
    answers = parse(text, 2, Rules(entry="f"))
    if expected is None:
        assert len(answers) == 1
        assert answers[0].source is None
        assert answers[0].reason
    else:
        assert [answer.source for answer in answers] == [program + "\n" for program in expected]


def test_other_languages_have_their_own_tags():
    text = "```python\nx\n```\n```c++\nint main() {}\n```\n```js\n1\n```"
    assert [answer.source for answer in parse(text, 3, Rules("cpp"))] == ["int main() {}\n"]
    assert [answer.source for answer in parse(text, 3, Rules("javascript"))] == ["1\n"]


@given(st.text())
def test_any_text_gives_at_least_one_answer(text):
    assert 1 <= len(parse(text, 3, Rules(entry="f"))) <= 3


def test_twins_differ_only_in_layout_comments_and_docstrings():
    twin = 'def f( x ):\n    """Doc."""\n    # why\n\n    return (x)\n'
    assert fingerprint(F) == fingerprint(twin)
    assert fingerprint(F) != fingerprint(G)
    assert fingerprint("broken(") != fingerprint("broken[")


@pytest.mark.parametrize("source", ["(" * 100000, "-" * 100000 + "1", "x = " + "[" * 90 + "]" * 90, "\0", "\ud800", "'\\d'"])
def test_hostile_source_has_a_fingerprint(source):
    assert len(fingerprint(source)) == 64
