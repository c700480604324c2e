"""Where models, images and our own Docker engine are kept between runs."""

from __future__ import annotations

import os
from pathlib import Path

from evolve.errors import BadInput


def roots_folder() -> Path:
    """Return the folder of root file systems for bubblewrap; for root, one that a user without rights can reach."""
    chosen = "VECTOR_EVOLVE_CACHE" in os.environ or os.geteuid() != 0
    return cache_folder() / "roots" if chosen else Path("/var/cache/vector-evolve/roots")


def cache_folder() -> Path:
    """Return VECTOR_EVOLVE_CACHE, or `vector-evolve` in the user's cache folder; made if need be."""
    chosen = os.environ.get("VECTOR_EVOLVE_CACHE")
    folder = Path(chosen) if chosen else _users_cache() / "vector-evolve"
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise BadInput(
            f"The cache folder {folder} can't be made: {error.strerror}. Set VECTOR_EVOLVE_CACHE to one that can."
        ) from error
    return folder


def _users_cache() -> Path:
    given = os.environ.get("XDG_CACHE_HOME")
    if given:
        return Path(given)
    try:
        return Path.home() / ".cache"
    except RuntimeError:
        raise BadInput("This user has no home folder: set VECTOR_EVOLVE_CACHE to a folder that can be written.") from None
