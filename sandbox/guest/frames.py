"""The supervisor's end of the wire; see `supervisor.py` for what goes over it."""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import select
import struct
import time
from collections.abc import Sequence
from typing import Any

from .spool import NONBLOCK, Replies, Spool

HELD_BYTES, HELD_SECONDS = 1 << 15, 0.1  # how much of its frames the host may wait for
PIPE_BYTES = 1 << 18
Part = tuple[Spool | Replies, int]
"""What came out of a child, and how many of its last bytes the host gets."""


def read_exactly(size: int) -> bytes:
    """Read `size` bytes from the host, or end with it."""
    data = b""
    while len(data) < size:
        piece = os.read(0, size - len(data))
        if not piece:
            raise SystemExit(0)
        data += piece
    return data


class Frames:
    """Frames for the host, collected in a pipe. One that may wait goes with the next ones while the host has more tests."""

    def __init__(self) -> None:
        self._reader, self._writer = os.pipe()
        os.set_blocking(self._writer, False)
        with contextlib.suppress(OSError):  # the user's share of pipes is used up: a small one does as well
            fcntl.fcntl(self._writer, fcntl.F_SETPIPE_SZ, PIPE_BYTES)
        self._held = 0
        self._since = 0.0
        self._input = select.poll()
        self._input.register(0, select.POLLIN)

    def send(self, header: dict[str, Any], answer: bytes = b"", may_wait: bool = False, parts: Sequence[Part] = ()) -> None:
        """Write one frame to the host, after those that wait.

        Args:
            header: what is said of the answer.
            answer: bytes of ours.
            may_wait: whether the host can do without this frame for a moment.
            parts: what follows the answer, and is passed on unread; the header's `parts` says how much each is.
        """
        now = time.monotonic()
        if not self._held:
            self._since = now
        sizes = [count for _, count in parts]
        text = json.dumps(header | {"parts": sizes} if parts else header).encode()
        self._write(struct.pack(">II", len(text), len(answer) + sum(sizes)) + text + answer)
        for spool, count in parts:
            if count:
                for piece in spool.last(count):
                    self._pass(*piece)
        if may_wait and self._held < HELD_BYTES and now - self._since < HELD_SECONDS and self._input.poll(0):
            return
        self.flush()

    def flush(self) -> None:
        """Let the frames that wait go."""
        while self._held:
            self._held -= os.splice(self._reader, 1, self._held)

    def _write(self, data: bytes) -> None:
        left = memoryview(data)
        while left:
            try:
                written = os.write(self._writer, left)
            except BlockingIOError:
                self.flush()
                continue
            self._held += written
            left = left[written:]

    def _pass(self, source: int, offset: int | None, count: int) -> None:
        while count:
            try:
                moved = os.splice(source, self._writer, count, offset_src=offset, flags=NONBLOCK)
            except BlockingIOError:
                self.flush()
                continue
            self._held += moved
            count -= moved
            offset = None if offset is None else offset + moved
