"""From a completion's text to programs: tolerant of how models write, strict about what counts as an answer.

An answer is a whole program in a fenced block, or SEARCH/REPLACE edits of the program that the prompt showed. What lies
outside that program's EVOLVE-BLOCKs stays as it is. Unusable replies are kept with their reason, as data.
"""

from __future__ import annotations

import ast
import hashlib
import re
import warnings
from dataclasses import dataclass
from functools import lru_cache

from evolve import edits
from evolve.frame import Frame

MAX_PROGRAM = 20_000
"""Characters of one answer; longer ones are unusable."""

_THINK = re.compile(r"<think(?:ing)?>.*?(?:</think(?:ing)?>|\Z)", re.DOTALL | re.IGNORECASE)
_FENCE = re.compile(r"^[ \t]*(```+|~~~+)[ \t]*([\w+#.-]*)[^\n`]*$", re.MULTILINE)
_HEADING = re.compile(r"^#{1,5}[ \t]*(?:solution|answer|program|version)\b[^\n]*$", re.MULTILINE | re.IGNORECASE)
_PLAIN = {"", "plaintext", "text", "code"}
_TAGS = {
    "python": {"py", "python", "python3", "py3", "python2"},
    "cpp": {"cpp", "c++", "cxx", "cc"},
    "javascript": {"javascript", "js", "node", "nodejs"},
    "go": {"go", "golang"},
    "rust": {"rust", "rs"},
    "c": {"c", "h"},
    "r": {"r"},
    "bash": {"bash", "sh", "shell"},
    "julia": {"julia", "jl"},
    "ruby": {"ruby", "rb"},
    "text": {"text", "txt"},
}


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
        entry: the function that a program must define; blocks that do not mention it are left out as long as another block
            does.
        longest: characters of a program; longer ones are unusable.
        edit_pattern: regular expression with two groups for edits of another form; None for SEARCH/REPLACE.
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
    language, entry, pattern = rules.language, rules.entry, rules.edit_pattern
    visible = _THINK.sub("", text.replace("\r\n", "\n")).strip()
    if not visible:
        return [Answer(None, "empty reply" if not text.strip() else "nothing outside the thinking")]
    if parent is not None and edits.mentions(visible, pattern):
        sections = [section for section in _HEADING.split(visible) if edits.mentions(section, pattern)]
        return [_edited(section, parent, rules) for section in sections[:wanted]]
    blocks = _blocks(visible, _PLAIN | _TAGS.get(language, {language}))
    if not blocks:
        if language == "python" and entry and f"def {entry}" in visible and tree(visible) is not None:
            blocks = [visible]
        else:
            return [Answer(None, "no fenced code block")]
    if entry:
        blocks = [block for block in blocks if re.search(rf"\b{re.escape(entry)}\b", block)] or blocks[:1]
    return [_whole(block, parent, rules) for block in blocks[:wanted]]


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
    source = block.strip("\n").rstrip() + "\n"
    if not source.strip():
        return Answer(None, "an empty program")
    if len(source) > rules.longest:
        return Answer(None, f"longer than {rules.longest} characters")
    try:
        source.encode("utf-8")
    except UnicodeEncodeError:
        return Answer(None, "not Unicode text")
    return Answer(source)


def _blocks(text: str, tags: set[str]) -> list[str]:
    """Return the contents of fenced blocks in the wanted language; a last block without an end counts."""
    blocks: list[str] = []
    opening: re.Match[str] | None = None
    for fence in _FENCE.finditer(text):
        if opening is None:
            opening = fence
            continue
        if fence[2] == "" and fence[1][0] == opening[1][0] and len(fence[1]) >= len(opening[1]):
            if opening[2].lower() in tags:
                blocks.append(_dedent(text[opening.end() : fence.start()]))
            opening = None
        elif fence[2].lower() in tags:  # the model forgot to close the block before
            if opening[2].lower() in tags:
                blocks.append(_dedent(text[opening.end() : fence.start()]))
            opening = fence
    if opening is not None and opening[2].lower() in tags:
        blocks.append(_dedent(text[opening.end() :]))
    return blocks


def _dedent(block: str) -> str:
    """Remove a block's common indentation (a list item's, say) and blanks at line ends."""
    lines = [line.rstrip() for line in block.strip("\n").split("\n")]
    margin = min((len(line) - len(line.lstrip()) for line in lines if line), default=0)
    return "\n".join(line[margin:] for line in lines)


def tree(source: str) -> ast.Module | None:
    """Return the syntax tree of untrusted Python source, or None when it has none."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            return ast.parse(source)
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return None


@lru_cache(maxsize=1024)  # asked for when a program is scored and again when it is recorded
def fingerprint(source: str, language: str = "python") -> str:
    """Return a hash under which programs that differ only in layout, comments and docstrings are twins."""
    text = "\n".join(line.rstrip() for line in source.splitlines() if line.strip())
    module = tree(source) if language == "python" else None
    if module is not None:
        try:
            _drop_docstrings(module)
            text = ast.dump(module)
        except RecursionError:
            pass  # nested too deep to dump: the text stands for it
    return hashlib.sha256(text.encode("utf-8", "replace")).hexdigest()


def _drop_docstrings(module: ast.Module) -> None:
    for node in ast.walk(module):
        if isinstance(node, (ast.Module, ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)):
            first = node.body[0] if node.body else None
            if isinstance(first, ast.Expr) and isinstance(first.value, ast.Constant) and isinstance(first.value.value, str):
                node.body = node.body[1:]
