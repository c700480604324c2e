"""Text that others wrote, made visible before a terminal or a log gets it: what would steer either is shown as an escape."""

from __future__ import annotations

import unicodedata

KEPT = "\n\t"
_STEERS = {"Cc", "Cf", "Cs", "Zl", "Zp", "Co", "Cn"}
"""Categories of characters that control a terminal, change the direction of text, or can't be seen."""


def visible(text: str) -> str:
    """Return text in which control characters, marks of direction and lone surrogates are written as escapes."""
    if text.isascii() and text.isprintable():
        return text
    return "".join(one if one in KEPT or unicodedata.category(one) not in _STEERS else _escaped(one) for one in text)


def _escaped(one: str) -> str:
    return one.encode("unicode_escape").decode("ascii")
