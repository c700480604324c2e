"""What others wrote reaches neither the terminal nor the log as it is."""

import asyncio

import pytest
from hypothesis import given
from hypothesis import strategies as st

from evolve import cli
from evolve.progress import Display
from evolve.scripted import ScriptedMutator
from evolve.visible import visible
from tests.evolve.test_loop import Run
from tests.evolve.test_show import on_a_terminal

CLIPBOARD = "\x1b]52;c;ZXZpbA==\x07"
CLEAR = "\x1b[2J"


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("plain\n\ttext", "plain\n\ttext"),
        ("größer 数", "größer 数"),
        (CLEAR, "\\x1b[2J"),
        (CLIPBOARD, "\\x1b]52;c;ZXZpbA==\\x07"),
        ("a\rb\0", "a\\rb\\x00"),
        ("\x9b2J", "\\x9b2J"),
        ("a\u202eb", "a\\u202eb"),
        ("\ud800", "\\ud800"),
    ],
)
def test_what_steers_a_terminal_is_escaped(text, expected):
    assert visible(text) == expected


@given(st.text())
def test_nothing_that_steers_is_left(text):
    shown = visible(text)
    assert all(one.isprintable() or one in "\n\t" or one.isspace() for one in shown)
    shown.encode("utf-8")


def test_show_and_the_log_make_it_visible(tmp_path, problem_folder):
    run = Run(tmp_path / "run", problem_folder, prompts=1, completions=1, answers=1, candidates=1)
    source = f"def double(x):\n    # {CLEAR} \u202e\n    raise ValueError('{CLIPBOARD}')\n"
    asyncio.run(run.go(ScriptedMutator([f"```python\n{source}```"])))
    for what in (["best"], ["top"], ["tests"], ["cost"], ["program", "2"]):
        shown = on_a_terminal(["show", str(tmp_path / "run"), *what], 100)
        assert "\x1b]" not in shown
        assert "[2J" not in shown.replace("\\x1b[2J", "")
        assert "\u202e" not in shown
    with Display(cli.err, tmp_path / "log") as display:
        display.say(f"a {CLEAR} b")
    assert "\x1b" not in (tmp_path / "log").read_text()


def test_a_fault_of_ours_has_an_exit_code_of_its_own(monkeypatch, capsys):
    def broken(**_):
        raise ZeroDivisionError(CLEAR)

    monkeypatch.setattr(cli, "app", broken)
    with pytest.raises(SystemExit) as left:
        cli.main()
    assert left.value.code == 70
    assert "\x1b[2J" not in capsys.readouterr().err
