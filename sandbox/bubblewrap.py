"""The sandbox for machines without a Docker daemon: bubblewrap, with the same supervisor as PID 1 of its own namespaces.

Chosen only by name, never as a fallback. Protected: as with Docker, in namespaces of its own (user, PID, mount, network,
IPC, UTS, cgroup), with the image's root file system read-only. Not protected: bubblewrap adds no seccomp filter of its own
to the supervisor's, /tmp is not `noexec`, and without a writable cgroup file system the memory and the number of processes
of a whole test are not bounded; the level's name says so then (`bubblewrap-unbounded`).
"""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import os
import shutil
import sys
from pathlib import Path

from sandbox import cgroup
from sandbox.base import EngineUnavailable, Limits, SandboxError
from sandbox.cgroup import Cgroup
from sandbox.container import ENVIRONMENT, RUNNER, SHARED_MB, SUPERVISOR_MB
from sandbox.pool import PooledSandbox

PROCESSES = 64
NOBODY = 65534
SCRATCH_BYTES = 96 << 20
_numbers = itertools.count(1)


class Wrapped:
    """A process in bubblewrap as a stream of bytes."""

    def __init__(self, process: asyncio.subprocess.Process, group: Cgroup | None):
        assert process.stdin is not None and process.stdout is not None
        self._process = process
        self._stdin, self._stdout = process.stdin, process.stdout
        self._group = group

    def alive(self) -> bool:
        """See `Stream.alive`."""
        return self._process.returncode is None

    async def read(self) -> bytes:
        """See `Stream.read`."""
        return await self._stdout.read(1 << 18)

    async def write(self, data: bytes) -> None:
        """See `Stream.write`."""
        self._stdin.write(data)
        await self._stdin.drain()

    async def ran_out_of_memory(self) -> bool:
        """See `Stream.ran_out_of_memory`."""
        return self._group is not None and self._group.out_of_memory()

    async def destroy(self) -> None:
        """Kill bubblewrap; its PID namespace dies with it."""
        if self._process.returncode is None:
            with contextlib.suppress(ProcessLookupError):
                self._process.kill()
        self._stdin.close()
        while await self._stdout.read(1 << 18):
            pass  # what nobody reads would keep the process from counting as ended
        await self._process.wait()
        if self._group is not None:
            await asyncio.to_thread(self._group.remove)


class BubblewrapBackend:
    """Starts bubblewrap processes; see `BubblewrapSandbox`."""

    faults: tuple[type[Exception], ...] = (OSError, SandboxError)
    fatal: frozenset[str] = frozenset()
    reuse = False

    def __init__(self, root: Path, limits: Limits):
        self._root = root
        self._memory = (limits.memory_mb + SUPERVISOR_MB) << 20
        self._bounded = cgroup.usable()
        self.level = "bubblewrap" if self._bounded else "bubblewrap-unbounded"
        self.gaps: frozenset[str] = frozenset() if self._bounded else frozenset({"memory", "fork"})

    async def open(self) -> None:
        """Look for bubblewrap and the root file system."""
        if shutil.which("bwrap") is None:
            raise EngineUnavailable("bubblewrap is not installed (`apt-get install bubblewrap`, as root).")
        if not (self._root / RUNNER.lstrip("/")).is_file():
            raise EngineUnavailable(
                f"{self._root} is no root file system of the sandbox; run `evolve setup --sandbox bwrap`."
            )

    async def start(self) -> Wrapped:
        """Start one process, in a control group of its own where that is possible."""
        group = None
        if self._bounded:
            group = Cgroup(f"vector-evolve-{os.getpid()}-{next(_numbers)}", self._memory, PROCESSES)
        try:
            process = await asyncio.create_subprocess_exec(
                *self._command(group),
                stdin=asyncio.subprocess.PIPE,
                stdout=asyncio.subprocess.PIPE,
                stderr=asyncio.subprocess.DEVNULL,
            )
        except BaseException:
            if group is not None:
                group.remove()
            raise
        return Wrapped(process, group)

    async def answers(self) -> bool:
        """There is no engine that could fail to."""
        return True

    async def close(self) -> None:
        """Nothing is held."""

    def _command(self, group: Cgroup | None) -> list[str]:
        command = [
            shutil.which("bwrap") or "bwrap",
            "--unshare-all",
            "--die-with-parent",
            "--new-session",
            "--as-pid-1",
            "--clearenv",
        ]
        command += ["--uid", str(NOBODY), "--gid", str(NOBODY), "--cap-drop", "ALL", "--hostname", "sandbox"]
        command += ["--ro-bind", str(self._root), "/", "--proc", "/proc", "--dev", "/dev"]
        command += ["--size", str(SCRATCH_BYTES), "--tmpfs", "/tmp", "--remount-ro", "/dev", "--chdir", "/tmp"]
        command += ["--perms", "1777", "--size", str(SHARED_MB << 20), "--tmpfs", "/dev/shm"]
        if group is not None:
            command += ["--tmpfs", "/sys"]
            for outside, inside in group.counters:
                command += ["--ro-bind", str(outside), inside]
            command += ["--remount-ro", "/sys"]
        for name, value in {"PATH": "/usr/bin:/bin", **ENVIRONMENT}.items():
            command += ["--setenv", name, value]
        command += ["--", "python3", "-I", RUNNER]
        entries = [str(entry) for entry in group.entries] if group is not None else []
        return [sys.executable, "-I", "-S", "-c", ENTER, str(len(entries)), *entries, *command]


ENTER = f"""\
import os, sys
count = int(sys.argv[1])
for path in sys.argv[2 : 2 + count]:
    open(path, "w").write(str(os.getpid()))
if os.geteuid() == 0:
    os.setgroups([])
    os.setresgid({NOBODY}, {NOBODY}, {NOBODY})
    os.setresuid({NOBODY}, {NOBODY}, {NOBODY})
os.execv(sys.argv[2 + count], sys.argv[2 + count :])
"""
"""Joins the control groups named in its arguments, gives up root, then becomes the command that follows them.

Giving up root is load-bearing: in a user namespace that root made, a process is still root to files of the host such as
/proc/sys/kernel/core_pattern, whatever its user is called inside.
"""


class BubblewrapSandbox(PooledSandbox):
    """A pool of bubblewrap processes.

    Args:
        root: the image's root file system (`sandbox.image.build.ensure_root`).
        limits: limits of each test, the same for every program of this sandbox.
        size: candidates that run at the same time; as many processes wait ready.
        patience: seconds for which a failing start is tried again before a `SandboxError` is raised.
    """

    def __init__(self, root: Path, limits: Limits, size: int = 2, patience: float = 60.0):
        backend = BubblewrapBackend(root, limits)
        super().__init__(backend, limits, size, limits.memory_mb + SUPERVISOR_MB, patience)
