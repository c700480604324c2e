"""What all children of a supervisor share, and the steps that would be destructive outside a sandbox."""

from __future__ import annotations

import contextlib
import os
import resource
import signal
import time
from collections.abc import Iterator

SCRATCH = "/tmp"
SHARED = "/dev/shm"
"""Where a child may leave files: both are emptied after it."""

ROOTS = (SCRATCH, SHARED, "/dev/pts", "/dev")
"""Mounts whose own mode and attributes a child may change where they belong to its user."""

LOOK_SECONDS = 0.02  # how often the CPU time of a running child is looked at, at the most
OOM_SCORE_ADJ = "/proc/self/oom_score_adj"


class Counter:
    """A number that the container's control group keeps, of version 1 or 2.

    Args:
        places: files that may hold it, the word before it (empty where it stands alone), and what one of it is.
    """

    def __init__(self, places: list[tuple[str, str, float]]) -> None:
        self._file: int | None = None
        for path, word, unit in places:
            with contextlib.suppress(OSError):
                self._file = os.open(path, os.O_RDONLY)
                self._word, self._unit = word.encode(), unit
                break

    def read(self) -> float | None:
        """Return the number, or None where there is no such group."""
        if self._file is None:
            return None
        text = b"\n" + os.pread(self._file, 4096, 0)
        _, _, rest = text.partition(b"\n" + self._word)
        return float(rest.split(maxsplit=1)[0]) * self._unit if rest.strip() else None


def cpu_seconds() -> Counter:
    """Return the counter of CPU seconds."""
    return Counter(
        [
            ("/sys/fs/cgroup/cpuacct/cpuacct.usage", "", 1e-9),
            ("/sys/fs/cgroup/cpu,cpuacct/cpuacct.usage", "", 1e-9),
            ("/sys/fs/cgroup/cpu.stat", "usage_usec ", 1e-6),
        ]
    )


class OomKills:
    """How often the kernel killed a process of this container for memory."""

    def __init__(self) -> None:
        self._counter = Counter(
            [("/sys/fs/cgroup/memory/memory.oom_control", "oom_kill ", 1), ("/sys/fs/cgroup/memory.events", "oom_kill ", 1)]
        )
        self.counted = self._counter.read() is not None
        self._seen = self._counter.read() or 0.0

    def more(self) -> bool:
        """Return whether there were more since the last call."""
        before, self._seen = self._seen, self._counter.read() or 0.0
        return self._seen > before


class Meter:
    """CPU time of one child and all that it starts: the container's since now, without that of this process.

    What a process reaps can be forged: a child whose parent ignores SIGCHLD is never reaped and appears in nobody's times.
    So the control group is asked. Where there is none, what was reaped has to do.

    Args:
        counter: of the container's CPU seconds.
        limit: of the child, in seconds.
    """

    def __init__(self, counter: Counter, limit: float) -> None:
        self._counter = counter
        self._limit = limit
        self._mine = time.process_time()  # asked first: that brings the group's number up to date
        self._start = counter.read()

    def until_spent(self) -> float:
        """Return for how many seconds the limit can't be met; 0 or less when it is."""
        if self._start is None:
            return float("inf")
        left = self._limit - self._used()
        return max(LOOK_SECONDS, left / (os.cpu_count() or 1)) if left > 0 else 0.0

    def total(self, reaped: float, others: float) -> float:
        """Return the CPU seconds in all.

        Args:
            reaped: CPU seconds of the processes that were reaped.
            others: CPU seconds of other processes of ours, which don't count.
        """
        return reaped if self._start is None else max(0.0, self._used() - others)

    def _used(self) -> float:
        mine = time.process_time() - self._mine
        assert self._start is not None
        return (self._counter.read() or self._start) - self._start - mine


class Machine:
    """What children have in common: the interpreter's address space in bytes, counters, the marker file."""

    def __init__(self, marker: str) -> None:
        self.marker = marker
        # Elsewhere nothing is killed or deleted: PID 1 or its zygote, our image, and /tmp a mount of its own.
        self.is_sandbox = os.getpid() == 1 and os.path.exists(marker) and os.path.ismount(SCRATCH)
        mine = os.geteuid()
        found = {path: os.stat(path) for path in ROOTS if os.path.isdir(path)}
        self._modes = {path: one.st_mode & 0o7777 for path, one in found.items() if mine and one.st_uid == mine}
        self.kills = OomKills()
        self.cpu = cpu_seconds()
        with open("/proc/self/statm", encoding="utf-8") as statm:
            self.space = int(statm.read().split()[0]) * resource.getpagesize()

    def meter(self, limit: float) -> Meter:
        """Return what measures the next child."""
        return Meter(self.cpu, limit)

    def kill_all(self) -> tuple[int, float]:
        """Kill every other process of this PID namespace but PID 1; return how many were reaped, and their CPU seconds."""
        survivors, seconds = 0, 0.0
        while self.is_sandbox:
            with contextlib.suppress(ProcessLookupError):
                os.kill(-1, signal.SIGKILL)
            try:
                while True:
                    _, _, usage = os.wait4(-1, 0)
                    survivors += 1
                    seconds += usage.ru_utime + usage.ru_stime
            except ChildProcessError:
                break
        return survivors, seconds

    def clean_scratch(self) -> bool:
        """Empty the scratch mounts; return False when something resisted, so that the host throws this sandbox away."""
        if not self.is_sandbox:
            return False
        try:
            for place in (SCRATCH, SHARED) if os.path.ismount(SHARED) else (SCRATCH,):
                for entry in os.scandir(place):
                    if entry.is_dir(follow_symlinks=False):
                        from shutil import rmtree  # imports a lot, and few programs make folders

                        rmtree(entry.path)
                    else:
                        os.unlink(entry.path)
            for path, mode in self._modes.items():
                if os.stat(path).st_mode & 0o7777 != mode:
                    os.chmod(path, mode)
                for name in os.listxattr(path):
                    os.removexattr(path, name)
        except (OSError, RecursionError):
            return False
        return True


class MemoryKiller:
    """Makes the kernel's memory killer take children of this process first.

    The file is opened while this process may: it belongs to root once the process is not dumpable. A child inherits what is
    in force when it is forked, and may not open its own.
    """

    def __init__(self) -> None:
        self._file = os.open(OOM_SCORE_ADJ, os.O_RDWR)
        self._mine = os.pread(self._file, 16, 0).strip()

    @contextlib.contextmanager
    def takes_children(self) -> Iterator[None]:
        """Fork inside."""
        os.pwrite(self._file, b"1000", 0)
        try:
            yield
        finally:
            os.pwrite(self._file, self._mine, 0)
