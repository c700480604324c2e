"""Programs that are built: what the build leaves in the scratch folder is kept, and laid there again before each test."""

from __future__ import annotations

import os

from .child import FILE_BYTES

Files = dict[str, tuple[int, bytes]]
"""Mode and content by path relative to the scratch folder."""

SECONDS = {"cpu": 60.0, "wall": 120.0}  # limits of a build; its memory is that of a test


def take_files(folder: str) -> Files:
    """Return the regular files under `folder`, each cut at `FILE_BYTES`."""
    files: Files = {}
    for where, _, names in os.walk(folder):
        for path in (os.path.join(where, name) for name in names):
            if os.path.isfile(path) and not os.path.islink(path):
                with open(path, "rb") as kept:
                    files[os.path.relpath(path, folder)] = (os.stat(path).st_mode & 0o777, kept.read(FILE_BYTES))
    return files


def put_files(folder: str, files: Files) -> None:
    """Lay files into `folder`."""
    for name, (mode, data) in files.items():
        path = os.path.join(folder, name)
        os.makedirs(os.path.dirname(path), exist_ok=True)
        with open(path, "wb") as file:
            file.write(data)
        os.chmod(path, mode)


def total(files: Files) -> int:
    """Return the bytes of all files together."""
    return sum(len(data) for _, data in files.values())
