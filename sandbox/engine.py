"""Find the Docker engine, and on a Debian or Ubuntu machine where we are root, install and start one."""

from __future__ import annotations

import json
import os
import shutil
import signal
import socket
import subprocess
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import ClassVar

import docker

from sandbox.base import EngineUnavailable
from sandbox.container import GVISOR, EngineErrors

START_SECONDS = 60
PING_SECONDS = 5
SYSTEM = "unix:///var/run/docker.sock"
NOT_ALLOWED = "permission denied"
GVISOR_RUNTIME = {"runtimeArgs": ["--network=none"]}


class Engine:
    """The Docker engine of this machine, and one of our own in `folder` where there is none.

    Args:
        folder: where our own engine keeps its socket, images and log. Only an engine started there is ever stopped.
    """

    _started: ClassVar[list[subprocess.Popen[bytes]]] = []  # engines outlive the process that starts them

    def __init__(self, folder: Path):
        self.folder = folder
        self._pidfile = folder / "dockerd.pid"

    @property
    def own_url(self) -> str:
        """Socket of the engine that `start` starts."""
        return f"unix://{self.folder / 'docker.sock'}"

    def find(self) -> str | None:
        """Return the URL of an engine that answers: DOCKER_HOST's, else the system's or our own; None if none does.

        Raises:
            EngineUnavailable: DOCKER_HOST names one that doesn't answer, so that another one would be a surprise.
        """
        named = os.environ.get("DOCKER_HOST")
        if named:
            reason = fault(named)
            if reason is not None:
                raise EngineUnavailable(
                    f"DOCKER_HOST is {named}, where no engine can be used: {reason}. Start it, or unset DOCKER_HOST to "
                    "use the engine of this machine."
                )
            return named
        return next((url for url in (SYSTEM, self.own_url) if fault(url) is None), None)

    def require(self) -> str:
        """Return the URL of an engine that answers.

        Raises:
            EngineUnavailable: none does.
        """
        url = self.find()
        if url is None:
            reason = fault(SYSTEM)
            if reason == NOT_ALLOWED:
                raise EngineUnavailable(
                    f"{SYSTEM} is there, but this user may not use it. Add the user to its group (`sudo usermod -aG docker "
                    "$USER`, then log in again), or set DOCKER_HOST to an engine of your own."
                )
            raise EngineUnavailable(
                f"No Docker engine answers ({SYSTEM}: {reason}; {self.own_url}: {fault(self.own_url)}). Run `evolve setup` "
                "(as root on Debian or Ubuntu it installs and starts one), or install Docker and start it."
            )
        return url

    def start(self, say: Callable[[str], None] = print) -> str:
        """Return the URL of an engine that answers, installed and started if need be (blocking).

        Raises:
            EngineUnavailable: that is not possible here.
        """
        url = self.find()
        if url is not None:
            return url
        if shutil.which("dockerd") is None or shutil.which("debootstrap") is None:
            install(["docker.io", "debootstrap", "iptables"], "A running Docker engine", say)
        say(f"starting dockerd in {self.folder}")
        self.folder.mkdir(parents=True, exist_ok=True)
        self._pidfile.unlink(missing_ok=True)
        containerd = self.folder / "exec" / "containerd" / "containerd.pid"
        if not is_running(containerd):
            containerd.unlink(missing_ok=True)  # a dockerd that was killed leaves it, and the next one waits for a zombie
        gvisor = {GVISOR: GVISOR_RUNTIME | {"path": shutil.which(GVISOR)}} if shutil.which(GVISOR) else {}
        config = self.folder / "daemon.json"
        config.write_text(json.dumps({"runtimes": gvisor}), encoding="utf-8")
        with (self.folder / "dockerd.log").open("ab") as log:
            process = subprocess.Popen(
                ["dockerd", "--data-root", str(self.folder / "data"), "--exec-root", str(self.folder / "exec"),
                 "--host", self.own_url, "--pidfile", str(self._pidfile),
                 "--config-file", str(config)],
                stdin=subprocess.DEVNULL, stdout=log, stderr=log, start_new_session=True,
            )  # fmt: skip
        self._started.append(process)
        deadline = time.monotonic() + START_SECONDS
        while fault(self.own_url) is not None:
            if process.poll() is not None or time.monotonic() > deadline:
                tail = (self.folder / "dockerd.log").read_text(errors="replace", encoding="utf-8")[-600:]
                raise EngineUnavailable(f"dockerd did not start ({self.folder / 'dockerd.log'} ends with: {tail})")
            time.sleep(0.2)
        return self.own_url

    def start_gvisor(self, say: Callable[[str], None] = print) -> str:
        """Return the URL of an engine that has gVisor's runtime, installed and started if need be (blocking).

        Raises:
            EngineUnavailable: that is not possible here.
        """
        if shutil.which(GVISOR) is None:
            install([GVISOR], "gVisor", say)
        url = self.start(say)
        if not has_runtime(url, GVISOR) and url == self.own_url:
            say("restarting our dockerd with gVisor's runtime")
            self.stop()
            url = self.start(say)
        if not has_runtime(url, GVISOR):
            wanted = json.dumps({"runtimes": {GVISOR: GVISOR_RUNTIME | {"path": shutil.which(GVISOR)}}})
            raise EngineUnavailable(
                f"The Docker engine at {url} doesn't know the runtime {GVISOR}. Add {wanted} to the engine's daemon.json "
                "and restart the engine."
            )
        return url

    def stop(self) -> bool:
        """Stop the engine that `start` started; return False when there is none (blocking)."""
        try:
            pid = int(self._pidfile.read_text(encoding="utf-8"))
            os.kill(pid, signal.SIGTERM)
        except (OSError, ValueError):
            return False
        deadline = time.monotonic() + START_SECONDS
        while is_running(self._pidfile):
            if time.monotonic() > deadline:
                raise EngineUnavailable(f"dockerd (process {pid}) did not stop in {START_SECONDS} s.")
            time.sleep(0.1)
        return True


