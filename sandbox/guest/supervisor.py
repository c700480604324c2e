"""PID 1 of a sandbox: fork a fresh child per test, bound it, report what it gave.

Covered: a child can neither end, trace, re-nice nor read this process; sees one test's input; leaves no process and no
file for the next test; is bound in CPU time, memory, output, files and system calls. Not covered: the truth of an answer.
Children run untrusted code and may report whatever they like, so this process only passes on what they wrote and how they
ended (exit status, limits met, CPU seconds); what that means, expected values and scores exist on the host alone.

Wire (big endian). From the host: u32 size, JSON job; then per test u32 id, u32 size, input bytes; several tests may be on
their way. To the host, first an empty-handed frame with `ready`, then a frame per test: u32 header size, u32 answer size,
JSON header, answer bytes. A test's input is spliced inside the kernel into the child's pipe, and what comes out of the child
into the frame: were either read here, later children could inherit a copy.

A job's `mode` is `tests`; `calls` (the program is loaded once and answers calls, until CLOSE); or `evaluator` (an evaluator
runs once, and its calls to the candidate go to the host and come back). END makes the sandbox ready for another program,
where it was started to be re-used: then each program gets a user of its own, and the children are forked from a process that
never holds anything of a program (`forks.py`).
"""

from __future__ import annotations

import gc
import json
import os
import signal
import struct
import time
from typing import TYPE_CHECKING, Any

from . import child, forks, toolchain
from .frames import Frames, read_exactly
from .machine import SCRATCH, Machine, MemoryKiller
from .pump import Pump, swallow
from .seccomp import build_filter, install_filter

if TYPE_CHECKING:
    from .relay import Relay

PR_SET_DUMPABLE = 4
CHATTER = 4 << 20  # bytes of stdout or stderr that a test may write beside its answer
MESSAGE = 4096  # bytes of a report that is no answer
TAIL = 2000  # bytes of stderr, and of stdout that is no answer, that the host gets
END, CLOSE = 0xFFFFFFFF, 0xFFFFFFFE  # in place of a test's id
FIRST_USER, USERS = 20_000, 40_000


class Attempt:
    """One bounded child and everything that it starts.

    Args:
        task: what the child does, and how it is bound; see `child.begin`.
        sandbox: what children have in common.
        size: bytes of input that the host has announced.
        caps: bytes that may come on stdout, stderr and the report.
        answers_calls: see `Pump`.
    """

    def __init__(
        self, task: forks.Task, sandbox: Sandbox, size: int, caps: tuple[int, int, int], answers_calls: bool = False
    ):
        self.pump = Pump(size, caps, answers_calls)
        self._kills = sandbox.machine.kills
        self._kills.more()  # those of others don't count
        self.started = time.monotonic()
        self.meter = sandbox.machine.meter(task["cpu"])
        self.process = self.pump.start(sandbox.forks, task)

    def run(self, wall: float, relay: Relay | None = None) -> dict[str, Any]:
        """Let the child run to its end; see `finish`."""
        return self.finish(self.pump.run(self.process, self.started + wall, self.meter, relay))

    def finish(self, ended: str | None) -> dict[str, Any]:
        """End and reap everything; return the facts that the host judges: nothing is concluded here."""
        end = self.process.finish(kill=ended is not None)
        cpu = self.meter.total(end.reaped, end.others)
        wall = time.monotonic() - self.started
        if self.pump.settle() and ended is None:
            ended = "output"
        return {"status": end.status, "ended": ended, "oom": self._kills.more(), "cpu": cpu, "wall": wall}


class Sandbox:
    """What all programs and their children have in common."""

    def __init__(self, machine: Machine, forks: forks.Forks):
        self.machine, self.forks, self.frames = machine, forks, Frames()


