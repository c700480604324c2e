"""The default sandbox: a pool of pre-started, hardened, one-shot containers, one per candidate.

Protected: the host and its network, other candidates, the run's data, and the machine's CPU, memory and disk. Not
protected: against a fault of the shared kernel (use a virtual machine or gVisor for that), and a program may always give
an answer that it did not compute.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from types import TracebackType
from typing import Any, Self, TypeVar

import docker

from sandbox.base import EngineUnavailable, Limits, Outcome, Program, SandboxError, Verdict
from sandbox.container import (
    OWNER_LABEL,
    RUN_LABEL,
    SUPERVISOR_MB,
    Container,
    ContainerDied,
    EngineErrors,
    owner_label,
    reap,
)
from sandbox.selftest import self_test

T = TypeVar("T")
DEATHS_PER_PROGRAM = 3


class DockerSandbox:
    """Runs each candidate in a container that was started before the candidate arrived and is destroyed after it.

    Args:
        base_url: the Docker engine's socket, such as `unix:///var/run/docker.sock`.
        image: id of a sandbox image (`sandbox.image.build.ensure_image`).
        limits: limits of each test, the same for every program of this sandbox.
        size: candidates that run at the same time; as many containers wait ready.
        run: name of the run, a label on its containers.
        patience: seconds for which a failing engine is asked again before a `SandboxError` is raised.
    """

    level = "docker-oneshot"

    def __init__(self, base_url: str, image: str, limits: Limits, size: int = 2, run: str = "", patience: float = 60.0):
        self._base_url = base_url
        self._image = image
        self._limits = limits
        self._size = size
        self._patience = patience
        self._labels = {OWNER_LABEL: owner_label(), RUN_LABEL: run}
        self._slots = asyncio.Semaphore(size)
        self._ready: asyncio.Queue[Container | SandboxError] = asyncio.Queue()
        self._background: set[asyncio.Task[None]] = set()
        self._client: docker.APIClient | None = None
        self._closing = False

    async def __aenter__(self) -> Self:
        self._threads = ThreadPoolExecutor(max_workers=2 * self._size + 2, thread_name_prefix="docker")
        try:
            self._client = docker.APIClient(base_url=self._base_url, version="auto", timeout=120)
            await self._blocking(reap, self._client)
            for _ in range(self._size):
                self._in_background(self._refill())
            await self_test(self, self._limits.memory_mb + SUPERVISOR_MB)
        except EngineErrors as error:
            await self._shut()
            raise EngineUnavailable(
                f"No Docker engine answers at {self._base_url} ({error}). Run `evolve setup`, or start Docker."
            ) from error
        except BaseException:
            await self._shut()
            raise
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self._shut()

    async def run(self, program: Program, inputs: Sequence[bytes]) -> list[Outcome]:
        """See `Sandbox.run`. Waiting candidates are served in the order of their arrival."""
        async with self._slots:
            tests = _Tests(self, program)
            try:
                return [await tests.run(index, data) for index, data in enumerate(inputs)]
            finally:
                tests.release()

    @property
    def limits(self) -> Limits:
        """The limits of each test."""
        return self._limits

    async def take(self) -> Container:
        """Return a ready container and have another started in its place."""
        while True:
            self._in_background(self._refill())
            container = await self._ready.get()
            if isinstance(container, SandboxError):
                raise container
            if container.alive():
                return container
            self.discard(container)

    def discard(self, container: Container) -> None:
        """Destroy a container in the background."""
        self._in_background(container.destroy())

    async def _refill(self) -> None:
        """Put one ready container into the queue, or, after `patience` seconds of failures, the reason."""
        deadline = asyncio.get_running_loop().time() + self._patience
        delay = 0.2
        while True:
            try:
                container: Container = await self._blocking(
                    Container.start, self._client, self._image, self._limits, self._labels, self._threads
                )
                try:
                    await container.ready(timeout=60)
                except BaseException:
                    self.discard(container)
                    raise
                self._ready.put_nowait(container)
                return
            except (*EngineErrors, ContainerDied, SandboxError) as error:
                if self._closing or asyncio.get_running_loop().time() > deadline:
                    text = f"Docker gave no container for {self._patience:.0f} s: {error}. See `evolve doctor`."
                    self._ready.put_nowait(SandboxError(text))
                    return
                await asyncio.sleep(delay)
                delay = min(2 * delay, 5.0)

    async def _blocking(self, function: Callable[..., T], *arguments: Any) -> T:
        return await asyncio.get_running_loop().run_in_executor(self._threads, function, *arguments)

    def _in_background(self, coroutine: Coroutine[Any, Any, None]) -> None:
        task = asyncio.create_task(coroutine)
        self._background.add(task)
        task.add_done_callback(self._background.discard)

    async def _shut(self) -> None:
        """Wait for what is under way and destroy what is left."""
        self._closing = True
        while self._background:
            await asyncio.gather(*self._background, return_exceptions=True)
        while not self._ready.empty():
            container = self._ready.get_nowait()
            if isinstance(container, Container):
                with suppress(*EngineErrors, SandboxError):  # the engine may be gone; stdin's end removes it then
                    await container.destroy()
        self._threads.shutdown()
        if self._client is not None:
            self._client.close()


class _Tests:
    """The tests of one program: a container for all of them, another one after a death."""

    def __init__(self, sandbox: DockerSandbox, program: Program):
        self._sandbox = sandbox
        self._program = program
        self._container: Container | None = None
        self._deaths = 0

    async def run(self, index: int, data: bytes) -> Outcome:
        """Run one test. A death is the program's only when it happens again in a fresh container."""
        if self._deaths >= DEATHS_PER_PROGRAM:
            return Outcome(Verdict.NOT_RUN, detail=f"the program took {self._deaths} sandboxes down before")
        reason = ""
        for _ in range(2):
            try:
                outcome = await self._once(index, data)
                if outcome.verdict is Verdict.TIMEOUT and outcome.cpu_seconds < 0.1 * self._sandbox.limits.wall:
                    outcome = await self._once(index, data)  # a machine under load lets innocents time out
                return outcome
            except ContainerDied as death:
                reason = str(death)
                self.release()
        self._deaths += 1
        return Outcome(Verdict.KILLED, detail=f"the sandbox died in this test, twice: {reason}"[:1000])

    async def _once(self, index: int, data: bytes) -> Outcome:
        if self._container is None:
            self._container = await self._sandbox.take()
            await self._container.load(self._program, self._sandbox.limits)
        outcome, usable = await self._container.test(index, data, self._sandbox.limits)
        if not usable:
            self.release()
        return outcome

    def release(self) -> None:
        """Throw the container away."""
        if self._container is not None:
            self._sandbox.discard(self._container)
            self._container = None
