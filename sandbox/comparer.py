"""Compare large untrusted answers in a process beside this one, whose event loop must not wait for them.

`python -m sandbox.comparer` is that process: it ends with its owner, whose end of its stdin closes.
"""

from __future__ import annotations

import asyncio
import pickle
import resource
import signal
import struct
import subprocess
import sys
import threading
from typing import IO, Any

from sandbox.base import SandboxError
from sandbox.compare import Comparison, Read, read

SMALL_BYTES = 8192
"""Answers up to this size are compared here: that takes less time than asking."""

CPU_SECONDS = 10.0
"""Of one comparison; an answer that takes longer is invalid."""

WALL_SECONDS = 300.0
MEMORY_BYTES = 4 << 30


class Comparer:
    """Reads and compares answers.

    Args:
        comparison: how.
        is_function: whether answers are JSON values (else the text of stdout).
    """

    def __init__(self, comparison: Comparison, is_function: bool):
        self._comparison = comparison
        self._is_function = is_function
        self._process: subprocess.Popen[bytes] | None = None
        self._turn = asyncio.Lock()

    async def read(self, answer: bytes, expected: Any) -> Read:
        """Read an answer and compare it with the expected value; one that takes too much time or memory is invalid.

        Raises:
            SandboxError: the process that compares doesn't answer.
        """
        if len(answer) <= SMALL_BYTES:
            return read(answer, self._is_function, expected, self._comparison)
        async with self._turn:
            return await asyncio.to_thread(self._ask, answer, expected)

    def close(self) -> None:
        """End the process, if one was needed (blocking, milliseconds)."""
        if self._process is not None:
            self._process.kill()
            self._process.wait()
            assert self._process.stdin is not None and self._process.stdout is not None
            self._process.stdin.close()
            self._process.stdout.close()
            self._process = None

    def _ask(self, answer: bytes, expected: Any) -> Read:
        if self._process is None:
            command = [sys.executable, "-P", "-m", "sandbox.comparer"]
            self._process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, start_new_session=True)
        process = self._process
        assert process.stdin is not None and process.stdout is not None
        watchdog = threading.Timer(WALL_SECONDS, process.kill)
        watchdog.daemon = True
        watchdog.start()
        try:
            send(process.stdin, (CPU_SECONDS, (answer, self._is_function, expected, self._comparison)))
            found: Read = receive(process.stdout)
        except (OSError, EOFError) as error:
            self.close()
            raise SandboxError(f"The process that compares large answers has ended ({error!r}).") from error
        finally:
            watchdog.cancel()
        return found


def send(stream: IO[bytes], value: Any) -> None:
    """Write one value."""
    data = pickle.dumps(value)
    stream.write(struct.pack(">Q", len(data)) + data)
    stream.flush()


def receive(stream: IO[bytes]) -> Any:
    """Read one value of our own process at the other end. Raises EOFError at the end of the stream."""
    head = stream.read(8)
    if len(head) < 8:
        raise EOFError("nothing more came")
    return pickle.loads(stream.read(struct.unpack(">Q", head)[0]))


class _TooLong(Exception):
    """The CPU time is used up."""


def _stop(*_: object) -> None:
    raise _TooLong


def serve() -> None:
    """Compare until the owner is gone."""
    resource.setrlimit(resource.RLIMIT_AS, (MEMORY_BYTES, MEMORY_BYTES))
    signal.signal(signal.SIGPROF, _stop)
    while True:
        try:
            seconds, asked = receive(sys.stdin.buffer)
        except EOFError:
            return
        try:
            signal.setitimer(signal.ITIMER_PROF, seconds)
            found = read(*asked)
            signal.setitimer(signal.ITIMER_PROF, 0)
        except _TooLong:
            found = Read(invalid=f"takes more than {seconds:g} s of CPU time to read and compare")
        except MemoryError:
            found = Read(invalid=f"takes more than {MEMORY_BYTES >> 30} GB of memory to read and compare")
        finally:
            signal.setitimer(signal.ITIMER_PROF, 0)
        send(sys.stdout.buffer, found)


if __name__ == "__main__":
    serve()
