"""The evaluator's side of a separated candidate: its functions, each a call that leaves this sandbox.

A connection is one instance of the candidate in another sandbox. It is used by one thread at a time: where a call is still
under way (as after an evaluator's own time-out), the next call gets a new instance.
"""

from __future__ import annotations

import builtins
import os
import socket
import struct
import threading
from typing import Any

from . import clock
from .notes import note
from .values import checked, decode, encode

SOCKET = "/tmp/candidate.sock"
STUB = """\
# This stands for the candidate, which runs in a sandbox of its own: each call of a function leaves this one.
import sys as _sys

_sys.path.insert(0, {home!r})
from guest.calls import Candidate as _Candidate

_sys.path.remove({home!r})
globals().update(_Candidate({checked!r}).names())
"""


CONTROL = (StopIteration, StopAsyncIteration)
"""What Python takes for the end of something: a candidate that raises it would end an evaluator's loop without a word."""


class Candidate:
    """The candidate of this evaluation. Pickles and forks become new instances.

    Args:
        is_checked: whether its values go through `values.checked`.
    """

    def __init__(self, is_checked: bool = True) -> None:
        self._is_checked = is_checked
        self._idle: list[socket.socket] = []
        self._owner = os.getpid()
        self._lock = threading.Lock()

    def __reduce__(self) -> tuple[type[Candidate], tuple[bool]]:
        return Candidate, (self._is_checked,)

    def names(self) -> dict[str, Any]:
        """Return the program's functions and plain data. Raises what its import raised."""
        found = self.ask({"op": "names"})
        return {
            name: RemoteFunction(self, name) if kind == "function" else value[0] for name, (kind, *value) in found.items()
        }

    def ask(self, request: dict[str, Any]) -> Any:
        """Return the candidate's value for a request.

        Raises:
            Exception: of the built-in kind that the candidate raised, else RuntimeError; always that for what ends loops
                and processes.
            ValueError: the candidate returned what `values.checked` refuses.
            TypeError: an argument or a value can't cross; the text says which kind.
        """
        started, spent = clock.real(), 0.0
        data = encode(request)
        connection = self._take()
        try:
            connection.sendall(struct.pack(">I", len(data)) + data)
            size = struct.unpack(">I", self._read(connection, 4))[0]
            (spent,) = struct.unpack(">d", self._read(connection, 8))
            reply = decode(self._read(connection, size - 8))
        except BaseException:
            connection.close()
            raise
        finally:
            clock.charge(clock.real() - started, spent)
        with self._lock:
            self._idle.append(connection)
        if type(reply) is dict and "value" in reply:
            return checked(reply["value"]) if self._is_checked else reply["value"]
        if type(reply) is dict and "unsupported" in reply:
            raise TypeError(str(reply["unsupported"]))
        name, text = reply["error"]
        kind = getattr(builtins, str(name), RuntimeError)
        if not (isinstance(kind, type) and issubclass(kind, Exception)) or issubclass(kind, CONTROL):
            kind, text = RuntimeError, f"the candidate raised {name}: {text}"
        try:
            error = kind(str(text))
        except TypeError:  # such as UnicodeDecodeError, which wants more than a text
            error = RuntimeError(f"{name}: {text}")
        note(f"the candidate raised {name}: {text}")
        raise error

    def _take(self) -> socket.socket:
        with self._lock:
            if self._owner != os.getpid():
                self._owner, self._idle = os.getpid(), []
            if self._idle:
                return self._idle.pop()
        connection = socket.socket(socket.AF_UNIX)
        connection.connect(SOCKET)
        return connection

    @staticmethod
    def _read(connection: socket.socket, size: int) -> bytes:
        data = bytearray()
        while len(data) < size:
            piece = connection.recv(min(1 << 20, size - len(data)))
            if not piece:
                raise RuntimeError("the candidate's sandbox is gone")
            data += piece
        return bytes(data)


class RemoteFunction:
    """A function of the candidate."""

    def __init__(self, candidate: Candidate, name: str):
        self._candidate = candidate
        self.__name__ = self.__qualname__ = name

    def __call__(self, *args: Any, **keywords: Any) -> Any:
        return self._candidate.ask({"op": "call", "name": self.__name__, "args": list(args), "keywords": keywords})

    def __repr__(self) -> str:
        return f"<function {self.__name__} of a candidate in a sandbox of its own>"
