"""A pool of sandboxes: started before a candidate arrives, used for one, then destroyed (or re-used), for any backend."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Coroutine, Sequence
from contextlib import AbstractAsyncContextManager
from types import TracebackType
from typing import Any, Protocol, Self

from sandbox.base import EngineUnavailable, Limits, Outcome, Program, SandboxError, Verdict
from sandbox.selftest import self_test
from sandbox.wire import Guest, GuestDied, Stream, tests_job

DEATHS_PER_PROGRAM = 3
FAULTS_PER_PROGRAM = 5
"""How often a program is run again because the machine failed under it."""

TESTS_AT_ONCE, BYTES_AT_ONCE = 32, 1 << 15
"""How many tests, and about how many bytes of input, are sent before the first has answered."""

PROGRAMS_PER_GUEST = 500
"""After how many programs a re-used sandbox is replaced all the same."""

READY_SECONDS = 60
CLOSE_SECONDS = 30
"""How long the end of one sandbox is waited for."""

SETTLE_SECONDS = 0.3
"""How long an engine that goes down may take to end a second sandbox after the first."""

log = logging.getLogger(__name__)


class Backend(Protocol):
    """How sandboxes of one kind are started.

    Attributes:
        level: name of the isolation, stored with every score.
        gaps: self-tests (keys of `selftest.EXPECTED`) that this isolation is known to fail, and says so.
        fatal: self-tests in which this isolation ends as a whole, instead of the one process.
        faults: exceptions of `open` and `start` that mean that the machine, not our code, is at fault.
        reuse: whether a sandbox may serve one program after the other.
    """

    level: str
    gaps: frozenset[str]
    fatal: frozenset[str]
    faults: tuple[type[Exception], ...]
    reuse: bool

    async def open(self) -> None:
        """Get ready, and end what dead owners left. Raises EngineUnavailable with advice when that can't be."""
        ...

    async def start(self) -> Stream:
        """Start one sandbox. Raises one of `faults`."""
        ...

    async def answers(self) -> bool:
        """Return whether the engine that ends and starts sandboxes is there."""
        ...

    async def close(self) -> None:
        """Release what `open` took; also after a failed `open`."""
        ...


class PooledSandbox:
    """Runs each candidate in a sandbox that was started before the candidate arrived.

    A sandbox that dies is the program's doing only while the machine is well: the engine answers, and a sentinel, a sandbox
    that does nothing, is alive. Otherwise the machine has failed: the program is run again, once sandboxes start again.

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
        self._faults: tuple[type[Exception], ...] = (*backend.faults, TimeoutError)
        self._closing = False
        self._sentinel: Guest | None = None
        self._generation = 0
        self._checking = asyncio.Lock()

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
            self._sentinel = await self._start()
            await self_test(self, self._memory_mb, self._backend.gaps, self._backend.fatal)
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
        async with self.slot():
            tests = _Tests(self, program, inputs)
            try:
                outcomes = await tests.run()
            except BaseException:  # an interrupt among them: the sandbox may be in the middle of a test
                tests.drop()
                raise
            await tests.release()
            return outcomes

    def slot(self) -> AbstractAsyncContextManager[None]:
        """Wait for the turn of one more candidate."""
        return self._slots

    async def take(self) -> Guest:
        """Return a ready sandbox, and have another started where it won't come back."""
        while True:
            if not self._backend.reuse or self._ready.empty():
                self._in_background(self._refill())
            guest = await self._ready.get()
            if isinstance(guest, SandboxError):
                raise guest
            if guest.alive():
                return guest
            self.discard(guest)

    def reuses(self, guest: Guest) -> bool:
        """Return whether a sandbox may serve another program."""
        return self._backend.reuse and guest.programs < PROGRAMS_PER_GUEST

    def put(self, guest: Guest) -> None:
        """Take back a sandbox that is ready for another program."""
        if self._ready.qsize() < self._size:
            self._ready.put_nowait(guest)
        else:
            self.discard(guest)

    async def give_back(self, guest: Guest) -> None:
        """Take back a sandbox whose program is done."""
        clean = False
        try:
            clean = self.reuses(guest) and await guest.reset()
        finally:
            if not clean:
                self.discard(guest)
        if clean:
            self.put(guest)

    def discard(self, guest: Guest) -> None:
        """Destroy a sandbox in the background."""
        self._in_background(self._destroy(guest))

    async def blame(self, guest: Guest) -> bool:
        """Return whether the death of `guest` is its program's doing; if not, wait until sandboxes can be started again.

        Raises:
            EngineUnavailable: they can't be, for `patience` seconds.
        """
        async with self._checking:
            if guest.generation < self._generation:
                return False
            await asyncio.sleep(SETTLE_SECONDS)
            assert self._sentinel is not None
            if self._sentinel.alive() and await self._backend.answers():
                return True
            log.warning("the sandbox engine has failed or been restarted; waiting for it")
            self._generation += 1
            self.discard(self._sentinel)
            self._sentinel = await self._start()
            return False

    async def _destroy(self, guest: Guest) -> None:
        try:
            async with asyncio.timeout(CLOSE_SECONDS):
                await guest.destroy()
        except self._faults as error:  # it ends with its stdin; the next start's reaper removes what is left
            log.warning("a sandbox could not be removed: %s", str(error))

    async def _refill(self) -> None:
        """Put one ready sandbox into the queue, or, after `patience` seconds of failures, the reason."""
        try:
            self._ready.put_nowait(await self._start())
        except EngineUnavailable as error:
            self._ready.put_nowait(error)

    async def _start(self) -> Guest:
        """Return one ready sandbox. Raises EngineUnavailable after `patience` seconds of failures."""
        clock = asyncio.get_running_loop().time
        deadline = clock() + self._patience
        delay = 0.2
        faults: tuple[type[Exception], ...] = (*self._backend.faults, GuestDied)
        while True:
            generation = self._generation
            try:
                guest = Guest(await self._backend.start(), generation)
                try:
                    await guest.ready(READY_SECONDS)
                except BaseException:
                    self.discard(guest)
                    raise
                return guest
            except faults as error:
                if self._closing or clock() > deadline:
                    text = f"No sandbox could be started for {self._patience:.0f} s: {error}. See `evolve doctor`."
                    raise EngineUnavailable(text) from error
                await asyncio.sleep(delay)
                delay = min(2 * delay, 5.0)

    def _in_background(self, coroutine: Coroutine[Any, Any, None]) -> None:
        task = asyncio.create_task(coroutine)
        self._background.add(task)
        task.add_done_callback(self._background.discard)

    async def _shut(self) -> None:
        """Wait for what is under way and destroy what is left."""
        self._closing = True
        if self._sentinel is not None:
            self.discard(self._sentinel)
        faults: list[BaseException] = []
        try:
            while self._background or not self._ready.empty():
                ended = await asyncio.gather(*self._background, return_exceptions=True)
                faults += [error for error in ended if isinstance(error, BaseException)]
                while not self._ready.empty():
                    guest = self._ready.get_nowait()
                    if isinstance(guest, Guest):
                        self.discard(guest)
        finally:
            await self._backend.close()
        if faults:
            raise faults[0]


