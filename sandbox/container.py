"""Docker containers as sandboxes: how they are bounded, started, attached, removed, and found when their owner is dead."""

from __future__ import annotations

import asyncio
import contextlib
import os
import socket
import struct
import time
from concurrent.futures import Executor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import docker
import requests

from sandbox.base import Limits, SandboxError

OWNER_LABEL = "vector-evolve.owner"
RUN_LABEL = "vector-evolve.run"
HOME = "/opt/vector-evolve"
GVISOR = "runsc"
RUNNER = f"{HOME}/guest/runner.py"
SUPERVISOR_MB = 128
"""Memory of the container beyond a program's limit: the supervisor with numpy loaded, and the test's copy of it."""
LEAVE_SECONDS = 3
EVENTS_SECONDS = 0.2
"""How long the engine is waited for that tells of a death: its word may come just after the container is gone."""
ENVIRONMENT = {"OPENBLAS_NUM_THREADS": "1", "OMP_NUM_THREADS": "1", "PYTHONHASHSEED": "0", "HOME": "/tmp"}
SHARED_MB = 64
"""Of /dev/shm, which process pools and their queues need; what lies there counts as memory."""

EngineErrors = (docker.errors.DockerException, requests.exceptions.RequestException, OSError)


def owner_label(pid: int | None = None) -> str:
    """Name a process of this machine for good: boot, PID namespace, pid and start time. Empty when it is gone."""
    pid = os.getpid() if pid is None else pid
    boot = Path("/proc/sys/kernel/random/boot_id").read_text(encoding="utf-8").strip()
    namespace = Path("/proc/self/ns/pid").stat().st_ino
    try:
        started = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8").rpartition(")")[2].split()[19]
    except OSError:
        return ""
    return f"{boot}:{namespace}:{pid}:{started}"


@dataclass(frozen=True, slots=True)
class Recipe:
    """How the containers of one pool are made.

    Attributes:
        image: id of a sandbox image.
        limits: of each test.
        labels: of the containers.
        builds: programs are built, so that /tmp is larger and files in it may be executed.
        root: the supervisor is root, to give each program a user of its own.
        reuse: a container serves one program after the other; needs `root`.
        runtime: name of an OCI runtime of the engine, such as `runsc`; None for its default.
        cores: CPU cores.
        network: the container is on the engine's bridge, and its programs may open sockets.
    """

    image: str
    limits: Limits
    labels: dict[str, str]
    builds: bool = False
    root: bool = False
    reuse: bool = False
    runtime: str | None = None
    cores: float = 1.0
    network: bool = False


def host_config(client: docker.APIClient, recipe: Recipe) -> dict[str, Any]:
    """Return Docker's HostConfig of a sandbox: no network unless asked for, no capability, only a small /tmp to write to.

    A supervisor that is root keeps what it needs to change users, to kill them and to empty /tmp. gVisor counts its own
    threads as processes.
    """
    memory = (recipe.limits.memory_mb + SUPERVISOR_MB) << 20
    config: dict[str, Any] = client.create_host_config(
        network_mode="bridge" if recipe.network else "none",
        read_only=True,
        cap_drop=["ALL"],
        cap_add=["SETUID", "SETGID", "KILL", "DAC_OVERRIDE"] if recipe.root else [],
        security_opt=["no-new-privileges"],
        pids_limit=1024 if recipe.runtime else 64,
        mem_limit=memory,
        memswap_limit=memory,
        nano_cpus=int(recipe.cores * 1e9),
        ipc_mode="none",
        log_config=docker.types.LogConfig(type="none"),
        tmpfs={
            "/tmp": f"{'exec,size=96m' if recipe.builds else 'noexec,size=16m'},nosuid,nodev",
            "/dev/shm": f"noexec,nosuid,nodev,size={SHARED_MB}m",
            "/dev/mqueue": "ro,noexec,nosuid,nodev,size=4k",  # else the engine lays its message queues there, for writing
        },
        ulimits=[
            docker.types.Ulimit(name="core", soft=0, hard=0),
            docker.types.Ulimit(name="nofile", soft=256, hard=256),
        ],
        auto_remove=True,
        runtime=recipe.runtime,
    )
    return config


