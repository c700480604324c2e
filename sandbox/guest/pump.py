"""Moves a child's bytes: the host's input into it, its output into capped spools, neither read on the way."""

from __future__ import annotations

import os
import select
import time
from typing import TYPE_CHECKING

from .spool import Replies, Spool

if TYPE_CHECKING:
    from .forks import Forks, Process, Task
    from .machine import Meter
    from .relay import Relay

QUIET_SECONDS = 0.01
POLL_SECONDS = 0.004  # how often a process is looked at that no descriptor stands for


class Pump:
    """The pipes of one child. The supervisor's descriptors up to `RESULT` must be taken, so that no pipe lies there.

    Args:
        size: bytes of input that the host has announced on descriptor 0.
        caps: bytes that may come on stdout, stderr and the report.
        answers_calls: leave the child's input open when `size` bytes are through, and read its report as replies.
    """

    def __init__(self, size: int, caps: tuple[int, int, int], answers_calls: bool = False) -> None:
        self.remaining = size
        self.fed_at = 0.0
        self.input_read, writer = os.pipe()
        self.input_write: int | None = writer
        os.set_blocking(writer, False)
        self.replies = Replies(caps[2]) if answers_calls else None
        self.out, self.err = Spool(caps[0]), Spool(caps[1])
        self.report = self.replies or Spool(caps[2])
        self.spools: dict[int, Spool | Replies] = {spool.reader: spool for spool in (self.out, self.err, self.report)}
        if size:
            self.feed()  # what is there already, before the fork: afterwards every page that is written costs a fault
        if not self.remaining and not answers_calls:
            self.close_input()

    def start(self, forks: Forks, task: Task) -> Process:
        """Start the child that these pipes are for. Their writing ends stay open here, so that no stream's end wakes us."""
        process = forks.start(task, [self.input_read, *(spool.writer for spool in self.spools.values())])
        os.close(self.input_read)
        return process

    def run(self, process: Process, deadline: float, meter: Meter, relay: Relay | None = None) -> str | None:
        """Pump until the child ends (returns None), a limit is met ('timeout', 'cpu') or a cap bursts ('output').

        Of a child that answers calls also until a whole reply is there ('reply'). A relay is served meanwhile, and has the
        host's stream to itself once the input is through. Ends this process when the host hangs up, so that nothing outlives
        it.
        """
        waiting_for_host = True
        poll: select.poll | None = None
        feeding = False
        look = 0.0  # when the CPU time is looked at next: it can't be used up before
        if not self.remaining and self.replies is None and relay is None and self.ended_at_once(process):
            return None
        while True:
            if self.replies is not None:
                if self.replies.burst():
                    return "output"
                if self.replies.is_whole():
                    return "reply"
            if process.descriptor is None and process.has_ended():
                return None
            if poll is None or feeding or relay is not None:
                poll = self.watch(process, waiting_for_host, relay)
                feeding = self.remaining > 0 and self.input_write is not None
            now = time.monotonic()
            if now >= deadline:
                return "timeout"
            if now >= look:
                seconds = meter.until_spent()
                if seconds <= 0:
                    return "cpu"
                look = now + seconds
            wait = min(deadline, look) - now
            if process.descriptor is None:
                wait = min(wait, POLL_SECONDS)
            for descriptor, event in poll.poll(wait * 1000 + 1):
                if descriptor == process.descriptor:
                    if process.has_ended():
                        return None
                elif descriptor == 0 and event & select.POLLHUP and not event & select.POLLIN:
                    os._exit(0)
                elif descriptor in self.spools:
                    if self.spools[descriptor].take():
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
        for reader in self.spools:
            poll.register(reader, select.POLLIN)
        if self.remaining and self.input_write is not None:
            if waiting_for_host:
                poll.register(0, select.POLLIN)
            else:
                poll.register(self.input_write, select.POLLOUT)
        else:
            if self.replies is None:
                self.close_input()
            if relay is not None and not self.remaining:
                relay.register(poll)
        return poll

    def feed(self) -> bool:
        """Move input kernel-side; return whether more must come from the host first."""
        assert self.input_write is not None
        started = time.monotonic()  # before: who is fed may run first
        try:
            moved = os.splice(0, self.input_write, self.remaining, flags=2)
            if not moved:
                os._exit(0)  # the host has hung up
            self.remaining -= moved
            self.fed_at = started
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

    def take_reply(self) -> bytes:
        """Return the reply that is there; what was printed beside it is forgotten."""
        assert self.replies is not None
        self.out.clear()
        self.err.clear()
        return self.replies.reply()

    def settle(self) -> bool:
        """Swallow input that the child never took; return whether one of its streams has burst its cap."""
        self.close_input()
        swallow(self.remaining)
        self.remaining = 0
        return any(spool.burst() for spool in self.spools.values())

    def close(self) -> None:
        """Forget what came."""
        for spool in self.spools.values():
            spool.close()


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
