"""One one-shot container and the wire to the supervisor inside it (`guest/runner.py`).

Everything that comes out is untrusted: frames are sized, numbered and bounded in time, and a violation ends the container.
"""

from __future__ import annotations

import asyncio
import json
import os
import socket
import struct
from concurrent.futures import Executor
from pathlib import Path
from typing import Any

import docker
import requests

from sandbox.base import Limits, Outcome, Program, SandboxError, Verdict

OWNER_LABEL = "vector-evolve.owner"
RUN_LABEL = "vector-evolve.run"
RUNNER = "/opt/vector-evolve/runner.py"
HEADER_CAP = 1 << 18
SUPERVISOR_MB = 128
"""Memory of the container beyond a program's limit: the supervisor with numpy loaded, and the test's copy of it."""
GRACE_SECONDS = 20.0
"""How much longer than a test's wall limit the host waits for its frame before it gives the container up."""

EngineErrors = (docker.errors.DockerException, requests.exceptions.RequestException, OSError)


class ContainerDied(Exception):
    """The container ended, or broke the protocol, in the middle of a test; or the engine went away."""


def owner_label(pid: int | None = None) -> str:
    """Name a process of this machine for good: boot, PID namespace, pid and start time. Empty when it is gone."""
    pid = os.getpid() if pid is None else pid
    boot = Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    namespace = Path("/proc/self/ns/pid").stat().st_ino
    try:
        started = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[19]
    except OSError:
        return ""
    return f"{boot}:{namespace}:{pid}:{started}"


def host_config(client: docker.APIClient, limits: Limits) -> dict[str, Any]:
    """Return Docker's HostConfig of a sandbox: no network, no capability, nothing writable but a small /tmp."""
    memory = (limits.memory_mb + SUPERVISOR_MB) << 20
    config: dict[str, Any] = client.create_host_config(
        network_mode="none",
        read_only=True,
        cap_drop=["ALL"],
        security_opt=["no-new-privileges"],
        pids_limit=64,
        mem_limit=memory,
        memswap_limit=memory,
        nano_cpus=1_000_000_000,
        ipc_mode="none",
        log_config=docker.types.LogConfig(type="none"),
        tmpfs={"/tmp": "noexec,nosuid,nodev,size=16m"},
        ulimits=[
            docker.types.Ulimit(name="core", soft=0, hard=0),
            docker.types.Ulimit(name="nofile", soft=256, hard=256),
        ],
        auto_remove=True,
    )
    return config


