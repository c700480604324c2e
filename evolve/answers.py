"""From a completion's text to programs: tolerant of how models write, strict about what counts as an answer.

An answer is a whole program in a fenced block, or SEARCH/REPLACE edits of the program that the prompt showed. What lies
outside that program's EVOLVE-BLOCKs stays as it is. Unusable replies are kept with their reason, as data. Whatever the text,
all this takes time in proportion to its length.
"""

from __future__ import annotations

import ast
import hashlib
import re
import textwrap
import warnings
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache

from evolve import edits
from evolve.fences import Block, blocks
from evolve.frame import Frame
from evolve.thinking import without_thinking

MAX_PROGRAM = 20_000
"""Characters of one answer; longer ones are unusable."""

MAX_REPLY = 1_000_000
"""Characters of a reply; a longer one is not read."""

_HEADING = re.compile(r"(?:#{1,5}|\*\*)[ \t]*(?:solution|answer|program|version)\b", re.IGNORECASE)
_STDIN = re.compile(r"\binput\s*\(|\bstdin\b|\bopen\s*\(\s*0")


@dataclass(frozen=True, slots=True)
class Answer:
    """One answer of a completion: a program, or the reason why there is none."""

    source: str | None
    reason: str = ""


@dataclass(frozen=True, slots=True)
class Rules:
    """How a problem's answers become programs.

    Attributes:
        language: of the programs, for the tags of fences.
        entry: the function that a program must define; blocks that don't define it are left out as long as another block
            does. Without it, what the parent defines takes its place.
        longest: characters of a program; longer ones are unusable.
        edit_pattern: pattern of RE2 with two groups for edits of another form; None for SEARCH/REPLACE.
    """

    language: str = "python"
    entry: str | None = None
    longest: int = MAX_PROGRAM
    edit_pattern: str | None = None


PYTHON = Rules()


def parse(text: str, wanted: int, rules: Rules = PYTHON, parent: str | None = None) -> list[Answer]:
    """Return the answers of a completion, at most `wanted`, at least one.

    Args:
        text: the completion.
        wanted: how many answers the prompt asked for.
        rules: of the problem.
        parent: the program that the prompt showed; without it, edits have nothing to apply to.

    Returns:
        Answers in the order of the text; a single unusable one with its reason when there is no program at all.
    """
    if len(text) > MAX_REPLY:
        return [Answer(None, f"a reply of {len(text)} characters; at most {MAX_REPLY} are read")]
    visible = without_thinking(text.replace("\r\n", "\n"))
    if not visible.strip():
        return [Answer(None, "empty reply" if not text.strip() else "nothing outside the thinking")]
    if parent is not None and edits.mentions(visible, rules.edit_pattern):
        sections = [visible] if wanted == 1 else list(_sections(visible))
        changed = [section for section in sections if edits.mentions(section, rules.edit_pattern)]
        return [_edited(section, parent, rules) for section in changed[:wanted]]
    names = [rules.entry] if rules.entry else _defined(parent) if parent is not None and rules.language == "python" else []
    found = list(blocks(visible.split("\n"), rules.language, _whole_test(names) if rules.language == "python" else None))
    if not found:
        if rules.language == "python" and rules.entry and _defines(visible, names):
            return [_whole(visible.strip("\n") + "\n", parent, rules)]
        return [Answer(None, "no fenced code block")]
    programs = _programs(found, names, rules)
    return [_whole(program, parent, rules) for program in programs[:wanted]]


def _sections(text: str) -> Iterator[str]:
    """Cut a reply at the headings of its answers. A line in an edit is none, whatever it looks like."""
    kept: list[str] = []
    inside = False
    for line in text.split("\n"):
        inside = edits.opens(line) or (inside and not edits.closes(line))
        if not inside and _HEADING.match(line):
            yield "\n".join(kept)
            kept = []
        else:
            kept.append(line)
    yield "\n".join(kept)


def _programs(found: Sequence[Block], names: Sequence[str], rules: Rules) -> list[str]:
    """Return the texts of the blocks that are programs: those that define what is wanted, where some do.

    A quoted call, an example of input or a command is none then.
    """
    tagged = [block for block in found if block.fence.speaks(rules.language)]
    texts = [block.text for block in (tagged or found)]
    if rules.language == "python":
        texts = [_flush(text) for text in texts]
        if not names:
            return [text for text in texts if _STDIN.search(text) and tree(text) is not None] or texts
        if any(_defines(text, names) for text in texts):
            return [text for text in texts if _defines(text, names)]
    if rules.entry:
        mention = re.compile(rf"\b{re.escape(rules.entry)}\b")
        return [text for text in texts if mention.search(text)] or texts[:1]
    return texts


