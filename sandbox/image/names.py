"""What a problem folder may name to have installed: packages by name, never options, addresses, paths or files."""

from __future__ import annotations

import re
from collections.abc import Iterable

from packaging.requirements import InvalidRequirement, Requirement

DEBIAN = re.compile(r"[a-z0-9][a-z0-9+.-]{1,99}")
"""Debian Policy, section 5.6.1."""

HASH = re.compile(r"--hash=[a-z0-9]{2,10}:[0-9a-f]{32,128}")
MOST_CHARACTERS, MOST_PACKAGES = 1 << 16, 200


class BadName(ValueError):
    """Something else than the name of a package; the text says what, and what is expected."""


def debian_packages(names: Iterable[str]) -> tuple[str, ...]:
    """Return names of Debian packages, sorted, each once.

    Raises:
        BadName: one is something else.
    """
    found = sorted(set(names))
    for name in found:
        if not DEBIAN.fullmatch(name):
            raise BadName(f"{name[:80]!r} is no name of a Debian package (small letters, digits, `+`, `-` and `.`)")
    if len(found) > MOST_PACKAGES:
        raise BadName(f"{len(found)} packages; at most {MOST_PACKAGES} are taken")
    return tuple(found)


def python_requirements(text: str) -> tuple[str, ...]:
    """Return the lines of a requirements file: name, extras, versions, markers and hashes.

    Raises:
        BadName: a line is something else, such as an option, an address or a path.
    """
    if len(text) > MOST_CHARACTERS:
        raise BadName(f"{len(text)} characters; at most {MOST_CHARACTERS} are taken")
    found = []
    for number, line in _lines(text):
        words = line.split()
        hashes = [word for word in words if word.startswith("--hash")]
        wanted = " ".join(word for word in words if word not in hashes)
        if wanted.startswith("-") or not all(HASH.fullmatch(one) for one in hashes):
            raise BadName(f"line {number}: {line[:80]!r}: options are not taken, only packages by name")
        try:
            requirement = Requirement(wanted)
        except InvalidRequirement as error:
            raise BadName(
                f"line {number}: {line[:80]!r} is no package with its versions ({str(error).splitlines()[0]})"
            ) from None
        if requirement.url is not None:
            raise BadName(f"line {number}: {line[:80]!r}: addresses are not taken, only packages by name")
        found.append(" ".join([str(requirement), *hashes]))
    if len(found) > MOST_PACKAGES:
        raise BadName(f"{len(found)} packages; at most {MOST_PACKAGES} are taken")
    return tuple(found)


def _lines(text: str) -> Iterable[tuple[int, str]]:
    """Yield the number and the text of each logical line, without comments."""
    begun, kept = 0, ""
    for number, line in enumerate([*text.replace("\r\n", "\n").split("\n"), ""], start=1):
        begun = begun or number
        if line.lstrip().startswith("#") and not kept:
            line = ""
        kept += re.split(r"(?:^|\s)#", line, maxsplit=1)[0]
        if line.endswith("\\"):
            kept = kept.rstrip("\\")
            continue
        if kept.strip():
            yield begun, kept.strip()
        begun, kept = 0, ""
