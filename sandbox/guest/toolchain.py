"""Programs that are built: what the build leaves in the scratch folder is kept, and laid there again before each test."""

from __future__ import annotations

import os

from .child import FILE_BYTES

Files = dict[str, tuple[int, bytes]]
"""Mode and content by path relative to the scratch folder."""

MOST_FILES = 1000
"""Files and folders that a build may leave: they are laid out again before each test."""

SECONDS = {"cpu": 60.0, "wall": 120.0}  # limits of a build; its memory is that of a test


class TooMuch(Exception):
    """What a build left can't be kept; the text goes on after 'the build'."""


def take_files(folder: str) -> Files:
    """Return the regular files under `folder`.

    Raises:
        TooMuch: they are too many or too large, or one can't be read.
    """
    files: Files = {}
    left, places = FILE_BYTES, 0
    try:
        for where, folders, names in os.walk(folder, onerror=_refuse):
            places += len(folders) + len(names)
            if places > MOST_FILES:
                raise TooMuch(f"left more than {MOST_FILES} files and folders")
            for path in (os.path.join(where, name) for name in names):
                if os.path.isfile(path) and not os.path.islink(path):
                    with open(path, "rb") as kept:
                        data = kept.read(left + 1)
                    left -= len(data)
                    if left < 0:
                        raise TooMuch(f"left more than {FILE_BYTES >> 20} MB")
                    files[os.path.relpath(path, folder)] = (os.stat(path).st_mode & 0o777, data)
    except OSError as error:
        raise TooMuch(f"left something that can't be read: {error}"[:300]) from None
    return files


def _refuse(error: OSError) -> None:
    raise error


def put_files(folder: str, files: Files) -> None:
    """Lay files into `folder`."""
    for name, (mode, data) in files.items():
        path = os.path.join(folder, name)
        os.makedirs(os.path.dirname(path), exist_ok=True)
        with open(path, "wb") as file:
            file.write(data)
        os.chmod(path, mode)