def killed(out_of_memory: bool, limits: Limits, reason: str) -> Outcome:
    """Return the outcome of what took its sandbox down; for memory, that is the verdict."""
    if out_of_memory:
        return Outcome(Verdict.MEMORY, detail=f"used more than {limits.memory_mb} MB and took its sandbox down")
    return Outcome(Verdict.KILLED, detail=reason[:1000])


class _Tests:
    """The tests of one program: a sandbox for all of them, another one after a death.

    Tests are sent some at a time. Once a sandbox has died, they are sent one by one, which tells whose doing it was.
    """

    def __init__(self, pool: PooledSandbox, program: Program, inputs: Sequence[bytes]):
        self._pool = pool
        self._inputs = inputs
        self._job = tests_job(program, pool.limits)
        self._guest: Guest | None = None
        self._deaths = 0
        self._faults = 0

    async def run(self) -> list[Outcome]:
        """Run every test once, and again those that a machine under load may have let time out."""
        outcomes: list[Outcome] = []
        careful = False
        while len(outcomes) < len(self._inputs):
            if careful:
                outcomes.append(await self._alone(len(outcomes)))
                continue
            try:
                await self._some(outcomes)
            except GuestDied as death:
                careful = True
                await self._blame(death)
        for index, outcome in enumerate(outcomes):
            if outcome.verdict is Verdict.TIMEOUT and outcome.cpu_seconds < 0.1 * self._pool.limits.wall:
                outcomes[index] = await self._alone(index)
        return outcomes

    async def release(self) -> None:
        """Let the sandbox go."""
        guest, self._guest = self._guest, None
        if guest is not None:
            await self._pool.give_back(guest)

    async def _some(self, outcomes: list[Outcome]) -> None:
        """Run the next tests in one go."""
        first = end = len(outcomes)
        size = 0
        while end < len(self._inputs) and end - first < TESTS_AT_ONCE and (end == first or size < BYTES_AT_ONCE):
            size += len(self._inputs[end])
            end += 1
        job = None
        if self._guest is None:
            self._guest, job = await self._pool.take(), self._job
        last = end == len(self._inputs) and self._pool.reuses(self._guest)
        usable = await self._guest.test_many(first, self._inputs[first:end], self._pool.limits, outcomes, job, reset=last)
        if not usable:
            self.drop()
        elif last:
            self._pool.put(self._guest)
            self._guest = None

    async def _alone(self, index: int) -> Outcome:
        """Run one test. A death is the program's only when it happens again in a fresh sandbox of a machine that is well."""
        if self._deaths >= DEATHS_PER_PROGRAM:
            return Outcome(Verdict.NOT_RUN, detail=f"the program took {self._deaths} sandboxes down before")
        deaths = 0
        out_of_memory = False
        while True:
            try:
                guest = await self._loaded()
                outcome, usable = await guest.test(index, self._inputs[index], self._pool.limits)
                if not usable:
                    self.drop()
                return outcome
            except GuestDied as death:
                assert self._guest is not None
                out_of_memory = out_of_memory or await self._guest.ran_out_of_memory()
                if await self._blame(death):
                    deaths += 1
                if deaths == 2:
                    self._deaths += 1
                    return killed(out_of_memory, self._pool.limits, f"the sandbox died in this test, twice: {death}")

    async def _loaded(self) -> Guest:
        if self._guest is None:
            self._guest = await self._pool.take()
            await self._guest.load(self._job)
        return self._guest

    async def _blame(self, death: GuestDied) -> bool:
        guest = self._guest
        assert guest is not None
        self.drop()
        if await self._pool.blame(guest):
            return True
        self._faults += 1
        if self._faults >= FAULTS_PER_PROGRAM:
            raise SandboxError(f"The sandbox engine failed {self._faults} times under one program: {death}")
        return False

    def drop(self) -> None:
        """Throw the sandbox away."""
        if self._guest is not None:
            self._pool.discard(self._guest)
            self._guest = None
