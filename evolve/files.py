"""Folders and files that the user names."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TextIO

from evolve.errors import BadInput


def make_folder(path: Path) -> Path:
    """Return a folder, made where it isn't there.

    Raises:
        BadInput: a file is in its place, or it can't be made.
    """
    try:
        path.mkdir(parents=True, exist_ok=True)
    except (FileExistsError, NotADirectoryError):
        place = next(one for one in (path, *path.parents) if one.exists() and not one.is_dir())
        raise BadInput(f"{path} must be a folder, and {place} is a file. Name another place.") from None
    except OSError as error:
        raise BadInput(f"The folder {path} can't be made: {error.strerror}. Name another place.") from error
    return path


@contextmanager
def writing(path: Path) -> Iterator[TextIO]:
    """Open a file that the user named, to write it as UTF-8 and exactly.

    Raises:
        BadInput: it can't be written.
    """
    make_folder(path.parent)
    try:
        file = path.open("w", encoding="utf-8", errors="surrogatepass", newline="")
    except OSError as error:
        raise BadInput(f"{path} can't be written: {error.strerror}. Name another place.") from error
    with file:
        yield file
