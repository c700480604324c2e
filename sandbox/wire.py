"""The wire to the supervisor inside a sandbox (`guest/runner.py`), over whatever stream of bytes a backend has.

Everything that comes out is untrusted: frames are sized, numbered and bounded in time, and a violation ends the sandbox.
"""

from __future__ import annotations

import asyncio
import json
import struct
from dataclasses import asdict
from typing import Any, Protocol

from sandbox.base import Limits, Outcome, Program, Verdict

HEADER_CAP = 1 << 18
GRACE_SECONDS = 20.0
"""How much longer than a test's wall limit the host waits for its frame before it gives the sandbox up."""

BUILD_SECONDS = 150.0
"""How long the host waits for a program to be built; the supervisor's own limit is shorter."""


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

    async def destroy(self) -> None:
        """End the sandbox and all that runs in it."""
        ...


class Guest:
    """A sandbox whose supervisor waits for one program.

    Args:
        stream: the started sandbox.
    """

    def __init__(self, stream: Stream):
        self._stream = stream
        self._buffer = bytearray()

    def alive(self) -> bool:
        """Return False when the sandbox has already ended, as after a restart of the engine."""
        return self._stream.alive()

    async def ready(self, timeout: float) -> None:
        """Wait for the supervisor's first frame.

        Raises:
            GuestDied: it did not come.
        """
        try:
            header, _ = await asyncio.wait_for(self._frame(0), timeout)
        except TimeoutError:
            raise GuestDied(f"the supervisor was not ready after {timeout:.0f} s") from None
        if header.get("ready") != 1:
            raise GuestDied("the supervisor did not introduce itself")

    async def load(self, program: Program, limits: Limits) -> None:
        """Hand the program over and wait until it is built.

        Raises:
            GuestDied: the sandbox did not outlive that.
        """
        job = json.dumps(
            {
                "source": program.source,
                "entry": program.entry,
                "cpu": limits.cpu_seconds,
                "wall": limits.wall,
                "memory": limits.memory_mb << 20,
                "output": limits.output_kb << 10,
                "toolchain": None if program.toolchain is None else asdict(program.toolchain),
            }
        ).encode()
        try:
            async with asyncio.timeout(BUILD_SECONDS):
                await self._send(struct.pack(">I", len(job)) + job)
                await self._frame(0)  # the program is built, or can't be; its tests will tell
        except TimeoutError:
            raise GuestDied(f"the program was not built after {BUILD_SECONDS:.0f} s") from None

    async def test(self, identity: int, data: bytes, limits: Limits) -> tuple[Outcome, bool]:
        """Run one test; return its outcome and whether the sandbox may run another.

        Raises:
            GuestDied: no valid frame came, for whatever reason.
        """
        try:
            async with asyncio.timeout(limits.wall + GRACE_SECONDS):
                await self._send(struct.pack(">II", identity, len(data)) + data)
                header, answer = await self._frame(limits.output_kb << 10)
        except TimeoutError:
            raise GuestDied("no frame in time") from None
        try:
            if header["id"] != identity:
                raise GuestDied("a frame for another test")
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
            raise GuestDied(f"a malformed frame: {error!r}") from None
        return outcome, header.get("clean") is True

    async def destroy(self) -> None:
        """End the sandbox."""
        await self._stream.destroy()

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
