"""PID 1 of a sandbox: fork a fresh child per test, bound it, report what it gave.

Covered: a child can neither end, trace, re-nice nor read this process; sees one test's input; leaves no process and no
file for the next test; is bound in CPU time, memory, output, files and system calls. Not covered: the truth of an answer.
Children run untrusted code and may report whatever they like, so this process only ever reports *answers*; expected
values and scores exist on the host alone.

Wire (big endian). From the host: u32 size, JSON job; then per test u32 id, u32 size, input bytes. To the host, first an
empty-handed frame with `ready`, then a frame per test: u32 header size, u32 answer size, JSON header, answer bytes. A
test's input is spliced inside the kernel into the child's pipe: were it read here, later children would inherit a copy.

It refuses to run anywhere but as PID 1 of the image that carries its marker file.
"""

from __future__ import annotations

import contextlib
import ctypes
import errno
import json
import os
import platform
import resource
import select
import shutil
import signal
import struct
import sys
import time
from typing import Any

MARKER = "/opt/vector-evolve/sandbox-image"
SCRATCH = "/tmp"
CHATTER = 4 << 20  # bytes of stdout or stderr that a test may write beside its answer
TAIL = 2000  # bytes of stderr and stdout that are reported
FILE_BYTES = 32 << 20  # of a file, and of all files that a build leaves
BUILD = {"cpu": 60.0, "wall": 120.0}  # limits of a build in seconds; memory is that of a test
RESULT = 3  # the child's descriptor for its report
PR_SET_DUMPABLE, PR_SET_NO_NEW_PRIVS, PR_SET_SECCOMP = 4, 38, 22
libc = ctypes.CDLL(None, use_errno=True)


# ---------------------------------------------------------------- system calls that no candidate needs

# name: (x86_64, aarch64); -1 where an architecture lacks it.
DENIED = {
    "ptrace": (101, 117), "process_vm_readv": (310, 270), "process_vm_writev": (311, 271), "pidfd_getfd": (438, 438),
    "setrlimit": (160, 164), "io_uring_setup": (425, 425), "io_uring_enter": (426, 426),
    "io_uring_register": (427, 427), "userfaultfd": (323, 282), "keyctl": (250, 219), "add_key": (248, 217),
    "request_key": (249, 218), "bpf": (321, 280), "perf_event_open": (298, 241), "unshare": (272, 97),
    "setns": (308, 268), "mount": (165, 40), "umount2": (166, 39), "move_mount": (429, 429), "open_tree": (428, 428),
    "fsopen": (430, 430), "pivot_root": (155, 41), "chroot": (161, 51), "shmget": (29, 194), "shmat": (30, 196),
    "shmctl": (31, 195), "semget": (64, 190), "semop": (65, 193), "semctl": (66, 191), "msgget": (68, 186),
    "msgsnd": (69, 189), "msgrcv": (70, 188), "msgctl": (71, 187), "mq_open": (240, 180), "mq_unlink": (241, 181),
    "init_module": (175, 105), "finit_module": (313, 273), "delete_module": (176, 106), "kexec_load": (246, 104),
    "setpriority": (141, 140), "sched_setscheduler": (144, 119), "sched_setattr": (314, 274),
    "sched_setaffinity": (203, 122), "personality": (135, 92), "syslog": (103, 116),
    "open_by_handle_at": (304, 265), "name_to_handle_at": (303, 264), "memfd_secret": (447, 447),
}  # fmt: skip
SOCKET = (41, 198)
PRLIMIT = (302, 261)
CLONE3 = (435, 435)
AF_UNIX = 1


def build_filter() -> bytes:
    """Return a seccomp BPF program (bytes): deny `DENIED`, setting limits, and sockets but AF_UNIX; hide clone3."""
    machine = platform.machine()
    column = {"x86_64": 0, "aarch64": 1}.get(machine)
    if column is None:
        raise SystemExit(f"the sandbox knows no system call table for {machine}")
    audit_arch = (0xC000003E, 0xC00000B7)[column]
    kill, allow, deny = 0x80000000, 0x7FFF0000, 0x00050000
    load, jeq, jge, ret = 0x20, 0x15, 0x35, 0x06

    def statement(code: int, k: int, yes: int = 0, no: int = 0) -> bytes:
        return struct.pack("HBBI", code, yes, no, k)

    program = [
        statement(load, 4), statement(jeq, audit_arch, 1, 0), statement(ret, kill),
        statement(load, 0), statement(jge, 0x40000000, 0, 1), statement(ret, deny | errno.EPERM),  # the x32 table
        statement(jeq, CLONE3[column], 0, 1), statement(ret, deny | errno.ENOSYS),  # glibc falls back to clone
    ]  # fmt: skip
    for numbers in DENIED.values():
        program += [statement(jeq, numbers[column], 0, 1), statement(ret, deny | errno.EPERM)]
    program += [  # prlimit64 may read limits (its new_limit is null), never set them
        statement(jeq, PRLIMIT[column], 0, 6), statement(load, 32), statement(jeq, 0, 0, 2), statement(load, 36),
        statement(jeq, 0, 1, 0), statement(ret, deny | errno.EPERM), statement(ret, allow),
        statement(jeq, SOCKET[column], 0, 3), statement(load, 16), statement(jeq, AF_UNIX, 1, 0),
        statement(ret, deny | errno.EACCES), statement(ret, allow),
    ]  # fmt: skip
    return b"".join(program)


