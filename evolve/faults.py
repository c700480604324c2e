"""Faults of the machine that an evaluator may have swallowed: found in what it printed and said, with what to do about each.

Pure functions of texts. They decide no score; `evolve check` refuses a folder whose initial program gets nothing beside one.
"""

from __future__ import annotations

import re
from collections.abc import Iterable

MOST = 8
PYPI = {
    "bs4": "beautifulsoup4", "cv2": "opencv-python-headless", "PIL": "pillow", "skimage": "scikit-image",
    "sklearn": "scikit-learn", "yaml": "pyyaml", "Bio": "biopython", "dotenv": "python-dotenv",
}  # fmt: skip
"""Packages whose name is not that of their module."""

DEBIAN = {
    "cargo": "cargo", "rustc": "rustc", "Rscript": "r-base-core", "node": "nodejs", "npm": "npm", "gcc": "gcc", "cc": "gcc",
    "g++": "g++", "clang": "clang", "make": "make", "cmake": "cmake", "java": "default-jdk-headless", "go": "golang-go",
    "javac": "default-jdk-headless", "julia": "julia", "ruby": "ruby", "git": "git", "ffmpeg": "ffmpeg", "curl": "curl",
    "nasm": "nasm", "ghc": "ghc", "sqlite3": "sqlite3", "graphviz": "graphviz", "dot": "graphviz",
}  # fmt: skip
"""Packages of commands."""

MODULE = re.compile(r"No module named '?([A-Za-z_][A-Za-z0-9_]*)")
NOT_STARTED = re.compile(r"the command '(\S+?)[ '].{0,120}could not be started: No such file")
NO_COMMAND = re.compile(
    r"No such file or directory: '([A-Za-z0-9_+.-]+)'|(?:sh: \d+: |bash: )([A-Za-z0-9_+.-]+): (?:command )?not found"
)
MEMORY = re.compile(
    r"MemoryError|[Cc]annot allocate memory|[Oo]ut of memory|ended by signal 9\b|process ended: memory|std::bad_alloc"
    r"|used more than \d+ MB"
)
NETWORK = re.compile(
    r"[Nn]ame or service not known|[Tt]emporary failure in name resolution|[Nn]etwork is unreachable|NameResolutionError"
)
READ_ONLY = re.compile(r"Read-only file system")
NO_FILE = re.compile(r"No such file or directory: '(/[^']*)'")
VARIABLE = re.compile(r"KeyError: '([A-Z][A-Z0-9]*_[A-Z0-9_]+)'")
CROSSING = re.compile(r"an? [\w.]+ can't cross to or from a separated candidate")
FAILED = re.compile(r"the command .{1,120} (?:ended with exit code \d+|was ended by signal \d+)")
RAISED = re.compile(r"the candidate raised .{1,280}|the candidate's process ended: .{1,200}")


def faults(texts: Iterable[str], memory_mb: int) -> tuple[str, ...]:
    """Return a line for each fault that texts tell of, with what to add to the folder.

    Args:
        texts: notes of the sandbox, what the evaluator printed, texts among its metrics and artifacts.
        memory_mb: that an evaluation may use.
    """
    text = "\n".join(texts)
    found: dict[str, None] = {}
    for name in MODULE.findall(text):
        found[f"no module {name}: add `{PYPI.get(name, name)}` to requirements.txt beside the evaluator"] = None
    for groups in [*((name,) for name in NOT_STARTED.findall(text)), *NO_COMMAND.findall(text)]:
        name = next(one for one in groups if one)
        package = DEBIAN.get(name.rpartition("/")[2], f"the Debian package that has {name}")
        found[f"no command {name}: add to problem.yaml beside the evaluator: `packages: [{package}]`"] = None
    if MEMORY.search(text):
        line = f"`limits: {{memory_mb: {4 * memory_mb}}}`"
        found[f"memory ran out ({memory_mb} MB): add to problem.yaml beside the evaluator: {line}"] = None
    if NETWORK.search(text):
        found["the network was asked for: --allow-network gives it one"] = None
    if READ_ONLY.search(text):
        found["a file was to be written where only reading is possible: /tmp can be written to"] = None
    for name in NO_FILE.findall(text):
        found[f"no file {name}: put it into the folder and open it beside __file__"] = None
    for name in VARIABLE.findall(text):
        found[f"no variable {name} of the environment: add to problem.yaml beside the evaluator: `env: {{{name}: ...}}`"] = (
            None
        )
    for match in CROSSING.finditer(text):
        found[
            f"{match.group()}: plain data and arrays do; `trust: shared_process` in problem.yaml lets all, and forging"
        ] = None
    for pattern in (RAISED, FAILED):
        for match in pattern.finditer(text):
            found[match.group()] = None
    return tuple(list(found)[:MOST])
