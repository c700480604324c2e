"""Where the children of a supervisor are forked. A child inherits a copy of the memory that it is forked from.

A sandbox for one program forks in the supervisor itself (`Here`). One that is used again has a second process for that, the
zygote (`Zygote`), which was forked before the first program came and never holds anything of one: it is handed descriptors
and passes them on. That is also cheaper, because after a fork every page that is written costs its process a fault, and the
zygote writes few.
"""

from __future__ import annotations

import _socket  # what `socket` adds takes long to import
import contextlib
import gc
import json
import os
import select
import signal
import struct
import sys
import time
from typing import Any, NamedTuple, Protocol

from . import child
from .machine import Machine, MemoryKiller

PR_SET_CHILD_SUBREAPER = 36
ENDED = struct.Struct("=iidd")  # exit status, survivors, CPU seconds of what was reaped, of the zygote
FORK, FORK_WITH_NUMPY, KILL = b"f", b"n", b"k"
Task = dict[str, Any]
"""What a child is to do and how it is bound; see `child.begin`."""


class End(NamedTuple):
    """How a child ended.

    Attributes:
        status: as `wait4` gives it.
        survivors: processes that outlived the child.
        reaped: CPU seconds of the child and of them.
        others: CPU seconds of a process of ours that forked it.
    """

    status: int
    survivors: int
    reaped: float
    others: float


class Process(Protocol):
    """A child that has not been reaped.

    Attributes:
        descriptor: readable once `has_ended` may have something to say; None where there is no such descriptor.
    """

    descriptor: int | None

    def has_ended(self) -> bool:
        """Return whether the child has ended. Does not wait."""
        ...

    def finish(self, kill: bool) -> End:
        """Wait for the child's end, by force if asked, and end what it started."""
        ...


class Forks(Protocol):
    """Starts children, one at a time."""

    def start(self, task: Task, ends: list[int]) -> Process:
        """Start a child with its ends of the pipes as descriptors 0 to 3, and no other."""
        ...

    def expect_numpy(self) -> None:
        """Have numpy imported before the next fork."""
        ...


class Here:
    """Forks in this process."""

    def __init__(self, machine: Machine, killer: MemoryKiller):
        self._machine = machine
        self._killer = killer

    def start(self, task: Task, ends: list[int]) -> Process:
        """See `Forks.start`."""
        with self._killer.takes_children():
            pid = os.fork()
            if pid == 0:
                child.begin(task, ends)
        return Own(pid, self._machine)

    def expect_numpy(self) -> None:
        """See `Forks.expect_numpy`."""
        preload()


class Own:
    """A child of this process; see `Process`. gVisor of 2022 has no descriptor for it."""

    def __init__(self, pid: int, machine: Machine):
        self._pid = pid
        self._machine = machine
        self.descriptor: int | None = None
        with contextlib.suppress(OSError):
            self.descriptor = os.pidfd_open(pid)

    def has_ended(self) -> bool:
        """See `Process.has_ended`."""
        return os.waitid(os.P_PID, self._pid, os.WEXITED | os.WNOHANG | os.WNOWAIT) is not None

    def finish(self, kill: bool) -> End:
        """See `Process.finish`."""
        if self.descriptor is not None:
            os.close(self.descriptor)
        if kill:
            os.kill(self._pid, signal.SIGKILL)
        return end(self._pid, self._machine)


class Zygote:
    """Forks in a process of its own, which this starts. When that is gone, this process ends.

    Args:
        machine: what children have in common.
    """

    def __init__(self, machine: Machine):
        self._channel, other = _socket.socketpair(_socket.AF_UNIX, _socket.SOCK_SEQPACKET)
        if os.fork() == 0:
            try:
                self._channel.close()
                serve(other, machine)
            finally:
                os._exit(1)
        other.close()
        self._task: Task | None = None
        self._file = -1
        self._word = FORK

    def start(self, task: Task, ends: list[int]) -> Process:
        """See `Forks.start`."""
        if task is not self._task:
            if self._file >= 0:
                os.close(self._file)
            self._file = os.memfd_create("task")
            left = memoryview(json.dumps(task).encode())
            while left:
                left = left[os.write(self._file, left) :]
            self._task = task
        descriptors = struct.pack("=5i", *ends, self._file)
        self._channel.sendmsg([self._word], [(_socket.SOL_SOCKET, _socket.SCM_RIGHTS, descriptors)])
        return Foster(self._channel)

    def expect_numpy(self) -> None:
        """See `Forks.expect_numpy`. It stays there: the next program of this sandbox will want it, too."""
        self._word = FORK_WITH_NUMPY


class Foster:
    """A child of the zygote; see `Process`."""

    def __init__(self, channel: _socket.socket):
        self._channel = channel
        self.descriptor: int | None = channel.fileno()

    def has_ended(self) -> bool:
        """See `Process.has_ended`; asked when the zygote has something to say, which is nothing else."""
        return True

    def finish(self, kill: bool) -> End:
        """See `Process.finish`."""
        if kill:
            self._channel.send(KILL)
        message = self._channel.recv(ENDED.size)
        if not message:
            raise SystemExit(1)
        return End(*ENDED.unpack(message))


def serve(channel: _socket.socket, machine: Machine) -> None:
    """Fork a child for each message until the supervisor is gone."""
    child.libc.prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
    killer = MemoryKiller()
    told = time.process_time()
    while True:
        word, ancillary, _, _ = channel.recvmsg(1, 64)
        if not word:
            return
        if word == KILL:
            continue  # its child had just ended
        if word == FORK_WITH_NUMPY:
            preload()
        *ends, file = struct.unpack("=5i", ancillary[0][2])
        with killer.takes_children():
            pid = os.fork()
            if pid == 0:
                channel.detach()  # its number may be a file of the program's when the interpreter ends
                child.begin(json.loads(os.pread(file, os.fstat(file).st_size, 0)), ends)
        for descriptor in (*ends, file):
            os.close(descriptor)
        wait(pid, channel)
        ended = end(pid, machine)
        before, told = told, time.process_time()
        channel.send(ENDED.pack(ended.status, ended.survivors, ended.reaped, told - before))


def wait(pid: int, channel: _socket.socket) -> None:
    """Wait for a child's end, and kill it when the supervisor says so."""
    process = os.pidfd_open(pid)
    poll = select.poll()
    poll.register(process, select.POLLIN)
    poll.register(channel.fileno(), select.POLLIN)
    if process not in dict(poll.poll()):
        os.kill(pid, signal.SIGKILL)  # KILL, or the end of the supervisor
    os.close(process)


def end(pid: int, machine: Machine) -> End:
    """Wait for a child of this process and end what it started; see `Process.finish`."""
    _, status, usage = os.wait4(pid, 0)
    survivors, seconds = machine.kill_all()
    return End(status, survivors, usage.ru_utime + usage.ru_stime + seconds, 0.0)


def preload() -> None:
    """Import numpy, so that a test which imports it finds it there: 4 ms instead of 60, and a fork costs twice as much."""
    if "numpy" not in sys.modules:
        with contextlib.suppress(ImportError):
            import numpy
            import numpy.linalg
            import numpy.random  # noqa: F401
        gc.freeze()
