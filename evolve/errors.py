"""What goes wrong with the user's input and with the machine. What a program does wrong is data, not an exception."""

from __future__ import annotations

import difflib
from collections.abc import Iterable


class EvolveError(Exception):
    """Something the user must know about; `exit_code` is the command's."""

    exit_code = 3


class BadInput(EvolveError):
    """The user gave something that cannot be used: a problem folder, an option, a run."""

    exit_code = 2


class ProblemError(BadInput):
    """A problem folder is broken; the text names the file, the place in it and what was expected."""


class DatabaseError(EvolveError):
    """`run.sqlite` cannot be read or written."""


class MutatorError(EvolveError):
    """The model server cannot be started, or stayed away for longer than the patience."""


class ContextOverflow(EvolveError):
    """A prompt is too long for the model, and can't be made shorter."""


class ModelError(EvolveError):
    """No usable model: not found, not fetched, or a file with another hash than expected."""


def nearest(name: str, known: Iterable[str]) -> str:
    """Return the end of a sentence: `; did you mean 'entry'?`, or a full stop when no known name is near."""
    close = difflib.get_close_matches(name, list(known), n=1, cutoff=0.6)
    return f"; did you mean {close[0]!r}?" if close else "."
