"""What the end of a child means: from facts and bytes that a sandbox passed on to an outcome. The first reason applies."""

from __future__ import annotations

import os
import signal
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Self

from sandbox.base import Limits, Outcome, Verdict

DETAIL = 1000
"""Characters of a reason that are kept."""


class Malformed(ValueError):
    """A frame that says something else than a frame may."""


@dataclass(frozen=True, slots=True)
class Ending:
    """How a child ended, as its supervisor saw it.

    Attributes:
        status: as `wait4` gives it.
        ended: the limit that it met: `timeout`, `cpu`, `output`; None when it ended by itself.
        out_of_memory: whether the kernel killed a process of the container for memory meanwhile.
        cpu_seconds: of it and all that it started.
        wall_seconds: until everything was reaped.
        report: what it reported: `L` when the program has compiled, or a test's arguments have reached it; then a letter and
            its text: an answer `A`, an exception `E`, memory `M`, a value that is not plain `I`, an exit `X`.
        stdout: what it wrote; of a function or of a program that did not end by itself, only the end.
        stderr: the end of what it wrote.
    """

    status: int
    ended: str | None
    out_of_memory: bool
    cpu_seconds: float
    wall_seconds: float
    report: bytes
    stdout: bytes
    stderr: bytes

    @classmethod
    def of(cls, header: Mapping[str, Any], body: bytes) -> Self:
        """Return the ending that a frame tells of.

        Raises:
            Malformed: the frame says something else.
        """
        try:
            report, stdout, stderr = header["parts"]
            if not all(type(size) is int and size >= 0 for size in header["parts"]) or report + stdout + stderr != len(body):
                raise Malformed("a frame whose parts don't add up")
            ended = header["ended"]
            if ended not in (None, "timeout", "cpu", "output", "closed"):
                raise Malformed("a frame with an unknown end")
            os.waitstatus_to_exitcode(header["status"])
            return cls(
                header["status"],
                ended,
                header["oom"] is True,
                float(header["cpu"]),
                float(header["wall"]),
                body[:report],
                body[report : report + stdout],
                body[report + stdout :],
            )
        except (KeyError, TypeError, ValueError, OverflowError) as error:
            raise error if isinstance(error, Malformed) else Malformed(f"a malformed frame: {error!r}") from None

    def outcome(self, limits: Limits, is_function: bool = True, other_language: bool = False) -> Outcome:
        """Return what the end means.

        Args:
            limits: that the child had.
            is_function: whether its report is its answer; else its stdout is, when it ends with exit code 0.
            other_language: whether nothing of ours ran in it, so that it reports nothing.
        """
        loaded = other_language or self.report[:1] == b"L"
        report = self.report[1:] if self.report[:1] == b"L" else self.report
        verdict, detail = self._reason(limits, is_function, loaded, report)
        answer = b""
        if verdict is None:
            answer = report[1:] if is_function else self.stdout
            if len(answer) > limits.output_kb << 10:
                verdict, detail, answer = Verdict.OUTPUT, _too_much(limits), b""
        return Outcome(
            verdict,
            answer,
            detail,
            self.stderr.decode("utf-8", "replace"),
            loaded,
            self.cpu_seconds,
            self.wall_seconds,
            "" if verdict is None or is_function else self.stdout.decode("utf-8", "replace"),
        )

    def _reason(self, limits: Limits, is_function: bool, loaded: bool, report: bytes) -> tuple[Verdict | None, str]:
        """Return the verdict, or None when there is an answer, and a line about it."""
        code = os.waitstatus_to_exitcode(self.status)
        kind, message = report[:1], report[1 : 1 + 4 * DETAIL].decode("utf-8", "replace")[:DETAIL]
        if self.out_of_memory:
            return Verdict.MEMORY, f"used more than {limits.memory_mb} MB"
        if self.ended == "output":
            return Verdict.OUTPUT, _too_much(limits)
        if self.ended == "cpu" or code == -signal.SIGXCPU or self.cpu_seconds >= limits.cpu_seconds:
            return Verdict.CPU, f"used more than {limits.cpu_seconds:g} s of CPU time"
        if self.ended is not None:
            return Verdict.TIMEOUT, f"not done after {limits.wall:g} s"
        if code < 0:
            name = signal.Signals(-code).name if -code in set(signal.Signals) else str(-code)
            return Verdict.SIGNAL, f"ended by {name}"
        if not is_function and code == 0 and loaded:
            return None, ""
        if is_function and code == 0 and kind == b"A":
            return None, ""
        known = {b"E": Verdict.EXCEPTION, b"M": Verdict.MEMORY, b"I": Verdict.INVALID}
        if kind in known:
            return known[kind], message
        return Verdict.EXIT, message or f"ended with exit code {code} and no answer"


def _too_much(limits: Limits) -> str:
    return f"wrote more than {limits.output_kb} KB (the limit output_kb) to stdout, stderr or as its answer"