class Program:
    """Serves one program's job.

    Args:
        job: what the host wants.
        sandbox: where.
    """

    def __init__(self, job: dict[str, Any], sandbox: Sandbox):
        self.job, self.sandbox, self.machine = job, sandbox, sandbox.machine
        self.send = sandbox.frames.send
        work = {"tests": "run" if job["toolchain"] else "execute"}.get(job["mode"], job["mode"])
        # Libraries such as JAX reserve address space for the memory of a whole machine: what evaluators use is bounded by
        # the container's memory where there is such a bound.
        unbounded = work == "run" or (job["mode"] != "tests" and self.machine.kills.counted)
        measured = {"metered": self.machine.cpu.read() is not None, "space": 0 if unbounded else self.machine.space}
        self.task = job | {"work": work} | measured
        self.built: toolchain.Files = {}
        self.broken = ""
        self.session: Attempt | None = None

    def serve(self) -> bool:
        """Serve until the host says END; return whether this sandbox is as it was before. Returns early where it isn't."""
        if self.job["toolchain"]:
            self.build()
            if not self.machine.clean_scratch():
                return False
        self.send({"built": not self.broken}, may_wait=True)
        step = {"tests": self.test, "calls": self.call, "evaluator": self.judge}[self.job["mode"]]
        while True:
            identity, size = struct.unpack(">II", read_exactly(8))
            if identity == END:
                self.sandbox.frames.flush()
                return self.session is None
            if identity == CLOSE:
                clean = self.close_session()
                self.send({"closed": True, "clean": clean})
            else:
                clean = step(identity, size)
            if not clean:
                return False

    def build(self) -> None:
        """Write the source, run the build command, and keep what it left, or why it failed."""
        wanted = self.job["toolchain"]
        source = self.job["source"].encode("utf-8", "surrogatepass")
        toolchain.put_files(SCRATCH, {wanted["file"]: (0o666, source)})
        if wanted["build"]:
            task = self.task | toolchain.SECONDS | {"work": "build"}
            attempt = Attempt(task, self.sandbox, 0, (CHATTER, CHATTER, MESSAGE))
            facts = attempt.run(task["wall"])
            if facts["ended"] or facts["status"] or facts["oom"]:
                code = os.waitstatus_to_exitcode(facts["status"])
                reason = "out of memory" if facts["oom"] else facts["ended"] or f"exit code {code}"
                text = (attempt.pump.err.bytes() or attempt.pump.out.bytes())[-TAIL:].decode("utf-8", "replace")
                self.broken = f"the build failed ({reason}): {text[:800]}"
            attempt.pump.close()
        try:
            self.built = toolchain.take_files(SCRATCH)
        except toolchain.TooMuch as error:
            self.broken = self.broken or f"the build {error}"

    def test(self, identity: int, size: int) -> bool:
        """Run one test in a fresh child and send its frame; return whether this sandbox may be used again."""
        if self.broken:
            swallow(size)
            self.send({"id": identity, "broken": self.broken, "clean": True}, may_wait=True)
            return True
        job, is_function = self.job, self.job["entry"] is not None
        toolchain.put_files(SCRATCH, self.built)
        caps = (CHATTER, CHATTER, job["output"] + 2) if is_function else (job["output"], CHATTER, MESSAGE)
        attempt = Attempt(self.task, self.sandbox, size, caps)
        facts = attempt.run(job["wall"])
        clean = self.machine.clean_scratch()
        self.report(facts | {"id": identity, "clean": clean}, attempt, may_wait=clean)
        return clean

    def report(self, header: dict[str, Any], attempt: Attempt, may_wait: bool = False) -> None:
        """Send what a child left: its report, its stdout and the end of its stderr. What burst its cap is no answer."""
        pump, burst = attempt.pump, header["ended"] == "output"
        whole = header["ended"] is None and self.job["mode"] == "tests" and self.job["entry"] is None
        out = pump.out.size if whole else min(pump.out.size, TAIL)
        parts = [
            (pump.report, 0 if burst else pump.report.size),
            (pump.out, out),
            (pump.err, min(pump.err.size, TAIL)),
        ]
        if pump.replies is not None:
            parts[0] = (pump.report, 0)
        self.send(header, may_wait=may_wait, parts=parts)
        pump.close()

    def call(self, identity: int, size: int) -> bool:
        """Pass one call to the loaded program; a program that ends in it gets a new process for the next call."""
        job = self.job
        if self.session is None:
            caps = (CHATTER, CHATTER, job["output"] + 4)
            self.session = Attempt(self.task, self.sandbox, 0, caps, answers_calls=True)
        session = self.session
        session.pump.remaining += size
        ended = session.pump.run(session.process, time.monotonic() + job["wall"], session.meter)
        if ended == "reply":
            spent = time.monotonic() - session.pump.fed_at
            self.send({"id": identity, "reply": True, "clean": True, "wall": spent}, session.pump.take_reply())
            return True
        facts = session.finish(ended)
        self.session = None
        clean = self.machine.clean_scratch()
        self.report(facts | {"id": identity, "clean": clean}, session)
        return clean

    def close_session(self) -> bool:
        """End the loaded program; return whether this sandbox may be used again."""
        if self.session is not None:
            self.session.finish("closed")
            self.session.pump.close()
            self.session = None
        return self.machine.clean_scratch()

    def judge(self, identity: int, size: int) -> bool:
        """Let an evaluator judge the candidate that it calls through the relay; send what it reports."""
        import base64

        from . import calls
        from .relay import Relay

        swallow(size)
        job = self.job
        home = os.path.dirname(self.machine.marker)
        folder = os.path.join(SCRATCH, "problem")
        files = {name: (mode, base64.b64decode(data)) for name, (mode, data) in job["files"].items()}
        toolchain.put_files(folder, files)
        program = os.path.join(SCRATCH, "candidate", job["program"])
        source = calls.STUB.format(home=home, checked=job["checked"]) if job["separated"] else job["source"]
        toolchain.put_files(SCRATCH, {program: (0o444, source.encode("utf-8", "surrogatepass"))})
        task = self.task | {"files": None, "folder": folder, "program": program, "home": home}
        relay = Relay(calls.SOCKET, job["output"], read_exactly, self.send) if job["separated"] else None
        attempt = Attempt(task, self.sandbox, 0, (CHATTER, CHATTER, job["output"] + 2))
        facts = attempt.run(job["wall"], relay)
        if relay is not None:
            relay.close()
        self.report(facts | {"id": identity, "clean": False}, attempt)
        return False


