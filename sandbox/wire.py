"""The wire to the supervisor inside a sandbox (`guest/supervisor.py`), over whatever stream of bytes a backend has.

Everything that comes out is untrusted: frames are sized, numbered and bounded in time, and a violation ends the sandbox.
"""

from __future__ import annotations

import asyncio
import json
import math
import struct
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import asdict, replace
from typing import Any, Protocol

from sandbox.base import Limits, Outcome, Program, Verdict
from sandbox.endings import DETAIL, Ending, Malformed
from sandbox.waking import waking_timeout

HEADER_CAP = 1 << 16
GRACE_SECONDS = 20.0
"""How much longer than a test's wall limit the host waits for its frame before it gives the sandbox up."""

BUILD_SECONDS = 150.0
"""How long the host waits for a program to be built, where one is; the supervisor's own limit is shorter."""

RESET_SECONDS = 5.0
END, CLOSE = 0xFFFFFFFF, 0xFFFFFFFE
"""In place of a test's id: the program is done; the program's process is."""


class GuestDied(Exception):
    """The sandbox ended, or broke the protocol, in the middle of a test; or its engine went away."""


class Stream(Protocol):
    """A started sandbox, seen as bytes. Reading and writing raise OSError when it is broken."""

    async def read(self) -> bytes:
        """Return the next bytes of the supervisor's stdout, empty at its end."""
        ...

    async def write(self, data: bytes) -> None:
        """Send bytes to the supervisor's stdin."""
        ...

    def alive(self) -> bool:
        """Return False when the stream has already ended."""
        ...

    async def ran_out_of_memory(self) -> bool:
        """Return whether the kernel has killed a process of this sandbox for memory, where that can be told."""
        ...

    async def destroy(self) -> None:
        """End the sandbox and all that runs in it."""
        ...


def tests_job(program: Program, limits: Limits) -> dict[str, Any]:
    """Return the job of running a program's tests, each in a process of its own."""
    built = None if program.toolchain is None else asdict(program.toolchain)
    return {
        "mode": "tests",
        "source": program.source,
        "entry": program.entry,
        "toolchain": built,
        "preamble": program.preamble,
        **_bounds(limits),
    }


def calls_job(source: str, env: Mapping[str, str], limits: Limits) -> dict[str, Any]:
    """Return the job of loading a Python program once and answering calls of its functions."""
    return {"mode": "calls", "source": source, "entry": None, "toolchain": None, "env": dict(env), **_bounds(limits)}


def evaluator_job(
    files: dict[str, tuple[int, str]],
    evaluator: str,
    program: str,
    source: str | None,
    thresholds: list[float] | None,
    checked: bool,
    env: Mapping[str, str],
    limits: Limits,
) -> dict[str, Any]:
    """Return the job of calling an evaluator once.

    Args:
        files: mode and base64 content by path in the evaluator's folder.
        evaluator: path of the evaluator in it.
        program: name of the candidate's file.
        source: the candidate, or None where it is separated.
        thresholds: of the stages; None for `evaluate` alone.
        checked: whether a separated candidate's values are checked before the evaluator gets them.
        env: variables of the environment.
        limits: of the whole evaluation.
    """
    task = {
        "files": files,
        "evaluator": evaluator,
        "program": program,
        "thresholds": thresholds,
        "checked": checked,
        "env": dict(env),
    }
    kind = {"mode": "evaluator", "source": source or "", "separated": source is None, "entry": None, "toolchain": None}
    return {**kind, **task, **_bounds(limits)}


def _sized(job: dict[str, Any]) -> bytes:
    data = json.dumps(job).encode()
    return struct.pack(">I", len(data)) + data


def _load_seconds(job: dict[str, Any]) -> float:
    """Return how long the word that a program is built may take; it may come with the frame of the first test."""
    return float(job["wall"]) + (BUILD_SECONDS if job["toolchain"] else GRACE_SECONDS)


def _body_cap(limits: Limits) -> int:
    """Return the bytes that may follow a frame's header: an answer, or a reason, and the ends of two streams."""
    return (limits.output_kb << 10) + 3 * HEADER_CAP


def _bounds(limits: Limits) -> dict[str, Any]:
    return {
        "cpu": limits.cpu_seconds,
        "wall": limits.wall,
        "memory": limits.memory_mb << 20,
        "output": limits.output_kb << 10,
    }