class Container:
    """A started container as a stream of bytes."""

    def __init__(self, client: docker.APIClient, identity: str, response: Any, threads: Executor):
        self._client = client
        self._id = identity
        self._response = response  # keeps the hijacked connection open
        self._socket: socket.socket = getattr(response, "_sock", response)
        self._socket.setblocking(False)
        self._threads = threads
        self._raw = bytearray()
        self._started = time.time()

    @classmethod
    def start(cls, client: docker.APIClient, recipe: Recipe, threads: Executor) -> Container:
        """Create, attach and start a container (blocking; about 0.15 s). The supervisor is not awaited.

        `detach=False` makes Docker set StdinOnce: when this process dies, stdin closes, the supervisor ends and
        AutoRemove takes the container away.
        """
        created = client.create_container(
            recipe.image,
            command=[
                "python3",
                "-I",
                RUNNER,
                *(["reuse"] if recipe.reuse else []),
                *(["network"] if recipe.network else []),
            ],
            user="0:0" if recipe.root else "65534:65534",
            stdin_open=True,
            detach=False,
            network_disabled=recipe.runtime is None
            and not recipe.network,  # gVisor insists on a network namespace, if an empty one
            working_dir="/tmp",
            environment=ENVIRONMENT,
            labels=recipe.labels,
            host_config=host_config(client, recipe),
        )
        identity = created["Id"]
        response: Any = None
        try:
            response = client.attach_socket(identity, params={"stdin": 1, "stdout": 1, "stderr": 1, "stream": 1})
            client.start(identity)
        except BaseException:
            if response is not None:
                response.close()
            remove(client, identity)
            raise
        return cls(client, identity, response, threads)

    def alive(self) -> bool:
        """See `Stream.alive`."""
        try:
            return bool(self._socket.recv(1, socket.MSG_PEEK | socket.MSG_DONTWAIT))
        except BlockingIOError:
            return True
        except OSError:
            return False

    async def read(self) -> bytes:
        """Return the next bytes of stdout (Docker multiplexes it with stderr, which is dropped), empty at the end."""
        out = bytearray()
        while not out:
            piece = await asyncio.get_running_loop().sock_recv(self._socket, 1 << 18)
            if not piece:
                return b""
            self._raw += piece
            while len(self._raw) >= 8:
                stream, size = struct.unpack(">BxxxI", self._raw[:8])
                if len(self._raw) < 8 + size:
                    break
                if stream == 1:
                    out += self._raw[8 : 8 + size]
                del self._raw[: 8 + size]
        return bytes(out)

    async def write(self, data: bytes) -> None:
        """See `Stream.write`."""
        await asyncio.get_running_loop().sock_sendall(self._socket, data)

    async def ran_out_of_memory(self) -> bool:
        """See `Stream.ran_out_of_memory`: the engine tells, also of a container that is gone."""
        return await asyncio.get_running_loop().run_in_executor(self._threads, self._out_of_memory)

    def _out_of_memory(self) -> bool:
        filters = {"container": self._id, "event": "oom"}
        since, until = int(self._started) - 1, f"{time.time() + EVENTS_SECONDS:.9f}"
        try:
            with contextlib.closing(self._client.events(since=since, until=until, filters=filters)) as events:
                return next(iter(events), None) is not None
        except EngineErrors:
            return False  # whether the engine is there is asked elsewhere

    async def destroy(self) -> None:
        """Close the stream and remove the container; a container that is already going counts as removed."""
        self._socket.close()
        self._response.close()
        await asyncio.get_running_loop().run_in_executor(self._threads, see_off, self._client, self._id)


def see_off(client: docker.APIClient, identity: str) -> None:
    """Wait until a container is gone whose stdin has closed (blocking); remove it by force when that takes too long.

    A container that ends by itself costs the engine less than one that it has to kill.

    Raises:
        SandboxError: see `remove`.
    """
    try:
        if not client.wait(identity, timeout=LEAVE_SECONDS, condition="removed").get("Error"):
            return
    except docker.errors.NotFound:
        return
    except EngineErrors:
        pass
    remove(client, identity)


def remove(client: docker.APIClient, identity: str, attempts: int = 3) -> None:
    """Remove a container by force (blocking). 'Gone' and 'going' both count as removed.

    Raises:
        SandboxError: the engine refused for another reason, every time.
    """
    for attempt in range(attempts):
        try:
            client.remove_container(identity, force=True)
            return
        except docker.errors.NotFound:
            return
        except docker.errors.APIError as error:
            if error.status_code == 409:
                return
            if attempt == attempts - 1:
                raise SandboxError(f"Docker could not remove the container {identity[:12]}: {error}") from error


def reap(client: docker.APIClient) -> int:
    """Remove the containers of owners on this machine that no longer live; return how many (blocking)."""
    machine = owner_label().rsplit(":", 2)[0]
    reaped = 0
    for container in client.containers(all=True, filters={"label": OWNER_LABEL}):
        owner = container["Labels"][OWNER_LABEL]
        here, pid, _ = owner.rsplit(":", 2)
        if here == machine and owner_label(int(pid)) != owner:
            remove(client, container["Id"])
            reaped += 1
    return reaped
