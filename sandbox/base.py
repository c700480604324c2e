"""The contract of a sandbox: programs and inputs go in, answers and reasons for missing answers come out.

A sandbox never sees an expected value and never gives a score; `sandbox.judge` does that on the host. What a program
does wrong is an `Outcome`. What goes wrong with the machine is a `SandboxError`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from types import TracebackType
from typing import Protocol, Self


class Verdict(StrEnum):
    """What became of one test. Only `PASS` and, with a checker, `WRONG` can carry a score above 0."""

    PASS = "pass"
    WRONG = "wrong"
    EXCEPTION = "exception"
    SIGNAL = "signal"
    EXIT = "exit"
    """The program ended without giving an answer."""
    INVALID = "invalid"
    """The answer is not plain data: NaN, a set, a cycle, bytes that are not strict JSON, ..."""
    OUTPUT = "output"
    """More output than the limit."""
    TIMEOUT = "timeout"
    """The wall-clock limit, with CPU time to spare."""
    CPU = "cpu"
    MEMORY = "memory"
    KILLED = "killed"
    """The program took its sandbox down, twice, in this test."""
    NOT_RUN = "not-run"
    """The program took too many sandboxes down in earlier tests."""


@dataclass(frozen=True, slots=True)
class Limits:
    """Limits of one test. CPU time is the limit that counts; wall time only ends what waits.

    Args:
        cpu_seconds: CPU time of a test's process and all that it starts.
        wall_seconds: elapsed time; None means three times `cpu_seconds` plus one second.
        memory_mb: address space above the interpreter's own, and the memory of the whole container.
        output_kb: size of an answer.
    """

    cpu_seconds: float = 2.0
    wall_seconds: float | None = None
    memory_mb: int = 256
    output_kb: int = 1024

    @property
    def wall(self) -> float:
        """Wall-clock limit in seconds."""
        return self.wall_seconds if self.wall_seconds is not None else 3 * self.cpu_seconds + 1


@dataclass(frozen=True, slots=True)
class Toolchain:
    """How a program in a language other than Python is built and run, in the scratch folder of its sandbox.

    Args:
        file: name that the source gets.
        build: command that is run once; empty for interpreted languages. What it leaves is put back before each test.
        run: command that is run per test.
    """

    file: str
    build: tuple[str, ...]
    run: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Program:
    """Untrusted source text.

    Args:
        source: its text.
        entry: name of the Python function that is called with a test's arguments; None for a program that reads stdin
            and writes stdout.
        toolchain: for a stdin program in another language than Python.
        preamble: Python that runs before it, in its namespace, such as a benchmark's imports.
    """

    source: str
    entry: str | None
    toolchain: Toolchain | None = None
    preamble: str = ""


@dataclass(frozen=True, slots=True)
class Outcome:
    """What one test of one program gave.

    Attributes:
        verdict: why there is no answer, or None when there is one.
        answer: the untrusted bytes (strict JSON is still to be checked for functions; stdout for stdin programs).
        detail: one line for people and prompts, such as the last line of a traceback.
        stderr: the end of what the program wrote to stderr.
        loaded: whether the program's own code was reached by a test's arguments; False for a program that does not
            compile, fails at import or lacks the entry function.
        cpu_seconds: CPU time of the test's process and of all that it started, by the container's control group where there
            is one.
        wall_seconds: elapsed time; never a score, because it depends on the load of the machine.
        printed: the end of what a stdin program that failed, or an evaluator, wrote to stdout, for people and prompts.
    """

    verdict: Verdict | None
    answer: bytes = b""
    detail: str = ""
    stderr: str = ""
    loaded: bool = True
    cpu_seconds: float = 0.0
    wall_seconds: float = 0.0
    printed: str = ""


class SandboxError(Exception):
    """The machine, not the program, is at fault: no score may come from it."""


class EngineUnavailable(SandboxError):
    """No sandbox can be started; the text says what to do."""


class CheckerError(SandboxError):
    """A problem's `checker.py` failed or gave something that is not a score in [0, 1]."""


class Sandbox(Protocol):
    """Runs untrusted programs.

    Implementations are asynchronous context managers: entering starts what is needed and proves that the limits bite,
    leaving removes everything that was started.
    """

    @property
    def level(self) -> str:
        """Name of the isolation, stored with every score, such as `docker-oneshot`."""
        ...

    async def run(self, program: Program, inputs: Sequence[bytes]) -> list[Outcome]:
        """Run `program` once per input, each in a process of its own.

        Args:
            program: the untrusted program.
            inputs: for a function, the JSON array of its positional arguments; for a stdin program, its stdin.

        Returns:
            One outcome per input, in order. Tests cannot see one another's inputs or state.

        Raises:
            SandboxError: the machine failed, after retries; nothing may be concluded about the program.
        """
        ...

    async def __aenter__(self) -> Self: ...

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None: ...
