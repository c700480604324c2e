"""A pool of one-shot sandboxes: started before a candidate arrives, used for one, destroyed after it, for any backend."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine, Sequence
from contextlib import suppress
from types import TracebackType
from typing import Any, Protocol, Self

from sandbox.base import EngineUnavailable, Limits, Outcome, Program, SandboxError, Verdict
from sandbox.selftest import self_test
from sandbox.wire import Guest, GuestDied, Stream

DEATHS_PER_PROGRAM = 3
READY_SECONDS = 60


class Backend(Protocol):
    """How sandboxes of one kind are started.

    Attributes:
        level: name of the isolation, stored with every score.
        gaps: self-tests (keys of `selftest.EXPECTED`) that this isolation is known to fail, and says so.
        faults: exceptions of `open` and `start` that mean that the machine, not our code, is at fault.
    """

    level: str
    gaps: frozenset[str]
    faults: tuple[type[Exception], ...]

    async def open(self) -> None:
        """Get ready, and end what dead owners left. Raises EngineUnavailable with advice when that can't be."""
        ...

    async def start(self) -> Stream:
        """Start one sandbox. Raises one of `faults`."""
        ...

    async def close(self) -> None:
        """Release what `open` took; also after a failed `open`."""
        ...


class PooledSandbox:
    """Runs each candidate in a sandbox of its own that was started before the candidate arrived.

    Args:
        backend: starts sandboxes.
        limits: limits of each test, the same for every program of this pool.
        size: candidates that run at the same time; as many sandboxes wait ready.
        memory_mb: memory that the backend grants to all processes of a test together, for the self-test.
        patience: seconds for which a failing backend is asked again before a `SandboxError` is raised.
    """

    def __init__(self, backend: Backend, limits: Limits, size: int, memory_mb: int, patience: float):
        self._backend = backend
        self._limits = limits
        self._size = size
        self._memory_mb = memory_mb
        self._patience = patience
        self._slots = asyncio.Semaphore(size)
        self._ready: asyncio.Queue[Guest | SandboxError] = asyncio.Queue()
        self._background: set[asyncio.Task[None]] = set()
        self._closing = False

    @property
    def level(self) -> str:
        """See `Sandbox.level`."""
        return self._backend.level

    @property
    def limits(self) -> Limits:
        """The limits of each test."""
        return self._limits

    async def __aenter__(self) -> Self:
        try:
            await self._backend.open()
            for _ in range(self._size):
                self._in_background(self._refill())
            await self_test(self, self._memory_mb, self._backend.gaps)
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

    async def take(self) -> Guest:
        """Return a ready sandbox and have another started in its place."""
        while True:
            self._in_background(self._refill())
            guest = await self._ready.get()
            if isinstance(guest, SandboxError):
                raise guest
            if guest.alive():
                return guest
            self.discard(guest)

    def discard(self, guest: Guest) -> None:
        """Destroy a sandbox in the background."""
        self._in_background(guest.destroy())

    async def _refill(self) -> None:
        """Put one ready sandbox into the queue, or, after `patience` seconds of failures, the reason."""
        clock = asyncio.get_running_loop().time
        deadline = clock() + self._patience
        delay = 0.2
        faults: tuple[type[Exception], ...] = (*self._backend.faults, GuestDied)
        while True:
            try:
                guest = Guest(await self._backend.start())
                try:
                    await guest.ready(READY_SECONDS)
                except BaseException:
                    self.discard(guest)
                    raise
                self._ready.put_nowait(guest)
                return
            except faults as error:
                if self._closing or clock() > deadline:
                    text = f"No sandbox could be started for {self._patience:.0f} s: {error}. See `evolve doctor`."
                    self._ready.put_nowait(EngineUnavailable(text))
                    return
                await asyncio.sleep(delay)
                delay = min(2 * delay, 5.0)

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
            guest = self._ready.get_nowait()
            if isinstance(guest, Guest):
                with suppress(*self._backend.faults):  # the engine may be gone; the end of stdin ends the sandbox then
                    await guest.destroy()
        await self._backend.close()


class _Tests:
    """The tests of one program: a sandbox for all of them, another one after a death."""

    def __init__(self, pool: PooledSandbox, program: Program):
        self._pool = pool
        self._program = program
        self._guest: Guest | None = None
        self._deaths = 0

    async def run(self, index: int, data: bytes) -> Outcome:
        """Run one test. A death is the program's only when it happens again in a fresh sandbox."""
        if self._deaths >= DEATHS_PER_PROGRAM:
            return Outcome(Verdict.NOT_RUN, detail=f"the program took {self._deaths} sandboxes down before")
        reason = ""
        for _ in range(2):
            try:
                outcome = await self._once(index, data)
                if outcome.verdict is Verdict.TIMEOUT and outcome.cpu_seconds < 0.1 * self._pool.limits.wall:
                    outcome = await self._once(index, data)  # a machine under load lets innocents time out
                return outcome
            except GuestDied as death:
                reason = str(death)
                self.release()
        self._deaths += 1
        return Outcome(Verdict.KILLED, detail=f"the sandbox died in this test, twice: {reason}"[:1000])

    async def _once(self, index: int, data: bytes) -> Outcome:
        if self._guest is None:
            self._guest = await self._pool.take()
            await self._guest.load(self._program, self._pool.limits)
        outcome, usable = await self._guest.test(index, data, self._pool.limits)
        if not usable:
            self.release()
        return outcome

    def release(self) -> None:
        """Throw the sandbox away."""
        if self._guest is not None:
            self._pool.discard(self._guest)
            self._guest = None
