"""The default sandbox: a pool of pre-started, hardened, one-shot containers, one per candidate.

Protected: the host and its network, other candidates, the run's data, and the machine's CPU, memory and disk. Not
protected: against a fault of the shared kernel (use gVisor or a virtual machine for that), and a program may always give
an answer that it did not compute.

`reuse` serves one candidate after the other in the same container, each as a user of its own: much cheaper where scoring,
not the model, bounds a run, and weaker, because candidates share the container's kernel objects. `runtime="runsc"` puts
gVisor's kernel between the candidate and the host's.
"""

from __future__ import annotations

import asyncio
from concurrent.futures import ThreadPoolExecutor

import docker

from sandbox.base import EngineUnavailable, Limits, SandboxError
from sandbox.container import (
    GVISOR,
    OWNER_LABEL,
    RUN_LABEL,
    SUPERVISOR_MB,
    Container,
    EngineErrors,
    Recipe,
    owner_label,
    reap,
)
from sandbox.pool import PooledSandbox


class DockerBackend:
    """Starts containers of one recipe; see `DockerSandbox`."""

    faults: tuple[type[Exception], ...] = (*EngineErrors, SandboxError)

    def __init__(self, base_url: str, recipe: Recipe, size: int):
        kind = recipe.runtime or ("reuse" if recipe.reuse else "oneshot")
        self.level = f"docker-{kind}{'-network' if recipe.network else ''}"
        self.gaps: frozenset[str] = frozenset({"connect"}) if recipe.network else frozenset()
        self.reuse = recipe.reuse
        self.fatal = frozenset({"memory", "fork"}) if recipe.runtime == GVISOR else frozenset()
        self._base_url = base_url
        self._recipe = recipe
        self._threads = ThreadPoolExecutor(max_workers=size + 1, thread_name_prefix="docker")
        self._client: docker.APIClient | None = None

    async def open(self) -> None:
        """Connect, and remove what dead owners left."""
        try:
            self._client = docker.APIClient(base_url=self._base_url, version="auto", timeout=120)
            await asyncio.get_running_loop().run_in_executor(self._threads, reap, self._client)
        except EngineErrors as error:
            raise EngineUnavailable(
                f"No Docker engine answers at {self._base_url} ({error}). Run `evolve setup`, or start Docker."
            ) from error

    async def start(self) -> Container:
        """Start one container."""
        loop = asyncio.get_running_loop()
        return await loop.run_in_executor(self._threads, Container.start, self._client, self._recipe, self._threads)

    async def answers(self) -> bool:
        """Return whether the engine answers."""
        assert self._client is not None
        try:
            return bool(await asyncio.get_running_loop().run_in_executor(self._threads, self._client.ping))
        except EngineErrors:
            return False

    async def close(self) -> None:
        """Close the connections."""
        self._threads.shutdown(wait=False, cancel_futures=True)
        if self._client is not None:
            self._client.close()


class DockerSandbox(PooledSandbox):
    """A pool of Docker containers.

    Args:
        base_url: the Docker engine's socket, such as `unix:///var/run/docker.sock`.
        image: id of a sandbox image (`sandbox.image.build.ensure_image`).
        limits: limits of each test, the same for every program of this sandbox.
        size: candidates that run at the same time; as many containers wait ready.
        run: name of the run, a label on its containers.
        patience: seconds for which a failing engine is asked again before a `SandboxError` is raised.
        builds: whether programs are built (`Toolchain.build`): a larger /tmp that files may be executed from.
        reuse: whether a container serves one candidate after the other.
        runtime: an OCI runtime that the engine knows, such as `runsc`.
        cores: CPU cores of each container.
        network: whether programs may use the engine's bridge network; the level says so.
    """

    def __init__(
        self,
        base_url: str,
        image: str,
        limits: Limits,
        size: int = 2,
        run: str = "",
        patience: float = 60.0,
        builds: bool = False,
        reuse: bool = False,
        runtime: str | None = None,
        cores: float = 1.0,
        network: bool = False,
    ):
        labels = {OWNER_LABEL: owner_label(), RUN_LABEL: run}
        recipe = Recipe(image, limits, labels, builds, reuse or runtime is not None, reuse, runtime, cores, network)
        backend = DockerBackend(base_url, recipe, size)
        super().__init__(backend, limits, size, limits.memory_mb + SUPERVISOR_MB, patience)
