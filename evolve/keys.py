"""Which key a model server gets. Keys of the environment go only where the user sends them, never where a folder says."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Sequence
from pathlib import Path
from urllib.parse import urlsplit

from evolve.cache import cache_folder

VARIABLE = "OPENAI_API_KEY"
NONE = "none"
_REFERENCE = re.compile(r"\$\{(\w+)\}")


def key_for(
    url: str, is_named: bool, config_key: str | None, allowed: Sequence[str], say: Callable[[str], None] = lambda _: None
) -> str:
    """Return the key for requests to a server.

    Args:
        url: of the server.
        is_named: whether the user named it on the command line; else a problem folder's config did.
        config_key: of that config: a key, or `${NAME}` for one of the environment.
        allowed: names of variables of the environment that the folder's config and its servers may have (`--allow-env`).
        say: told what is not sent.
    """
    kept = _kept(url) if is_named else None
    if kept is not None:
        return kept
    own = os.environ.get(VARIABLE)
    if own and (is_named or VARIABLE in allowed or _same_host(url, os.environ.get("OPENAI_BASE_URL"))):
        return own
    if own:
        say(f"{VARIABLE} is not sent to {urlsplit(url).netloc}, which the problem folder names; --allow-env {VARIABLE} does")
    reference = _REFERENCE.search(config_key or "")
    if reference is None:
        return config_key or NONE
    name = reference[1]
    if name not in allowed or reference[0] != config_key:
        say(f"the config asks for the variable {name} of the environment as its key; --allow-env {name} gives it")
        return NONE
    return os.environ.get(name) or NONE


def keep(port: int, key: str) -> Path:
    """Keep the key of a server of ours on this machine, for its user's commands alone; return the file."""
    path = cache_folder() / "keys" / str(port)
    path.parent.mkdir(mode=0o700, exist_ok=True)
    path.unlink(missing_ok=True)
    with os.fdopen(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w") as file:
        file.write(key)
    return path


def _kept(url: str) -> str | None:
    """Return the key of a server that `evolve mutator serve` has started here."""
    place = urlsplit(url)
    if place.hostname not in ("127.0.0.1", "localhost", "::1") or place.port is None:
        return None
    path = cache_folder() / "keys" / str(place.port)
    return path.read_text(encoding="utf-8") if path.is_file() and path.stat().st_uid == os.geteuid() else None


def _same_host(url: str, other: str | None) -> bool:
    if not other:
        return False
    one, two = urlsplit(url), urlsplit(other)
    return (one.scheme, one.netloc) == (two.scheme, two.netloc)
