"""Where models, images and our own Docker engine are kept between runs."""

from __future__ import annotations

import os
from pathlib import Path


def cache_folder() -> Path:
    """Return VECTOR_EVOLVE_CACHE, or `vector-evolve` in the user's cache folder; made if need be."""
    chosen = os.environ.get("VECTOR_EVOLVE_CACHE")
    home = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    folder = Path(chosen) if chosen else home / "vector-evolve"
    folder.mkdir(parents=True, exist_ok=True)
    return folder
