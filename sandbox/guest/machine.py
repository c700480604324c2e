"""What all children of a supervisor share, and the steps that would be destructive outside a sandbox."""

from __future__ import annotations

import contextlib
import os
import resource
import signal

from .child import SCRATCH


class OomKills:
    """How often the kernel killed a process of this container for memory (cgroup v1 or v2)."""

    def __init__(self) -> None:
        self._file: int | None = None
        for path in ("/sys/fs/cgroup/memory/memory.oom_control", "/sys/fs/cgroup/memory.events"):
            with contextlib.suppress(OSError):
                self._file = os.open(path, os.O_RDONLY)
        self._seen = self._count()

    def more(self) -> bool:
        """Return whether there were more since the last call."""
        before, self._seen = self._seen, self._count()
        return self._seen > before

    def _count(self) -> int:
        if self._file is None:
            return 0
        _, _, rest = os.pread(self._file, 4096, 0).partition(b"\noom_kill ")
        return int(rest.split(maxsplit=1)[0]) if rest else 0


class Machine:
    """What children have in common: the interpreter's address space in bytes, memory kills so far, the marker file."""

    def __init__(self, marker: str) -> None:
        self.marker = marker
        # Elsewhere nothing is killed or deleted: PID 1 or its zygote, our image, and /tmp a mount of its own.
        self.is_sandbox = os.getpid() == 1 and os.path.exists(marker) and os.path.ismount(SCRATCH)
        self.kills = OomKills()
        with open("/proc/self/statm") as statm:
            self.space = int(statm.read().split()[0]) * resource.getpagesize()

    def kill_all(self) -> int:
        """Kill every other process of this PID namespace but PID 1 and reap them; return how many there were."""
        survivors = 0
        while self.is_sandbox:
            with contextlib.suppress(ProcessLookupError):
                os.kill(-1, signal.SIGKILL)
            try:
                while os.waitpid(-1, 0):
                    survivors += 1
            except ChildProcessError:
                break
        return survivors

    def clean_scratch(self) -> bool:
        """Empty the scratch mount; return False when something resisted, so that the host throws this sandbox away."""
        if not self.is_sandbox:
            return False
        try:
            for entry in os.scandir(SCRATCH):
                if entry.is_dir(follow_symlinks=False):
                    from shutil import rmtree  # imports a lot, and few programs make folders

                    rmtree(entry.path)
                else:
                    os.unlink(entry.path)
        except (OSError, RecursionError):
            return False
        return True
