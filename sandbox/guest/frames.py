"""The supervisor's end of the wire; see `supervisor.py` for what goes over it."""

from __future__ import annotations

import json
import os
import select
import struct
import time
from typing import Any

HELD_BYTES, HELD_SECONDS = 1 << 15, 0.1  # how much of its frames the host may wait for


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
    """Frames for the host. One that may wait is sent with the next ones while the host has more tests in the pipe."""

    def __init__(self) -> None:
        self._held = b""
        self._since = 0.0
        self._input = select.poll()
        self._input.register(0, select.POLLIN)

    def send(self, header: dict[str, Any], answer: bytes = b"", may_wait: bool = False) -> None:
        """Write one frame to the host, after those that wait."""
        now = time.monotonic()
        if not self._held:
            self._since = now
        text = json.dumps(header).encode()
        self._held += struct.pack(">II", len(text), len(answer)) + text + answer
        if may_wait and len(self._held) < HELD_BYTES and now - self._since < HELD_SECONDS and self._input.poll(0):
            return
        self.flush()

    def flush(self) -> None:
        """Write the frames that wait."""
        data = memoryview(self._held)
        while data:
            data = data[os.write(1, data) :]
        self._held = b""
