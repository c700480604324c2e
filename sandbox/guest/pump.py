"""Moves a child's bytes: the host's input into it without reading it, its output into capped buffers."""

from __future__ import annotations

import contextlib
import os
import select
import struct
import time
from typing import TYPE_CHECKING

from .child import RESULT

if TYPE_CHECKING:
    from .relay import Relay

TAIL = 2000  # bytes of stderr that are kept


POLL_SECONDS = 0.004  # how often a process is looked at that no descriptor stands for


class Process:
    """A child process that has not been reaped, and the descriptor that tells its end (gVisor of 2022 has none)."""

    def __init__(self, pid: int) -> None:
        self.pid = pid
        self.descriptor: int | None = None
        with contextlib.suppress(OSError):
            self.descriptor = os.pidfd_open(pid)

    def has_ended(self) -> bool:
        """Return whether it waits to be reaped."""
        return os.waitid(os.P_PID, self.pid, os.WEXITED | os.WNOHANG | os.WNOWAIT) is not None

    def close(self) -> None:
        """Close the descriptor."""
        if self.descriptor is not None:
            os.close(self.descriptor)


class Pump:
    """The pipes of one child. The supervisor's descriptors up to `RESULT` must be taken, so that no pipe lies there.

    Args:
        size: bytes of input that the host has announced on descriptor 0.
        caps: bytes that may come on stdout, stderr and the report.
        keep_open: leave the child's input open when `size` bytes are through.
    """

    def __init__(self, size: int, caps: list[int], keep_open: bool = False) -> None:
        self.remaining = size
        self.keep_open = keep_open
        self.input_read, writer = os.pipe()
        self.input_write: int | None = writer
        os.set_blocking(writer, False)
        self.pipes = [os.pipe() for _ in caps]
        self.caps = dict(zip((reader for reader, _ in self.pipes), caps, strict=True))
        self.buffers = {reader: bytearray() for reader in self.caps}
        self.totals = dict.fromkeys(self.caps, 0)
        for reader in self.caps:
            os.set_blocking(reader, False)

    def become_child(self) -> None:
        """Give the child its four descriptors and nothing else."""
        os.dup2(self.input_read, 0)
        for target, (_, writer) in enumerate(self.pipes, start=1):
            os.dup2(writer, target)
        os.closerange(RESULT + 1, 1024)

    def become_parent(self) -> None:
        """Keep the other ends."""
        os.close(self.input_read)
        for _, writer in self.pipes:
            os.close(writer)

    def run(self, process: Process, deadline: float, relay: Relay | None = None) -> str | None:
        """Pump until the child ends (returns None), the deadline passes ('timeout') or a cap bursts ('output').

        With `keep_open` also until a whole reply is there ('reply'). A relay is served meanwhile, and has the host's stream
        to itself once the input is through. Ends this process when the host hangs up, so that nothing outlives it.
        """
        waiting_for_host = True
        while True:
            if self.keep_open and (announced := self.announced()) is not None:
                reader = self.pipes[2][0]
                if announced > self.caps.get(reader, announced):
                    return "output"
                if len(self.buffers[reader]) >= announced:
                    return "reply"
            poll = select.poll()
            if process.descriptor is not None:
                poll.register(process.descriptor, select.POLLIN)
            elif process.has_ended():
                return "output" if self.drain() else None
            poll.register(0, 0)  # tells when the host hangs up, whatever else is asked
            for reader in self.caps:
                poll.register(reader, select.POLLIN)
            if self.remaining and self.input_write is not None:
                if waiting_for_host:
                    poll.register(0, select.POLLIN)
                else:
                    poll.register(self.input_write, select.POLLOUT)
            else:
                if not self.keep_open:
                    self.close_input()
                if relay is not None and not self.remaining:
                    relay.register(poll)
            left = deadline - time.monotonic()
            if left <= 0:
                return "timeout"
            wait = left if process.descriptor is not None else min(left, POLL_SECONDS)
            for descriptor, event in poll.poll(wait * 1000 + 1):
                if descriptor == process.descriptor:
                    return "output" if self.drain() else None
                if descriptor == 0 and event & select.POLLHUP and not event & select.POLLIN:
                    os._exit(0)
                if descriptor in self.caps:
                    if self.read(descriptor):
                        return "output"
                elif descriptor == self.input_write:
                    waiting_for_host = self.feed()
                elif descriptor == 0 and self.remaining:
                    waiting_for_host = False
                elif relay is not None:
                    relay.handle(descriptor, event)

    def feed(self) -> bool:
        """Move input kernel-side; return whether more must come from the host first."""
        assert self.input_write is not None
        try:
            moved = os.splice(0, self.input_write, self.remaining, flags=2)
            if not moved:
                os._exit(0)  # the host has hung up
            self.remaining -= moved
        except BlockingIOError:
            pass
        except BrokenPipeError:
            self.close_input()
        return True

    def close_input(self) -> None:
        """Let the child see the end of its input."""
        if self.input_write is not None:
            os.close(self.input_write)
            self.input_write = None

    def read(self, reader: int) -> bool:
        """Read what is there; return whether the stream has burst its cap. Forget the stream at its end."""
        try:
            piece = os.read(reader, 1 << 16)
        except BlockingIOError:
            return False
        if not piece:
            del self.caps[reader]
            return False
        self.totals[reader] += len(piece)
        buffer = self.buffers[reader]
        buffer += piece
        if reader == self.pipes[1][0]:
            del buffer[:-TAIL]
        return self.totals[reader] > self.caps[reader]

    def drain(self) -> bool:
        """Read what an ended child left in its pipes; return whether a stream has burst its cap."""
        burst = False
        for reader in list(self.caps):
            before = -1
            while reader in self.caps and self.totals[reader] != before and not burst:
                before = self.totals[reader]
                burst = self.read(reader)
        return burst

    def announced(self) -> int | None:
        """Return how long the report must be to hold a whole reply (u32 size and as many bytes), once that is known."""
        buffer = self.buffers[self.pipes[2][0]]
        return 4 + int(struct.unpack(">I", buffer[:4])[0]) if len(buffer) >= 4 else None

    def take_reply(self) -> bytes:
        """Return the reply that is there, and start the counts for the next one."""
        buffer, end = self.buffers[self.pipes[2][0]], self.announced()
        assert end is not None
        reply = bytes(buffer[4:end])
        del buffer[:end]
        self.totals = {reader: len(self.buffers[reader]) for reader in self.totals}
        for reader, _ in self.pipes[:2]:
            self.buffers[reader].clear()
        return reply

    def close(self) -> list[bytes]:
        """Swallow input that the child never took, close everything, return the three buffers."""
        self.close_input()
        swallow(self.remaining)
        for reader, _ in self.pipes:
            os.close(reader)
        return [bytes(self.buffers[reader]) for reader, _ in self.pipes]


def swallow(size: int) -> None:
    """Drop `size` bytes of input that nobody takes, without reading them."""
    while size:
        reader, writer = os.pipe()
        moved = os.splice(0, writer, size)
        os.close(reader)
        os.close(writer)
        if not moved:
            raise SystemExit(0)
        size -= moved