def is_running(pidfile: Path) -> bool:
    """Return whether the process that a file names runs; a zombie doesn't."""
    try:
        state = (
            Path(f"/proc/{int(pidfile.read_text(encoding='utf-8'))}/stat")
            .read_text(encoding="utf-8")
            .rpartition(")")[2]
            .split()[0]
        )
    except (OSError, ValueError):
        return False
    return state not in "ZX"


def install(packages: Sequence[str], what: str, say: Callable[[str], None]) -> None:
    """Install Debian packages as root (blocking).

    Args:
        packages: their names.
        what: what they are for, for the message where it can't be done.
        say: told what takes long.

    Raises:
        EngineUnavailable: that is not possible here.
    """
    if os.geteuid() != 0 or shutil.which("apt-get") is None:
        raise EngineUnavailable(
            f"{what} is not here, and can be installed by this command only as root on Debian or Ubuntu. Install it in "
            f"your system's way (Debian packages: {', '.join(packages)}) and run `evolve setup` again."
        )
    say(f"installing {' and '.join(packages)} with apt-get")
    environment = {**os.environ, "DEBIAN_FRONTEND": "noninteractive"}
    for command in (
        ["apt-get", "update"],
        ["apt-get", "install", "-y", "--no-install-recommends", *packages],
    ):
        done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
        if done.returncode != 0:
            raise EngineUnavailable(f"`{' '.join(command)}` failed: {(done.stdout + done.stderr)[-600:]}")


def has_runtime(url: str, name: str) -> bool:
    """Return whether the engine at `url` knows an OCI runtime."""
    client = docker.APIClient(base_url=url, version="auto", timeout=30)
    try:
        return name in client.info()["Runtimes"]
    finally:
        client.close()


def fault(url: str) -> str | None:
    """Return why no Docker engine can be used at `url`, found within a few seconds; None where one answers."""
    if url.startswith("unix://"):
        place = url.removeprefix("unix://")
        with socket.socket(socket.AF_UNIX) as tried:  # the SDK leaves the socket of a failed connection open
            tried.settimeout(PING_SECONDS)
            try:
                tried.connect(place)
            except PermissionError:
                return NOT_ALLOWED
            except (FileNotFoundError, NotADirectoryError):
                return "no such socket"
            except OSError as error:
                return f"it doesn't answer ({type(error).__name__})"
    try:
        client = docker.APIClient(base_url=url, timeout=PING_SECONDS)
        try:
            return None if client.ping() else "it doesn't answer a ping"
        finally:
            client.close()
    except EngineErrors as error:
        return NOT_ALLOWED if "Permission denied" in str(error) else f"it doesn't answer ({type(error).__name__})"