class Container:
    """A started container whose supervisor waits for one program."""

    def __init__(self, client: docker.APIClient, identity: str, response: Any, threads: Executor):
        self._client = client
        self._id = identity
        self._response = response  # keeps the hijacked connection open
        self._socket: socket.socket = getattr(response, "_sock", response)
        self._socket.setblocking(False)
        self._threads = threads
        self._raw = bytearray()
        self._out = bytearray()
        self._err = bytearray()

    @classmethod
    def start(
        cls, client: docker.APIClient, image: str, limits: Limits, labels: dict[str, str], threads: Executor
    ) -> Container:
        """Create, attach and start a container (blocking; about 0.15 s). The supervisor is not awaited.

        `detach=False` makes Docker set StdinOnce: when this process dies, stdin closes, the supervisor ends and
        AutoRemove takes the container away.
        """
        created = client.create_container(
            image,
            command=["python3", "-I", RUNNER],
            user="65534:65534",
            stdin_open=True,
            detach=False,
            network_disabled=True,
            working_dir="/tmp",
            environment={"OPENBLAS_NUM_THREADS": "1", "OMP_NUM_THREADS": "1", "PYTHONHASHSEED": "0"},
            labels=labels,
            host_config=host_config(client, limits),
        )
        identity = created["Id"]
        try:
            response = client.attach_socket(identity, params={"stdin": 1, "stdout": 1, "stderr": 1, "stream": 1})
            client.start(identity)
        except BaseException:
            remove(client, identity)
            raise
        return cls(client, identity, response, threads)

    def alive(self) -> bool:
        """Return False when the stream has already ended, as after a restart of the engine."""
        try:
            return bool(self._socket.recv(1, socket.MSG_PEEK | socket.MSG_DONTWAIT))
        except BlockingIOError:
            return True
        except OSError:
            return False

    async def ready(self, timeout: float) -> None:
        """Wait for the supervisor's first frame."""
        try:
            header, _ = await asyncio.wait_for(self._frame(0), timeout)
        except TimeoutError:
            raise ContainerDied(f"the supervisor was not ready after {timeout:.0f} s") from None
        if header.get("ready") != 1:
            raise ContainerDied("the supervisor did not introduce itself")

    async def load(self, program: Program, limits: Limits) -> None:
        """Hand the program over."""
        job = json.dumps(
            {
                "source": program.source,
                "entry": program.entry,
                "cpu": limits.cpu_seconds,
                "wall": limits.wall,
                "memory": limits.memory_mb << 20,
                "output": limits.output_kb << 10,
            }
        ).encode()
        await self._send(struct.pack(">I", len(job)) + job)

    async def test(self, identity: int, data: bytes, limits: Limits) -> tuple[Outcome, bool]:
        """Run one test; return its outcome and whether the container may run another.

        Raises:
            ContainerDied: no valid frame came, for whatever reason.
        """
        try:
            async with asyncio.timeout(limits.wall + GRACE_SECONDS):
                await self._send(struct.pack(">II", identity, len(data)) + data)
                header, answer = await self._frame(limits.output_kb << 10)
        except TimeoutError:
            raise ContainerDied("no frame in time") from None
        try:
            if header["id"] != identity:
                raise ContainerDied("a frame for another test")
            verdict = header["verdict"]
            outcome = Outcome(
                verdict=None if verdict is None else Verdict(verdict),
                answer=answer,
                detail=str(header["detail"])[:1000],
                stderr=str(header["stderr"])[-2000:],
                loaded=header["loaded"] is True,
                cpu_seconds=float(header["cpu"]),
                wall_seconds=float(header["wall"]),
            )
        except (KeyError, ValueError, TypeError) as error:
            raise ContainerDied(f"a malformed frame: {error!r}") from None
        return outcome, header.get("clean") is True

    async def destroy(self) -> None:
        """Close the stream and remove the container; a container that is already going counts as removed."""
        self._socket.close()
        self._response.close()
        await asyncio.get_running_loop().run_in_executor(self._threads, remove, self._client, self._id)

    async def _send(self, data: bytes) -> None:
        try:
            await asyncio.get_running_loop().sock_sendall(self._socket, data)
        except OSError as error:
            raise ContainerDied(f"the stream broke: {error}") from None

    async def _frame(self, answer_cap: int) -> tuple[dict[str, Any], bytes]:
        header_size, answer_size = struct.unpack(">II", await self._take(8))
        if header_size > HEADER_CAP or answer_size > answer_cap:
            raise ContainerDied("a frame larger than allowed")
        text = await self._take(header_size)
        answer = await self._take(answer_size)
        try:
            header = json.loads(text)
        except (ValueError, RecursionError):
            raise ContainerDied("a frame that is not JSON") from None
        if not isinstance(header, dict):
            raise ContainerDied("a frame that is not an object")
        return header, answer

    async def _take(self, size: int) -> bytes:
        """Return the next `size` bytes of the container's stdout (Docker multiplexes it with stderr)."""
        while len(self._out) < size:
            try:
                piece = await asyncio.get_running_loop().sock_recv(self._socket, 1 << 18)
            except OSError as error:
                raise ContainerDied(f"the stream broke: {error}") from None
            if not piece:
                raise ContainerDied(f"the container ended; {self._err.decode('utf-8', 'replace')}".strip("; "))
            self._raw += piece
            self._demultiplex()
        taken = bytes(self._out[:size])
        del self._out[:size]
        return taken

    def _demultiplex(self) -> None:
        while len(self._raw) >= 8:
            stream, size = struct.unpack(">BxxxI", self._raw[:8])
            if len(self._raw) < 8 + size:
                return
            target = self._out if stream == 1 else self._err
            target += self._raw[8 : 8 + size]
            del self._raw[: 8 + size]
            del self._err[:-2000]


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
