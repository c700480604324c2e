"""PID 1 of a sandbox: fork a fresh child per test, bound it, report what it gave.

Covered: a child can neither end, trace, re-nice nor read this process; sees one test's input; leaves no process and no
file for the next test; is bound in CPU time, memory, output, files and system calls. Not covered: the truth of an answer.
Children run untrusted code and may report whatever they like, so this process only ever reports *answers*; expected
values and scores exist on the host alone.

Wire (big endian). From the host: u32 size, JSON job; then per test u32 id, u32 size, input bytes; several tests may be on
their way. To the host, first an empty-handed frame with `ready`, then a frame per test: u32 header size, u32 answer size,
JSON header, answer bytes. A test's input is spliced inside the kernel into the child's pipe: were it read here, later
children could inherit a copy.

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
from typing import Any

from . import child, forks, toolchain
from .child import PR_SET_DUMPABLE, SCRATCH
from .frames import Frames, read_exactly
from .machine import Machine
from .pump import TAIL, Pump, swallow
from .seccomp import build_filter, install_filter

CHATTER = 4 << 20  # bytes of stdout or stderr that a test may write beside its answer
END, CLOSE = 0xFFFFFFFF, 0xFFFFFFFE  # in place of a test's id
FIRST_USER, USERS = 20_000, 40_000


class Attempt:
    """One bounded child and everything that it starts.

    Args:
        task: what the child does, and how it is bound; see `child.begin`.
        sandbox: what children have in common.
        size: bytes of input that the host has announced.
        caps: bytes that may come on stdout, stderr and the report.
        keep_open: see `Pump`.
    """

    def __init__(self, task: forks.Task, sandbox: Sandbox, size: int, caps: list[int], keep_open: bool = False):
        self.pump = Pump(size, caps, keep_open)
        self._kills = sandbox.machine.kills
        self._kills.more()  # those of others don't count
        self.started = time.monotonic()
        self.process = self.pump.start(sandbox.forks, task)

    def finish(self, ended: str | None) -> dict[str, Any]:
        """End and reap everything; return what the host is told in any case, with the private keys of `judge_end`."""
        self.status, cpu, survivors = self.process.finish(kill=ended is not None)
        wall = time.monotonic() - self.started
        self.ended = "output" if self.pump.drain() and ended is None else ended
        self.streams = self.pump.close()
        self.oom = self._kills.more()
        stderr = self.streams[1].decode("utf-8", "replace")
        return {"cpu": cpu, "wall": wall, "survivors": survivors, "stderr": stderr}


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
        self.task = job | {"work": work, "space": 0 if work == "run" else self.machine.space}
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
            attempt = Attempt(task, self.sandbox, 0, [CHATTER, CHATTER, 4096])
            header = attempt.finish(attempt.pump.run(attempt.process, attempt.started + task["wall"]))
            if attempt.ended or attempt.status or attempt.oom:
                code = os.waitstatus_to_exitcode(attempt.status)
                reason = "out of memory" if attempt.oom else attempt.ended or f"exit code {code}"
                text = header["stderr"] or attempt.streams[0][-TAIL:].decode("utf-8", "replace")
                self.broken = f"the build failed ({reason}): {text[:800]}"
        self.built = toolchain.take_files(SCRATCH)
        if toolchain.total(self.built) > child.FILE_BYTES:
            self.broken = f"the build left more than {child.FILE_BYTES >> 20} MB"

    def test(self, identity: int, size: int) -> bool:
        """Run one test in a fresh child and send its frame; return whether this sandbox may be used again."""
        if self.broken:
            swallow(size)
            self.send({"id": identity, "verdict": "exception", "detail": self.broken, "stderr": "", "loaded": False,
                  "cpu": 0.0, "wall": 0.0, "clean": True})  # fmt: skip
            return True
        job, is_function, cap, other = self.job, self.job["entry"] is not None, self.job["output"], self.job["toolchain"]
        toolchain.put_files(SCRATCH, self.built)
        caps = [CHATTER, CHATTER, cap + 2] if is_function else [cap, CHATTER, 4096]
        attempt = Attempt(self.task, self.sandbox, size, caps)
        header = attempt.finish(attempt.pump.run(attempt.process, attempt.started + job["wall"]))
        out, _, result = attempt.streams
        loaded = result[:1] == b"L" or bool(other)
        result = result[1:] if result[:1] == b"L" else result
        if other and not result and attempt.status == 0:
            result = b"A"
        verdict, detail, answer = judge_end(job, attempt, header["cpu"], result)
        if verdict is None and not is_function:
            answer = out
        clean = self.machine.clean_scratch()
        header |= {"id": identity, "loaded": loaded, "verdict": verdict, "detail": detail, "clean": clean}
        self.send(header, answer, may_wait=clean)
        return clean

    def call(self, identity: int, size: int) -> bool:
        """Pass one call to the loaded program; a program that ends in it gets a new process for the next call."""
        job = self.job
        if self.session is None:
            caps = [CHATTER, CHATTER, job["output"] + 4]
            self.session = Attempt(self.task, self.sandbox, 0, caps, keep_open=True)
        session = self.session
        session.pump.remaining += size
        ended = session.pump.run(session.process, time.monotonic() + job["wall"])
        if ended == "reply":
            self.send({"id": identity, "loaded": True, "verdict": None, "detail": "", "stderr": "", "cpu": 0.0, "wall": 0.0,
                  "clean": True}, session.pump.take_reply())  # fmt: skip
            return True
        header = session.finish(ended)
        self.session = None
        verdict, detail, _ = judge_end(job, session, header["cpu"], session.streams[2])
        clean = self.machine.clean_scratch()
        self.send(header | {"id": identity, "loaded": True, "verdict": verdict or "exit", "detail": detail, "clean": clean})
        return clean

    def close_session(self) -> bool:
        """End the loaded program; return whether this sandbox may be used again."""
        if self.session is not None:
            self.session.finish("closed")
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
        source = calls.STUB.format(home=home) if job["separated"] else job["source"]
        toolchain.put_files(SCRATCH, {program: (0o444, source.encode("utf-8", "surrogatepass"))})
        task = self.task | {"files": None, "folder": folder, "program": program, "home": home}
        caps = [CHATTER, CHATTER, job["output"] + 2]
        relay = Relay(calls.SOCKET, job["output"], read_exactly, self.send)
        attempt = Attempt(task, self.sandbox, 0, caps)
        header = attempt.finish(attempt.pump.run(attempt.process, attempt.started + job["wall"], relay))
        relay.close()
        result = attempt.streams[2]
        loaded = result[:1] == b"L"
        verdict, detail, answer = judge_end(job, attempt, header["cpu"], result[1:] if loaded else result)
        self.send(header | {"id": identity, "loaded": loaded, "verdict": verdict, "detail": detail, "clean": False}, answer)
        return False


def judge_end(job: dict[str, Any], attempt: Attempt, cpu: float, result: bytes) -> tuple[str | None, str, bytes]:
    """Return (verdict or None, detail, answer) of an ended child; the first reason that applies wins."""
    code = os.waitstatus_to_exitcode(attempt.status)
    kind, text = result[:1], result[1:]
    message = text[:1000].decode("utf-8", "replace")
    if attempt.oom:
        return "memory", f"used more than {job['memory'] >> 20} MB", b""
    if attempt.ended == "output":
        return "output", f"wrote more than {job['output'] >> 10} KB", b""
    if code == -signal.SIGXCPU or cpu >= job["cpu"]:
        return "cpu", f"used more than {job['cpu']:g} s of CPU time", b""
    if attempt.ended == "timeout":
        return "timeout", f"not done after {job['wall']:g} s", b""
    if code < 0:
        name = signal.Signals(-code).name if -code in set(signal.Signals) else str(-code)
        return "signal", f"ended by {name}", b""
    if kind == b"A" and code == 0:
        return None, "", text
    if kind == b"E":
        return "exception", message, b""
    if kind == b"M":
        return "memory", message, b""
    if kind == b"I":
        return "invalid", message, b""
    return "exit", message or f"ended with exit code {code} and no answer", b""


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
    child.libc.prctl(PR_SET_DUMPABLE, 0, 0, 0, 0)
    while os.dup(2) < child.RESULT:
        pass  # so that no pipe lies where a child wants its own
    machine = Machine(marker)
    if not machine.is_sandbox:
        return 2
    install_filter(build_filter(network))
    compile("", "program.py", "exec")  # the first one makes the compiler's types: 2 ms that no child is to spend
    gc.freeze()  # a child's collections leave these pages shared
    sandbox = Sandbox(machine, forks.Zygote(machine) if reuse else forks.Here(machine))
    sandbox.frames.send({"ready": 1})
    programs = 0
    while serve_program(sandbox, FIRST_USER + programs % USERS):
        if not reuse:
            return 0
        programs += 1
        sandbox.frames.send({"reset": programs})
    return 1