def install_filter(program: bytes) -> None:
    """Bind the calling process and its descendants to a seccomp filter, for good."""

    class Fprog(ctypes.Structure):
        _fields_ = [("len", ctypes.c_ushort), ("filter", ctypes.c_char_p)]

    prog = Fprog(len(program) // 8, program)
    for arguments in ((PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0), (PR_SET_SECCOMP, 2, ctypes.byref(prog), 0, 0)):
        if libc.prctl(*arguments) != 0:
            raise OSError(ctypes.get_errno(), "prctl")


# ---------------------------------------------------------------- the child: runs one test of untrusted code


class NotPlain(Exception):
    """A returned value that is not plain data."""


def plain(value: Any, depth: int = 0) -> Any:
    """Return `value` as JSON-ready plain data; raise NotPlain for subclasses, cycles, NaN and foreign types."""
    if depth > 64:
        raise NotPlain("nested deeper than 64 levels, or a cycle")
    kind = type(value)
    if value is None or kind in (bool, int, str):
        return value
    if kind is float:
        if value != value or value in (float("inf"), float("-inf")):
            raise NotPlain(f"{value} is not a number that JSON knows")
        return value
    if kind in (list, tuple):
        return [plain(item, depth + 1) for item in value]
    if kind is dict:
        if any(type(key) is not str for key in value):
            raise NotPlain("a dict key is not a string")
        return {key: plain(item, depth + 1) for key, item in value.items()}
    if kind.__module__ == "numpy":
        return plain(value.tolist(), depth + 1)
    raise NotPlain(f"returned a {kind.__name__}, which is not plain data")


def describe(error: BaseException) -> str:
    """Return the end of an exception's traceback: the last frames inside the program and the message."""
    import traceback

    frames = [f for f in traceback.extract_tb(error.__traceback__) if f.filename == "program.py"][-3:]
    where = "".join(f"  line {f.lineno}, in {f.name}: {f.line}\n" for f in frames)
    return where + "".join(traceback.format_exception_only(error)).strip()[-600:]


def report(kind: bytes, text: bytes = b"") -> None:
    """Write one report to the supervisor: a letter and its text."""
    data = memoryview(kind + text)
    while data:
        data = data[os.write(RESULT, data) :]


def execute(job: dict[str, Any]) -> None:
    """Run the program on the input at descriptor 0; report on descriptor RESULT what came out."""
    import linecache
    import types

    source, entry = job["source"], job["entry"]
    arguments = None
    if entry is not None:
        arguments = json.loads(os.fdopen(0, "rb", closefd=False).read())
        null = os.open(os.devnull, os.O_RDONLY)
        os.dup2(null, 0)
    name = "__main__" if entry is None else "program"
    module = types.ModuleType(name)
    module.__file__ = "program.py"
    sys.modules[name] = module
    sys.argv = ["program.py"]
    linecache.cache["program.py"] = (len(source), None, source.splitlines(keepends=True), "program.py")
    code = compile(source, "program.py", "exec", dont_inherit=True)
    if entry is None:
        report(b"L")
    exec(code, module.__dict__)
    if entry is None:
        sys.stdout.flush()
        report(b"A")
        return
    function = getattr(module, entry, None)
    if not callable(function):
        report(b"E", f"the program defines no function {entry}".encode())
        return
    report(b"L")
    value = function(*arguments or [])
    report(b"A", json.dumps(plain(value), allow_nan=False).encode())


def child(job: dict[str, Any], seccomp: bytes, space: int, command: list[str] | None) -> None:
    """Bound this process and become the command, or run the test and end without the program's own exit code running."""
    libc.prctl(PR_SET_DUMPABLE, 1, 0, 0, 0)  # else /proc/self belongs to root and the next write is refused
    with open("/proc/self/oom_score_adj", "w") as adjustment:
        adjustment.write("1000")
    libc.prctl(PR_SET_DUMPABLE, 0, 0, 0, 0)
    cpu = max(1, -int(-job["cpu"] // 1))
    resource.setrlimit(resource.RLIMIT_CPU, (cpu, cpu + 1))  # SIGXCPU names the reason, SIGKILL a second later insists
    limits = [(resource.RLIMIT_FSIZE, FILE_BYTES), (resource.RLIMIT_NOFILE, 128), (resource.RLIMIT_CORE, 0)]
    if command is None:  # runtimes such as V8 reserve far more address space than they use; the container bounds them
        limits.append((resource.RLIMIT_AS, space + job["memory"]))
    for which, limit in limits:
        resource.setrlimit(which, (limit, limit))
    install_filter(seccomp)
    status = 0
    try:
        try:
            if command is not None:
                os.set_inheritable(RESULT, False)
                os.chdir(SCRATCH)
                os.execvpe(command[0], command, {"PATH": "/usr/bin:/bin", "HOME": SCRATCH, "LANG": "C.UTF-8"})
            execute(job)
        except SystemExit as error:
            if job["entry"] is None and error.code in (None, 0):
                sys.stdout.flush()
                report(b"A")
            else:
                report(b"X", f"sys.exit({error.code!r})".encode("utf-8", "replace")[:200])
                status = 1
        except NotPlain as error:
            report(b"I", str(error).encode("utf-8", "replace"))
        except MemoryError as error:
            report(b"M", describe(error).encode("utf-8", "replace"))
        except BaseException as error:
            report(b"E", describe(error).encode("utf-8", "replace"))
        with contextlib.suppress(BaseException):
            sys.stderr.flush()
    finally:
        os._exit(status)


# ---------------------------------------------------------------- the supervisor


def read_exactly(size: int) -> bytes:
    """Read `size` bytes from the host, or end with it."""
    data = b""
    while len(data) < size:
        piece = os.read(0, size - len(data))
        if not piece:
            raise SystemExit(0)
        data += piece
    return data


def send(header: dict[str, Any], answer: bytes = b"") -> None:
    """Write one frame to the host."""
    text = json.dumps(header).encode()
    data = memoryview(struct.pack(">II", len(text), len(answer)) + text + answer)
    while data:
        data = data[os.write(1, data) :]


def oom_kills() -> int:
    """Return how often the kernel killed a process of this container for memory (cgroup v1 or v2)."""
    for path in ("/sys/fs/cgroup/memory/memory.oom_control", "/sys/fs/cgroup/memory.events"):
        with contextlib.suppress(OSError), open(path) as lines:
            for line in lines:
                if line.startswith("oom_kill "):
                    return int(line.split()[1])
    return 0


def kill_all() -> int:
    """Kill and reap every other process of this PID namespace; return how many there were beyond the first."""
    survivors = 0
    while True:
        with contextlib.suppress(ProcessLookupError):
            os.kill(-1, signal.SIGKILL)
        try:
            while os.waitpid(-1, 0):
                survivors += 1
        except ChildProcessError:
            return survivors


def clean_scratch() -> bool:
    """Empty the scratch mount; return False when something resisted, so that the host throws this sandbox away."""
    if os.getpid() != 1 or not os.path.exists(MARKER) or not os.path.ismount(SCRATCH):
        return False
    try:
        for entry in os.scandir(SCRATCH):
            if entry.is_dir(follow_symlinks=False):
                shutil.rmtree(entry.path)
            else:
                os.unlink(entry.path)
    except (OSError, RecursionError):
        return False
    return True


class Pump:
    """Moves one test's bytes: the host's input into the child, the child's output into capped buffers."""

    def __init__(self, size: int, caps: list[int]) -> None:
        self.remaining = size
        self.input_read, writer = os.pipe()
        self.input_write: int | None = writer
        os.set_blocking(writer, False)
        self.pipes = [os.pipe() for _ in caps]  # stdout, stderr, report
        self.caps = dict(zip((reader for reader, _ in self.pipes), caps, strict=True))
        self.buffers = {reader: bytearray() for reader in self.caps}
        self.totals = dict.fromkeys(self.caps, 0)
        for reader in self.caps:
            os.set_blocking(reader, False)

    def become_child(self) -> None:
        """Give the child its four descriptors and nothing else."""
        ends = [os.dup(self.input_read)] + [os.dup(writer) for _, writer in self.pipes]
        ends = [os.dup2(end, 200 + i) for i, end in enumerate(ends)]
        for target, end in enumerate(ends):
            os.dup2(end, target)
        os.closerange(RESULT + 1, 1024)

    def become_parent(self) -> None:
        os.close(self.input_read)
        for _, writer in self.pipes:
            os.close(writer)

    def run(self, process: int, deadline: float) -> str | None:
        """Pump until the child ends (returns None), the deadline passes ('timeout') or a cap bursts ('output')."""
        waiting_for_host = True
        while True:
            poll = select.poll()
            poll.register(process, select.POLLIN)
            for reader in self.buffers:
                if reader in self.caps:
                    poll.register(reader, select.POLLIN)
            if self.remaining and self.input_write is not None:
                poll.register(
                    0 if waiting_for_host else self.input_write,
                    select.POLLIN if waiting_for_host else select.POLLOUT,
                )
            elif self.input_write is not None:
                self.close_input()
            left = deadline - time.monotonic()
            if left <= 0:
                return "timeout"
            for descriptor, _ in poll.poll(left * 1000 + 1):
                if descriptor == process:
                    return "output" if self.drain() else None
                if descriptor == 0:
                    waiting_for_host = False
                elif descriptor == self.input_write:
                    waiting_for_host = self.feed()
                elif self.read(descriptor):
                    return "output"

    def feed(self) -> bool:
        """Move input kernel-side; return whether more must come from the host first."""
        assert self.input_write is not None
        try:
            self.remaining -= os.splice(0, self.input_write, self.remaining, flags=2)
        except BlockingIOError:
            pass
        except BrokenPipeError:
            self.close_input()
        return True

    def close_input(self) -> None:
        if self.input_write is not None:
            os.close(self.input_write)
            self.input_write = None

    def read(self, reader: int) -> bool:
        """Read what is there; return whether the stream has burst its cap. Forget the stream at its end."""
        try:
            piece = os.read(reader, 1 << 16)
        except BlockingIOError:
            return False
        if not piece:
            self.caps.pop(reader)
            return False
        self.totals[reader] += len(piece)
        buffer = self.buffers[reader]
        buffer += piece
        if reader == self.pipes[1][0]:
            del buffer[:-TAIL]
        return self.totals[reader] > self.caps[reader]

    def drain(self) -> bool:
        """Read what an ended child left in its pipes; return whether a stream has burst its cap."""
        burst = False
        for reader in list(self.caps):
            before = -1
            while reader in self.caps and self.totals[reader] != before and not burst:
                before = self.totals[reader]
                burst = self.read(reader)
        return burst

    def close(self) -> list[bytes]:
        """Swallow input that the child never took, close everything, return the three buffers."""
        self.close_input()
        swallow(self.remaining)
        for reader, _ in self.pipes:
            os.close(reader)
        return [bytes(self.buffers[reader]) for reader, _ in self.pipes]


def swallow(size: int) -> None:
    """Drop `size` bytes of input that nobody takes, without reading them."""
    null = os.open(os.devnull, os.O_WRONLY)
    while size:
        moved = os.splice(0, null, size)
        if not moved:
            raise SystemExit(0)
        size -= moved
    os.close(null)


def attempt(
    job: dict[str, Any], seccomp: bytes, size: int, caps: list[int], command: list[str] | None
) -> tuple[dict[str, Any], str | None, int, bool, list[bytes]]:
    """Run one bounded child to its end, with everything that it started.

    Returns:
        What the host is told in any case, why the child was ended (or None), its wait status, whether the kernel killed
        something for memory, and what came on stdout, stderr and the report.
    """
    pump = Pump(size, caps)
    kills = oom_kills()
    with open("/proc/self/statm") as statm:
        space = int(statm.read().split()[0]) * resource.getpagesize()
    started = time.monotonic()
    pid = os.fork()
    if pid == 0:
        try:
            pump.become_child()
            child(job, seccomp, space, command)
        finally:
            os._exit(70)
    pump.become_parent()
    process = os.pidfd_open(pid)
    ended = pump.run(process, started + job["wall"])
    os.close(process)
    if ended is not None:
        os.kill(pid, signal.SIGKILL)
    _, status, usage = os.wait4(pid, 0)
    wall = time.monotonic() - started
    survivors = kill_all()
    streams = pump.close()
    header: dict[str, Any] = {"cpu": usage.ru_utime + usage.ru_stime, "wall": wall, "survivors": survivors}
    header["stderr"] = streams[1].decode("utf-8", "replace")
    return header, ended, status, oom_kills() > kills, streams


def build(job: dict[str, Any], seccomp: bytes) -> None:
    """Write the source, run the build command, and keep in the job what it left, or why it failed."""
    toolchain = job["toolchain"]
    with open(os.path.join(SCRATCH, toolchain["file"]), "w", encoding="utf-8", errors="surrogatepass") as file:
        file.write(job["source"])
    if toolchain["build"]:
        header, ended, status, oom, streams = attempt(job | BUILD, seccomp, 0, [CHATTER, CHATTER, 4096], toolchain["build"])
        if ended or status or oom:
            reason = "out of memory" if oom else ended or f"exit code {os.waitstatus_to_exitcode(status)}"
            text = header["stderr"] or streams[0][-TAIL:].decode("utf-8", "replace")
            job["broken"] = f"the build failed ({reason}): {text[:800]}"
    files = {}
    for folder, _, names in os.walk(SCRATCH):
        for path in (os.path.join(folder, name) for name in names):
            if os.path.isfile(path) and not os.path.islink(path):
                with open(path, "rb") as kept:
                    files[path] = (os.stat(path).st_mode & 0o777, kept.read(FILE_BYTES))
    if sum(len(data) for _, data in files.values()) > FILE_BYTES:
        job["broken"] = f"the build left more than {FILE_BYTES >> 20} MB"
    job["files"] = files


def put_back(files: dict[str, tuple[int, bytes]]) -> None:
    """Lay the build's files into the empty scratch folder."""
    for path, (mode, data) in files.items():
        os.makedirs(os.path.dirname(path), exist_ok=True)
        with open(path, "wb") as file:
            file.write(data)
        os.chmod(path, mode)


def run_test(job: dict[str, Any], seccomp: bytes, identity: int, size: int) -> bool:
    """Run one test in a fresh child and send its frame; return False when this sandbox must not be used again."""
    if "broken" in job:
        swallow(size)
        send({"id": identity, "verdict": "exception", "detail": job["broken"], "stderr": "", "loaded": False,
              "cpu": 0.0, "wall": 0.0, "clean": True})  # fmt: skip
        return True
    is_function, cap, toolchain = job["entry"] is not None, job["output"], job["toolchain"]
    caps = [CHATTER if is_function else cap, CHATTER, cap + 2 if is_function else 4096]
    if toolchain:
        put_back(job["files"])
    header, ended, status, oom, (out, _, result) = attempt(job, seccomp, size, caps, toolchain["run"] if toolchain else None)
    loaded = result[:1] == b"L" or bool(toolchain)
    if result[:1] == b"L":
        result = result[1:]
    if toolchain and not result and status == 0:
        result = b"A"
    verdict, detail, answer = judge_end(job, ended, status, header["cpu"], result, oom)
    if verdict is None and not is_function:
        answer = out
    clean = clean_scratch()
    send(header | {"id": identity, "loaded": loaded, "verdict": verdict, "detail": detail, "clean": clean}, answer)
    return clean


def judge_end(
    job: dict[str, Any], ended: str | None, status: int, cpu: float, result: bytes, oom: bool
) -> tuple[str | None, str, bytes]:
    """Return (verdict or None, detail, answer) of an ended child; the first reason that applies wins."""
    code = os.waitstatus_to_exitcode(status)
    kind, text = result[:1], result[1:]
    message = text[:1000].decode("utf-8", "replace")
    if oom:
        return "memory", f"used more than {job['memory'] >> 20} MB", b""
    if ended == "output":
        return "output", f"wrote more than {job['output'] >> 10} KB", b""
    if code == -signal.SIGXCPU or cpu >= job["cpu"]:
        return "cpu", f"used more than {job['cpu']:g} s of CPU time", b""
    if ended == "timeout":
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


def main() -> int:
    """Serve one program's tests from the host until it hangs up."""
    if os.getpid() != 1 or not os.path.exists(MARKER):
        sys.stderr.write(
            "This is the supervisor of a sandbox image. It runs only as PID 1 of that image and has done nothing.\n"
        )
        return 2
    for number in (signal.SIGINT, signal.SIGPIPE):
        signal.signal(number, signal.SIG_DFL)  # PID 1 is immune to what it does not handle
    libc.prctl(PR_SET_DUMPABLE, 0, 0, 0, 0)
    with contextlib.suppress(ImportError):
        import numpy  # noqa: F401  (children that import it find it there)
    seccomp = build_filter()
    send({"ready": 1})
    job = json.loads(read_exactly(*struct.unpack(">I", read_exactly(4))))
    if job["toolchain"]:
        build(job, seccomp)
        if not clean_scratch():
            return 1
    send({"built": "broken" not in job})
    while run_test(job, seccomp, *struct.unpack(">II", read_exactly(8))):
        pass
    return 0


if __name__ == "__main__":
    sys.exit(main())