class Guest:
    """A sandbox whose supervisor waits for one program.

    Args:
        stream: the started sandbox.
        generation: how often the machine had failed when it was started; see `PooledSandbox`.
    """

    def __init__(self, stream: Stream, generation: int = 0):
        self._stream = stream
        self._buffer = bytearray()
        self._is_function = True
        self._is_evaluator = False
        self._other_language = False
        self.generation = generation
        self.programs = 0

    def alive(self) -> bool:
        """Return False when the sandbox has already ended, as after a restart of the engine."""
        return self._stream.alive()

    async def ready(self, timeout: float) -> None:
        """Wait for the supervisor's first frame.

        Raises:
            GuestDied: it did not come.
        """
        try:
            async with waking_timeout(timeout):
                header, _ = await self._frame(0)
        except TimeoutError:
            raise GuestDied(f"the supervisor was not ready after {timeout:.0f} s") from None
        if header.get("ready") != 1:
            raise GuestDied("the supervisor did not introduce itself")

    async def ran_out_of_memory(self) -> bool:
        """See `Stream.ran_out_of_memory`."""
        return await self._stream.ran_out_of_memory()

    def _takes(self, job: dict[str, Any]) -> None:
        """Remember how the frames of a job's tests are to be read."""
        self.programs += 1
        self._is_function = job["mode"] != "tests" or job["entry"] is not None
        self._is_evaluator = job["mode"] == "evaluator"
        self._other_language = job["toolchain"] is not None

    async def load(self, job: dict[str, Any]) -> None:
        """Hand a job over and wait until its program is built.

        Raises:
            GuestDied: the sandbox did not outlive that.
        """
        self._takes(job)
        seconds = _load_seconds(job)
        try:
            async with waking_timeout(seconds):
                await self._send(_sized(job))
                await self._frame(0)  # the program is built, or can't be; its tests will tell
        except TimeoutError:
            raise GuestDied(f"the program was not built after {seconds:.0f} s") from None

    async def test(self, identity: int, data: bytes, limits: Limits) -> tuple[Outcome, bool]:
        """Run one test, or answer one call; return its outcome and whether the sandbox may run another.

        Raises:
            GuestDied: no valid frame came, for whatever reason.
        """
        try:
            async with waking_timeout(limits.wall + GRACE_SECONDS):
                await self._send(struct.pack(">II", identity, len(data)) + data)
                header, body = await self._frame(_body_cap(limits))
        except TimeoutError:
            raise GuestDied("no frame in time") from None
        return self._outcome(identity, header, body, limits)

    async def test_many(
        self,
        first: int,
        inputs: Sequence[bytes],
        limits: Limits,
        outcomes: list[Outcome],
        job: dict[str, Any] | None = None,
        reset: bool = False,
    ) -> bool:
        """Run tests that are all sent at once; return whether the sandbox may run another.

        Args:
            first: id of the first test; the others count from it.
            inputs: of the tests.
            limits: of each.
            outcomes: gets one outcome after the other; fewer than inputs when the sandbox may not be used any more.
            job: to be loaded first.
            reset: make the sandbox ready for another program afterwards.

        Raises:
            GuestDied: no valid frame came for the next test, for whatever reason.
        """
        parts = [] if job is None else [_sized(job)]
        parts += [struct.pack(">II", identity, len(test)) + test for identity, test in enumerate(inputs, start=first)]
        parts += [struct.pack(">II", END, 0)] if reset else []
        if job is not None:
            self._takes(job)
        sending = asyncio.create_task(self._send(b"".join(parts)))
        try:
            if job is not None:
                async with waking_timeout(_load_seconds(job)):
                    await self._frame(0)  # the program is built, or can't be; its tests will tell
            for identity in range(first, first + len(inputs)):
                async with waking_timeout(limits.wall + GRACE_SECONDS):
                    header, body = await self._frame(_body_cap(limits))
                outcome, usable = self._outcome(identity, header, body, limits)
                outcomes.append(outcome)
                if not usable:
                    return False
            await sending
            return not reset or "reset" in await self._control(b"")
        except TimeoutError:
            raise GuestDied("no frame in time") from None
        finally:
            sending.cancel()
            await asyncio.gather(sending, return_exceptions=True)

    async def evaluate(self, answer_call: Callable[[int, bytes | None], Awaitable[bytes]], limits: Limits) -> Outcome:
        """Let the loaded evaluator run; return what it gave.

        Args:
            answer_call: given the number of an instance of the candidate and a request, returns the answer; given None in
                place of a request, ends that instance. Calls of several instances may overlap.
            limits: of the evaluation.

        Raises:
            GuestDied: no valid frame came, for whatever reason; also raised by `answer_call`.
        """
        calls: set[asyncio.Task[Any]] = set()
        try:
            async with waking_timeout(limits.wall + GRACE_SECONDS):
                await self._send(struct.pack(">II", 0, 0))
                while True:
                    frame = asyncio.create_task(self._frame(_body_cap(limits)))
                    calls.add(frame)
                    while not frame.done():
                        done, _ = await asyncio.wait(calls, return_when=asyncio.FIRST_COMPLETED)
                        calls -= done
                        for call in done - {frame}:
                            call.result()
                    header, data = frame.result()
                    number = header.get("call", header.get("closed"))
                    if number is None:
                        return self._outcome(0, header, data, limits)[0]
                    if type(number) is not int or not 0 < number < END:
                        raise GuestDied("a malformed frame")
                    request = data if "call" in header else None
                    calls.add(asyncio.create_task(self._answer(answer_call, number, request)))
        except TimeoutError:
            raise GuestDied("no frame in time") from None
        finally:
            for call in calls:
                call.cancel()
            await asyncio.gather(*calls, return_exceptions=True)

    async def _answer(
        self, answer_call: Callable[[int, bytes | None], Awaitable[bytes]], number: int, request: bytes | None
    ) -> None:
        answer = await answer_call(number, request)
        if request is not None:
            await self._send(struct.pack(">II", number, len(answer)) + answer)

    async def close_calls(self) -> bool:
        """End the program that answers calls; return whether the sandbox may load it anew."""
        return (await self._control(struct.pack(">II", CLOSE, 0))).get("clean") is True

    async def reset(self) -> bool:
        """Make the sandbox ready for another program; return False when it isn't."""
        return "reset" in await self._control(struct.pack(">II", END, 0))

    async def destroy(self) -> None:
        """End the sandbox."""
        await self._stream.destroy()

    async def _control(self, data: bytes) -> dict[str, Any]:
        """Return the frame that says that the supervisor is done with something; empty when it isn't."""
        try:
            async with waking_timeout(RESET_SECONDS):
                await self._send(data)
                return (await self._frame(0))[0]
        except (TimeoutError, GuestDied):
            return {}

    def _outcome(self, identity: int, header: dict[str, Any], body: bytes, limits: Limits) -> tuple[Outcome, bool]:
        if header.get("id") != identity:
            raise GuestDied("a frame for another test")
        if "broken" in header:
            outcome = Outcome(Verdict.EXCEPTION, detail=str(header["broken"])[:DETAIL], loaded=False)
        elif header.get("reply") is True:
            wall = header.get("wall")
            outcome = Outcome(None, body, wall_seconds=wall if type(wall) is float and 0 <= wall < math.inf else 0.0)
        else:
            try:
                ending = Ending.of(header, body)
                outcome = ending.outcome(limits, self._is_function, self._other_language)
                if self._is_evaluator:
                    outcome = replace(outcome, printed=ending.stdout.decode("utf-8", "replace"))
            except Malformed as error:
                raise GuestDied(str(error)) from None
        return outcome, header.get("clean") is True

    async def _send(self, data: bytes) -> None:
        try:
            await self._stream.write(data)
        except OSError as error:
            raise GuestDied(f"the stream broke: {error}") from None

    async def _frame(self, answer_cap: int) -> tuple[dict[str, Any], bytes]:
        header_size, answer_size = struct.unpack(">II", await self._take(8))
        if header_size > HEADER_CAP or answer_size > answer_cap:
            raise GuestDied("a frame larger than allowed")
        text = await self._take(header_size)
        answer = await self._take(answer_size)
        try:
            header = json.loads(text)
        except (ValueError, RecursionError):
            raise GuestDied("a frame that is not JSON") from None
        if not isinstance(header, dict):
            raise GuestDied("a frame that is not an object")
        return header, answer

    async def _take(self, size: int) -> bytes:
        while len(self._buffer) < size:
            try:
                piece = await self._stream.read()
            except OSError as error:
                raise GuestDied(f"the stream broke: {error}") from None
            if not piece:
                raise GuestDied("the sandbox ended")
            self._buffer += piece
        taken = bytes(self._buffer[:size])
        del self._buffer[:size]
        return taken
