"""What the docs promise names tests, and these exist."""

import re
import runpy
import shlex
from pathlib import Path

import pytest
import typer

from mutator_training import cli as training

ROOT = Path(__file__).parent.parent
SECURITY = (ROOT / "docs" / "security.md").read_text()


def test_every_test_that_the_page_on_security_names_exists():
    named = set(re.findall(r"`(test_\w+)`", SECURITY))
    defined = set()
    for path in (ROOT / "tests").rglob("*.py"):
        defined |= set(re.findall(r"^ *(?:async )?def (test_\w+)", path.read_text(), re.MULTILINE))
    assert len(named) > 25
    assert named <= defined, named - defined
    assert all((ROOT / path).is_file() for path in re.findall(r"`(tests/[\w/]+\.py)`", SECURITY))


def test_every_case_that_it_names_exists():
    cases = runpy.run_path(str(ROOT / "tests" / "sandbox" / "hostile" / "cases.py"))["CASES"]
    quoted = {" ".join(name.split()) for name in re.findall(r'"([^"]+)"', SECURITY)}
    assert len(quoted) > 20
    assert quoted <= {name for name, *_ in cases}, quoted - {name for name, *_ in cases}


def plain(command):
    """A command without its comment, its description, and what may be left out."""
    command = re.split(r"\s{2,}|\s#|\s>\s|\s/\s|\s&&\s", command)[0]
    return re.sub(r"\[[^]]*\]|\.\.\.", "", command).replace("openevolve|shinka", "shinka").strip()


def documented():
    """The commands of the README and the docs, each once: those in blocks, and those that a sentence mentions."""
    blocks, mentioned = set(), set()
    for path in (ROOT / "README.md", *(ROOT / "docs").glob("**/*.md")):
        text = path.read_text(encoding="utf-8")
        for block in re.findall(r"^```\w*\n(.*?)^```", text, re.MULTILINE | re.DOTALL):
            lines = block.replace("\\\n", " ").splitlines()
            blocks |= {plain(line.strip()) for line in lines if line.strip().startswith("evolve ")}
        mentioned |= {plain(" ".join(one.split())) for one in re.findall(r"`(evolve [^`]+)`", text)}
    return sorted(blocks), sorted(mentioned)


BLOCKS, MENTIONED = documented()


def command_line():
    """The command line as it is, but nothing is done."""
    whole = typer.main.get_command(training.cli.app)
    todo = [whole]
    while todo:
        command = todo.pop()
        if hasattr(command, "commands"):
            todo += command.commands.values()
        else:
            command.callback = lambda **_: None
    return whole


@pytest.mark.parametrize("command", BLOCKS)
def test_every_example_is_a_command_that_can_be_given(command):
    command_line().main(shlex.split(command)[1:], standalone_mode=False)


@pytest.mark.parametrize("command", MENTIONED)
def test_every_command_that_is_mentioned_has_these_options(command):
    found = command_line()
    words = shlex.split(command)[1:]
    while hasattr(found, "commands") and words:
        found = found.commands[words.pop(0)]
    known = {name for one in found.params for name in (*one.opts, *one.secondary_opts)}
    assert {word.partition("=")[0] for word in words if word.startswith("-")} <= known


def test_there_are_documented_commands():
    assert len(BLOCKS) > 25
    assert len(MENTIONED) > 15
