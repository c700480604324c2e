"""A control group for one sandbox that no container engine bounds: memory and processes, cgroup v1 or v2.

Needs a writable cgroup file system, as root has it, or a delegated subtree.
"""

from __future__ import annotations

import contextlib
import os
import time
from pathlib import Path

ROOT = Path("/sys/fs/cgroup")
REMOVE_SECONDS = 5.0


class Cgroup:
    """A group of its own under a parent that we may write to.

    Args:
        name: of the group; unique on this machine.
        memory: bytes that all its processes may use together, swap included.
        processes: how many there may be.
    """

    def __init__(self, name: str, memory: int, processes: int):
        self._v2 = (ROOT / "cgroup.controllers").exists()
        controllers = [""] if self._v2 else ["memory", "pids", "cpuacct"]
        self._folders = [ROOT / controller / name for controller in controllers]
        for folder in self._folders:
            folder.mkdir()
        first = self._folders[0]
        if self._v2:
            (first / "memory.max").write_text(str(memory), encoding="utf-8")
            self._optional(first / "memory.swap.max", "0")
        else:
            (first / "memory.limit_in_bytes").write_text(str(memory), encoding="utf-8")
            self._optional(first / "memory.memsw.limit_in_bytes", str(memory))
        (self._folders[0 if self._v2 else 1] / "pids.max").write_text(str(processes), encoding="utf-8")

    @staticmethod
    def _optional(path: Path, value: str) -> None:
        """Bound swap where the kernel counts it."""
        with contextlib.suppress(FileNotFoundError):
            path.write_text(value, encoding="utf-8")

    @property
    def entries(self) -> list[Path]:
        """Files that take the id of a process which is to belong to the group."""
        return [folder / "cgroup.procs" for folder in self._folders]

    @property
    def counters(self) -> list[tuple[Path, str]]:
        """The files that count processes killed for memory and CPU time, and where the supervisor looks for them."""
        if self._v2:
            return [(self._folders[0] / name, f"/sys/fs/cgroup/{name}") for name in ("memory.events", "cpu.stat")]
        memory, _, cpu = self._folders
        return [
            (memory / "memory.oom_control", "/sys/fs/cgroup/memory/memory.oom_control"),
            (cpu / "cpuacct.usage", "/sys/fs/cgroup/cpuacct/cpuacct.usage"),
        ]

    def out_of_memory(self) -> bool:
        """Return whether a process of the group was killed for memory."""
        with contextlib.suppress(OSError):
            _, _, rest = self.counters[0][0].read_text(encoding="utf-8").partition("oom_kill ")
            return bool(rest) and int(rest.split(maxsplit=1)[0]) > 0
        return False

    def remove(self) -> None:
        """Remove the group once its processes are gone (blocking, milliseconds).

        Raises:
            OSError: they were not gone in time.
        """
        deadline = time.monotonic() + REMOVE_SECONDS
        for folder in self._folders:
            while True:
                try:
                    folder.rmdir()
                    break
                except FileNotFoundError:
                    break
                except OSError:
                    if time.monotonic() > deadline:
                        raise
                    time.sleep(0.005)


def usable() -> bool:
    """Return whether groups can be made here."""
    try:
        group = Cgroup(f"vector-evolve-probe-{os.getpid()}", 64 << 20, 8)
    except OSError:
        return False
    group.remove()
    return True
