"""Read the files of a problem folder, which may come from anybody: only what lies in it, of a bounded size, as text."""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator, Mapping
from pathlib import Path, PurePosixPath

from evolve.errors import ProblemError

MOST_TEXT_MB = 256
"""Of one text file; tests may be many."""

MOST_FILES = 5000
SKIPPED = {"__pycache__", "openevolve_output", "node_modules", "runs"}
DOCUMENTS = {".md", ".rst", ".pdf", ".png", ".jpg", ".jpeg", ".gif", ".svg", ".html", ".ipynb", ".log"}
HERE = PurePosixPath(".")
RUN_FILE = "run.sqlite"
OF_A_RUN = {"adapters", "baseline", "run.log", "server.log", "suite.log"}
"""Beside `run.sqlite`, what a run keeps in its folder."""


def read_text(path: Path, folder: Path | None = None, most_mb: float = MOST_TEXT_MB) -> str:
    """Return a file's text, without a byte order mark and with `\\n` at line ends.

    Args:
        path: the file.
        folder: where it must lie, links followed; None where the user named the file.
        most_mb: megabytes that it may have.

    Raises:
        ProblemError: it is missing, no regular file, elsewhere, too large, or not UTF-8.
    """
    data = read_bytes(path, folder, most_mb)
    try:
        text = data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise ProblemError(f"{path} is not UTF-8 text ({error}).") from None
    return text.replace("\r\n", "\n")


def read_bytes(path: Path, folder: Path | None = None, most_mb: float = MOST_TEXT_MB) -> bytes:
    """Return a file's content. See `read_text`."""
    if folder is not None:
        must_lie_in(folder, path)
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)  # a FIFO would wait for its writer
    except FileNotFoundError:
        raise ProblemError(
            f"{path} is missing. A problem folder has problem.yaml, initial_program.py and tests.jsonl, or "
            "initial_program.py and evaluator.py."
        ) from None
    except OSError as error:
        raise ProblemError(f"{path} cannot be read: {error}.") from None
    with os.fdopen(descriptor, "rb") as file:
        found = os.fstat(descriptor)
        if not stat.S_ISREG(found.st_mode):
            raise ProblemError(f"{path} is no regular file.")
        most = int(most_mb * (1 << 20))
        if found.st_size > most:
            raise ProblemError(f"{path} has {found.st_size / (1 << 20):.1f} MB; at most {most_mb:g} are read.")
        return file.read(most)


def must_lie_in(folder: Path, path: Path) -> None:
    """Refuse a link that leaves a problem folder: what it points to is not the folder's to give.

    Raises:
        ProblemError: it does.
    """
    if not path.resolve().is_relative_to(folder.resolve()):
        raise ProblemError(f"{path} is a link to {path.resolve()}, outside of the problem folder. Copy the file into it.")


def needed(files: Mapping[str, bytes], config: str | None) -> dict[str, bytes]:
    """Return what an evaluator may need of the files beside it, by relative path.

    The search's own config and documents right in the folder (`DOCUMENTS`) are left out, so that editing them changes no
    problem, unless some Python file beside the evaluator mentions their name or their suffix.

    Args:
        files: all of them.
        config: name of the config, where it is one of them.
    """
    told = b"\n".join(data for name, data in files.items() if name.endswith(".py"))

    def is_mentioned(path: PurePosixPath) -> bool:
        return path.name.encode() in told or (path.suffix != "" and path.suffix.encode() in told)

    kept = {}
    for name, data in files.items():
        path = PurePosixPath(name)
        is_config = name == config and b"yaml" not in told
        is_document = path.parent == HERE and (path.suffix.lower() in DOCUMENTS or path.name == "LICENSE")
        if is_mentioned(path) or not (is_config or is_document):
            kept[name] = data
    return kept


def tree(folder: Path, most_mb: float) -> dict[str, bytes]:
    """Return the files in a folder by relative path. Hidden ones and what runs left there are passed over.

    Raises:
        ProblemError: they are too many or too large, one lies elsewhere, is no regular file, or has a name that is no text.
    """
    found: dict[str, bytes] = {}
    size = 0
    for path in _files(folder):
        name = path.relative_to(folder).as_posix()
        if not name.isprintable():
            raise ProblemError(f"A file beside the evaluator has the name {name!r}, which is no plain text. Rename it.")
        size += path.stat().st_size if path.is_file() else 0  # what is no file is told by the reading
        if size > most_mb * (1 << 20) or len(found) >= MOST_FILES:
            raise ProblemError(
                f"The files beside the evaluator in {folder} are more than {most_mb:g} MB or {MOST_FILES} files, and every "
                "evaluation gets them. Move what it doesn't read elsewhere, keep data compressed (such as .npz or .gz), or "
                "let the evaluator fetch it with --allow-network."
            )
        found[name] = read_bytes(path, folder, most_mb)
    return found


def _files(folder: Path) -> Iterator[Path]:
    """Yield what may be given to an evaluator."""
    for where, folders, names in os.walk(folder):
        here = Path(where)
        if RUN_FILE in names:  # a run: all of its folder, or where that is the problem folder what is a run's
            if here != folder:
                folders.clear()
                continue
            names = [name for name in names if not name.startswith(RUN_FILE) and name not in OF_A_RUN]
            folders[:] = [name for name in folders if name not in OF_A_RUN]
        folders[:] = sorted(name for name in folders if not name.startswith(".") and name not in SKIPPED)
        for name in folders:
            if (here / name).is_symlink():
                must_lie_in(folder, here / name)
        yield from (here / name for name in sorted(names) if not name.startswith("."))
