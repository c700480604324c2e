"""What a child writes, passed on to the host inside the kernel: this process, which children inherit, never reads it."""

from __future__ import annotations

import contextlib
import fcntl
import os
import struct
from collections.abc import Iterator

CHUNK = 1 << 20
FIONREAD = 0x541B
NONBLOCK = 2  # SPLICE_F_NONBLOCK
Piece = tuple[int, int | None, int]
"""Bytes to pass on: descriptor, offset in it (None for a pipe), count."""


class Spool:
    """The bytes of one pipe: they stay in it, and move to a file in memory where they are too many for it.

    Args:
        cap: bytes that may come.
    """

    def __init__(self, cap: int) -> None:
        self.reader, self.writer = os.pipe()
        self._cap = cap
        self._file = -1
        self._filed = 0

    def take(self) -> bool:
        """Make room in the pipe; return whether more than the cap has come."""
        if self._file < 0:
            self._file = os.memfd_create("spool")
        with contextlib.suppress(BlockingIOError):
            self._filed += os.splice(self.reader, self._file, CHUNK, offset_dst=self._filed, flags=NONBLOCK)
        return self._filed > self._cap

    @property
    def size(self) -> int:
        """Bytes that have come."""
        return self._filed + self._waiting()

    def burst(self) -> bool:
        """Return whether more than the cap has come."""
        return self.size > self._cap

    def last(self, count: int) -> Iterator[Piece]:
        """Yield where the last `count` bytes lie, once nobody writes any more; to be passed on one after the other."""
        skip = max(0, self.size - count)
        if skip < self._filed:
            yield self._file, skip, self._filed - skip
        elif skip > self._filed:
            drop(self.reader, skip - self._filed)
        if waiting := self._waiting():
            yield self.reader, None, waiting

    def bytes(self) -> bytes:
        """Return all bytes: for a build, whose output is the program's own business and no test's."""
        kept = os.pread(self._file, self._filed, 0) if self._filed else b""
        while waiting := self._waiting():
            kept += os.read(self.reader, waiting)
        return kept

    def clear(self) -> None:
        """Forget what has come so far."""
        drop(self.reader, self._waiting())
        if self._file >= 0:
            os.ftruncate(self._file, 0)
        self._filed = 0

    def close(self) -> None:
        """Forget everything."""
        for descriptor in (self.reader, self.writer, self._file):
            if descriptor >= 0:
                os.close(descriptor)

    def _waiting(self) -> int:
        return int(struct.unpack("=i", fcntl.ioctl(self.reader, FIONREAD, b"\0\0\0\0"))[0])


class Replies:
    """Replies of a program that answers calls, one after the other: u32 size and as many bytes. These are read here.

    Args:
        cap: bytes that a reply may have.
    """

    def __init__(self, cap: int) -> None:
        self.reader, self.writer = os.pipe()
        self._cap = cap
        self._buffer = bytearray()

    def take(self) -> bool:
        """Read what is there; return whether more has come than one reply may be."""
        self._buffer += os.read(self.reader, 1 << 16)
        return self.burst()

    @property
    def size(self) -> int:
        """Bytes that have come."""
        return len(self._buffer)

    def burst(self) -> bool:
        """Return whether more has come, or is announced, than one reply may be."""
        announced = self._announced()
        return len(self._buffer) > self._cap or (announced is not None and announced > self._cap)

    def is_whole(self) -> bool:
        """Return whether a reply is there."""
        announced = self._announced()
        return announced is not None and len(self._buffer) >= announced

    def reply(self) -> bytes:
        """Return the reply that is there."""
        end = self._announced()
        assert end is not None
        reply = bytes(self._buffer[4:end])
        del self._buffer[:end]
        return reply

    def last(self, count: int) -> Iterator[Piece]:
        """See `Spool.last`: a reply that is not whole is nothing."""
        del count
        return iter(())

    def close(self) -> None:
        """Forget everything."""
        os.close(self.reader)
        os.close(self.writer)

    def _announced(self) -> int | None:
        return 4 + int(struct.unpack(">I", self._buffer[:4])[0]) if len(self._buffer) >= 4 else None


def drop(reader: int, count: int) -> None:
    """Let bytes of a pipe go, without reading them."""
    if not count:
        return
    nowhere = os.open("/dev/null", os.O_WRONLY)
    while count:
        count -= os.splice(reader, nowhere, count)
    os.close(nowhere)