def serve_program(sandbox: Sandbox, user: int) -> bool:
    """Read a job and serve it; see `Program.serve`."""
    text = read_exactly(*struct.unpack(">I", read_exactly(4)))
    if b"numpy" in text:
        sandbox.forks.expect_numpy()
    return Program(json.loads(text) | {"user": user}, sandbox).serve()


def serve(marker: str, reuse: bool, network: bool = False) -> int:
    """Serve one program, or with `reuse` one after the other, until the host hangs up or something resisted cleaning.

    As root, programs run as users of their own; `reuse` needs that. With `network` sockets of every family may be opened.
    """
    signal.signal(signal.SIGINT, signal.SIG_DFL)  # PID 1 is immune to what it does not handle
    signal.signal(signal.SIGPIPE, signal.SIG_IGN)  # a zygote is not: a child may end without reading its input
    killer = MemoryKiller()
    child.libc.prctl(PR_SET_DUMPABLE, 0, 0, 0, 0)
    while os.dup(2) < child.RESULT:
        pass  # so that no pipe lies where a child wants its own
    machine = Machine(marker)
    if not machine.is_sandbox:
        return 2
    install_filter(build_filter(network))
    compile("", "program.py", "exec")  # the first one makes the compiler's types: 2 ms that no child is to spend
    gc.freeze()  # a child's collections leave these pages shared
    sandbox = Sandbox(machine, forks.Zygote(machine) if reuse else forks.Here(machine, killer))
    sandbox.frames.send({"ready": 1})
    programs = 0
    while serve_program(sandbox, FIRST_USER + programs % USERS):
        if not reuse:
            return 0
        programs += 1
        sandbox.frames.send({"reset": programs})
    return 1
