"""What decides a score, part by part: a hash of each, so that a change can be named."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from typing import Any

MOST_NAMED = 8


def hashed(content: Any) -> str:
    """Return the SHA-256 of bytes, text, or what JSON can hold."""
    if not isinstance(content, (bytes, str)):
        content = json.dumps(content, sort_keys=True)
    return hashlib.sha256(content if isinstance(content, bytes) else content.encode("utf-8", "surrogatepass")).hexdigest()


def digest(parts: Mapping[str, str]) -> str:
    """Return one hash of all parts."""
    return hashed(dict(parts))


def differences(old: Mapping[str, str], new: Mapping[str, str]) -> list[str]:
    """Return in words what differs, such as `evaluator.py has changed`."""
    changed = [f"{name} has changed" for name in new if name in old and new[name] != old[name]]
    added = [f"{name} is new" for name in new if name not in old]
    gone = [f"{name} is gone" for name in old if name not in new]
    return changed + added + gone


def listed(differences: list[str]) -> str:
    """Return differences as one text, the first ones where they are many."""
    more = len(differences) - MOST_NAMED
    return "; ".join(differences[:MOST_NAMED]) + (f"; and {more} more" if more > 0 else "")
