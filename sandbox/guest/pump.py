"""Moves a child's bytes: the host's input into it without reading it, its output into capped buffers."""

from __future__ import annotations

import contextlib
import os
import select
import struct
import time
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from .forks import Forks, Process, Task
    from .relay import Relay

TAIL = 2000  # bytes of stderr that are kept
QUIET_SECONDS = 0.01
POLL_SECONDS = 0.004  # how often a process is looked at that no descriptor stands for


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
        reader, writer = os.pipe()
        self.input_write: int | None = writer
        os.set_blocking(writer, False)
        pipes = [os.pipe() for _ in caps]
        self.readers = [read for read, _ in pipes]
        self.input_read = reader
        self.writers = [write for _, write in pipes]  # open to the end, so that the end of a stream wakes nobody
        self.caps = dict(zip(self.readers, caps, strict=True))
        self.buffers = {read: bytearray() for read in self.readers}
        self.totals = dict.fromkeys(self.readers, 0)
        if size:
            self.feed()  # what is there already, before the fork: afterwards every page that is written costs a fault
        if not self.remaining and not keep_open:
            self.close_input()

    def start(self, forks: Forks, task: Task) -> Process:
        """Start the child that these pipes are for."""
        process = forks.start(task, [self.input_read, *self.writers])
        os.close(self.input_read)
        return process

    def run(self, process: Process, deadline: float, relay: Relay | None = None) -> str | None:
        """Pump until the child ends (returns None), the deadline passes ('timeout') or a cap bursts ('output').

        With `keep_open` also until a whole reply is there ('reply'). A relay is served meanwhile, and has the host's stream
        to itself once the input is through. Ends this process when the host hangs up, so that nothing outlives it.
        """
        waiting_for_host = True
        poll: select.poll | None = None
        feeding = False
        if not self.remaining and not self.keep_open and relay is None and self.ended_at_once(process):
            return None
        while True:
            if self.keep_open and (announced := self.announced()) is not None:
                reader = self.readers[2]
                if announced > self.caps[reader]:
                    return "output"
                if len(self.buffers[reader]) >= announced:
                    return "reply"
            if process.descriptor is None and process.has_ended():
                return None
            if poll is None or feeding or relay is not None:
                poll = self.watch(process, waiting_for_host, relay)
                feeding = self.remaining > 0 and self.input_write is not None
            left = deadline - time.monotonic()
            if left <= 0:
                return "timeout"
            wait = left if process.descriptor is not None else min(left, POLL_SECONDS)
            for descriptor, event in poll.poll(wait * 1000 + 1):
                if descriptor == process.descriptor:
                    if process.has_ended():
                        return None
                elif descriptor == 0 and event & select.POLLHUP and not event & select.POLLIN:
                    os._exit(0)
                elif descriptor in self.totals:
                    if self.read(descriptor):
                        return "output"
                elif descriptor == self.input_write:
                    waiting_for_host = self.feed()
                elif descriptor == 0 and self.remaining:
                    waiting_for_host = False
                elif relay is not None:
                    relay.handle(descriptor, event)

    @staticmethod
    def ended_at_once(process: Process) -> bool:
        """Wait a little for the end alone: most tests are short, and what they write need not wake this process."""
        if process.descriptor is None:
            return False
        poll = select.poll()
        poll.register(process.descriptor, select.POLLIN)
        return bool(poll.poll(QUIET_SECONDS * 1000))

    def watch(self, process: Process, waiting_for_host: bool, relay: Relay | None) -> select.poll:
        """Return what to wait for."""
        poll = select.poll()
        if process.descriptor is not None:
            poll.register(process.descriptor, select.POLLIN)
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
        return poll

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
        """Read what is there; return whether the stream has burst its cap."""
        piece = os.read(reader, 1 << 16)
        self.totals[reader] += len(piece)
        buffer = self.buffers[reader]
        buffer += piece
        if reader == self.readers[1]:
            del buffer[:-TAIL]
        return self.totals[reader] > self.caps[reader]

    def drain(self) -> bool:
        """Read what a child left in its pipes that has ended; return whether a stream has burst its cap."""
        burst = False
        for reader in self.readers:
            os.set_blocking(reader, False)
            before = -1
            while self.totals[reader] != before and not burst:
                before = self.totals[reader]
                with contextlib.suppress(BlockingIOError):
                    burst = self.read(reader)
        return burst

    def announced(self) -> int | None:
        """Return how long the report must be to hold a whole reply (u32 size and as many bytes), once that is known."""
        buffer = self.buffers[self.readers[2]]
        return 4 + int(struct.unpack(">I", buffer[:4])[0]) if len(buffer) >= 4 else None

    def take_reply(self) -> bytes:
        """Return the reply that is there, and start the counts for the next one."""
        buffer, end = self.buffers[self.readers[2]], self.announced()
        assert end is not None
        reply = bytes(buffer[4:end])
        del buffer[:end]
        self.totals = {reader: len(self.buffers[reader]) for reader in self.totals}
        for reader in self.readers[:2]:
            self.buffers[reader].clear()
        return reply

    def close(self) -> list[bytes]:
        """Swallow input that the child never took, close everything, return the three buffers."""
        self.close_input()
        swallow(self.remaining)
        for descriptor in (*self.readers, *self.writers):
            os.close(descriptor)
        return [bytes(self.buffers[reader]) for reader in self.readers]


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
