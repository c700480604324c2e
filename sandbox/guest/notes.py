"""What an evaluator may swallow: modules that are missing, commands that fail, a candidate that raises. For people alone.

An evaluator that catches everything and returns 0 hides what is wrong with the machine that it got. What is noticed here
goes with its metrics; it decides nothing, and where the candidate shares the process, it may be forged.
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Sequence
from importlib.abc import MetaPathFinder
from importlib.machinery import ModuleSpec
from typing import Any

MOST_NOTES, MOST_CHARACTERS = 20, 300
NOTES: list[str] = []


def note(text: str) -> None:
    """Remember something, once."""
    text = text[:MOST_CHARACTERS]
    if len(NOTES) < MOST_NOTES and text not in NOTES:
        NOTES.append(text)


class Missing(MetaPathFinder):
    """The last finder: who comes here finds nothing.

    Args:
        folders: whose files' imports are of interest; libraries try out many.
    """

    def __init__(self, folders: Sequence[str]):
        self._folders = tuple(folders)

    def find_spec(self, name: str, path: Any = None, target: Any = None) -> ModuleSpec | None:
        """Find nothing; remember who asked."""
        frame = sys._getframe(1)
        while frame is not None and "importlib" in frame.f_code.co_filename:
            frame = frame.f_back  # type: ignore[assignment]
        if frame is not None and frame.f_code.co_filename.startswith(self._folders):
            note(f"No module named {name!r}")
        return None


def watch(folders: Sequence[str]) -> None:
    """Begin to notice what happens in this process."""
    sys.meta_path.append(Missing(folders))
    execute, handle = subprocess.Popen._execute_child, subprocess.Popen._handle_exitstatus  # type: ignore[attr-defined]

    def execute_child(self: Any, args: Any, *more: Any, **named: Any) -> Any:
        try:
            return execute(self, args, *more, **named)
        except OSError as error:
            note(f"the command {command(args)} could not be started: {error.strerror}")
            raise

    def handle_exitstatus(self: Any, status: int, *more: Any, **named: Any) -> Any:
        code = os.waitstatus_to_exitcode(status)
        if code != 0:
            how = f"was ended by signal {-code}" if code < 0 else f"ended with exit code {code}"
            note(f"the command {command(self.args)} {how}")
        return handle(self, status, *more, **named)

    subprocess.Popen._execute_child = execute_child  # type: ignore[attr-defined]
    subprocess.Popen._handle_exitstatus = handle_exitstatus  # type: ignore[attr-defined]


def command(args: Any) -> str:
    """Return the beginning of a command, for people."""
    words = [args] if isinstance(args, (str, bytes, os.PathLike)) else list(args)
    return repr(" ".join(os.fsdecode(word) for word in words)[:100])