def _flush(text: str) -> str:
    """Return a program that is indented as a whole at the margin; any other one as it is."""
    first = next((line for line in text.split("\n") if line.strip()), "")
    if not first.startswith((" ", "\t")) or tree(text) is not None:
        return text
    dedented = textwrap.dedent(text)
    return dedented if tree(dedented) is not None else text


def _whole_test(names: Sequence[str]) -> Callable[[str], bool]:
    """Return what says whether a text is a whole program."""
    return lambda text: _defines(_flush(text), names) if names else tree(_flush(text)) is not None


def _defined(source: str) -> list[str]:
    """Return what a Python program defines at its top: functions and classes."""
    module = tree(source)
    return [] if module is None else [node.name for node in _top(module) if isinstance(node, _DEFINITIONS)]


def _defines(source: str, names: Sequence[str]) -> bool:
    """Return whether a text is a Python program that defines one of these names."""
    module = tree(source)
    if module is None:
        return False
    wanted = set(names)
    for node in _top(module):
        if isinstance(node, _DEFINITIONS) and node.name in wanted:
            return True
        if isinstance(node, (ast.Import, ast.ImportFrom)) and any((one.asname or one.name) in wanted for one in node.names):
            return True
        targets = node.targets if isinstance(node, ast.Assign) else [node.target] if isinstance(node, ast.AnnAssign) else []
        if any(isinstance(one, ast.Name) and one.id in wanted for one in targets):
            return True
    return False


_DEFINITIONS = (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)


def _top(module: ast.Module) -> Iterator[ast.stmt]:
    """Yield the statements of a module, those under `if`, `try` and `with` at its top as well."""
    left = list(reversed(module.body))
    while left:
        node = left.pop()
        yield node
        for name in ("body", "orelse", "finalbody"):
            if isinstance(node, (ast.If, ast.Try, ast.With)):
                left += reversed(getattr(node, name, []))


def _edited(section: str, parent: str, rules: Rules) -> Answer:
    """Return the parent with the edits of one section made."""
    try:
        return _answer(edits.apply(parent, edits.parse(section, rules.edit_pattern)), rules)
    except edits.Unusable as error:
        return Answer(None, str(error))


def _whole(block: str, parent: str | None, rules: Rules) -> Answer:
    """Return a whole program, what must not change in it taken from the parent."""
    if not block.strip():
        return Answer(None, "empty code block")
    if parent is None:
        return _answer(block, rules)
    grafted = Frame.of(parent).graft(block)
    if grafted is None:
        return Answer(None, "what it changes can't be told from what must stay")
    return _answer(grafted, rules)


def _answer(block: str, rules: Rules) -> Answer:
    source = block if block.endswith("\n") else block + "\n"
    if not source.strip():
        return Answer(None, "an empty program")
    if len(source) > rules.longest:
        return Answer(None, f"a program of {len(source)} characters; at most {rules.longest} are taken")
    try:
        source.encode("utf-8")
    except UnicodeEncodeError:
        return Answer(None, "not Unicode text")
    return Answer(source)


@lru_cache(maxsize=64)  # one text is asked for several times while a reply is read
def tree(source: str) -> ast.Module | None:
    """Return the syntax tree of untrusted Python source, or None when it has none. Not to be changed."""
    return _parsed(source)


def _parsed(source: str) -> ast.Module | None:
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            return ast.parse(source)
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return None


@lru_cache(maxsize=1024)  # asked for when a program is scored and again when it is recorded
def fingerprint(source: str, language: str = "python") -> str:
    """Return a hash under which programs that differ only in layout, comments and docstrings are twins."""
    text = "\n".join(line.rstrip() for line in source.split("\n") if line.strip())
    if language == "python":
        try:
            module = _parsed(source)  # one of its own, because docstrings are taken out of it
            if module is not None:
                _drop_docstrings(module)
                text = ast.dump(module)
        except (RecursionError, ValueError, MemoryError):
            pass  # nested too deep, or a number too long to dump: the text stands for it
    return hashlib.sha256(text.encode("utf-8", "replace")).hexdigest()


def _drop_docstrings(module: ast.Module) -> None:
    for node in ast.walk(module):
        if isinstance(node, (ast.Module, ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)):
            first = node.body[0] if node.body else None
            if isinstance(first, ast.Expr) and isinstance(first.value, ast.Constant) and isinstance(first.value.value, str):
                node.body = node.body[1:]
