"""Where models, images and our own Docker engine are kept between runs."""

from __future__ import annotations

import os
from pathlib import Path


def roots_folder() -> Path:
    """Return the folder of root file systems for bubblewrap; for root, one that a user without rights can reach."""
    chosen = "VECTOR_EVOLVE_CACHE" in os.environ or os.geteuid() != 0
    return cache_folder() / "roots" if chosen else Path("/var/cache/vector-evolve/roots")


def cache_folder() -> Path:
    """Return VECTOR_EVOLVE_CACHE, or `vector-evolve` in the user's cache folder; made if need be."""
    chosen = os.environ.get("VECTOR_EVOLVE_CACHE")
    home = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    folder = Path(chosen) if chosen else home / "vector-evolve"
    folder.mkdir(parents=True, exist_ok=True)
    return folder
