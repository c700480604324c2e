"""The child of a supervisor: bounds itself, runs untrusted code, reports what it gave.

Everything here but `bind` runs at the mercy of that code; nothing that it reports is believed.
"""

from __future__ import annotations

import collections
import contextlib
import ctypes
import json
import linecache
import os
import resource
import signal
import struct
import sys
import traceback
import types
from collections.abc import Callable
from typing import Any, NoReturn

from .machine import SCRATCH
from .values import DICTS

FILE_BYTES = 32 << 20  # of a file, and of all files that a build leaves
MAX_DIGITS = 50_000  # of an integer in a report, as the host reads it
RESULT = 3  # the descriptor for reports
BALLAST = bytearray(4 << 20)  # address space that is given back when a program has used up its own, so that it can be told
KINDS: dict[type[BaseException], bytes] = {MemoryError: b"MemoryError", RecursionError: b"RecursionError"}
libc = ctypes.CDLL(None, use_errno=True)


class NotPlain(Exception):
    """A returned value that is not plain data."""


def begin(task: dict[str, Any], ends: list[int]) -> NoReturn:
    """Be a child: keep its ends of the pipes and no other descriptor, bound this process, do the work, end.

    Args:
        task: a job with its `work`, see `WORKS`; see also `bind`.
        ends: what becomes descriptors 0 to `RESULT`. None of them lies there.
    """
    status = 70
    try:
        for target, descriptor in enumerate(ends):
            os.dup2(descriptor, target)
        os.closerange(RESULT + 1, 1024)
        bind(task)
        status = WORKS[task["work"]](task)
        if task["work"] == "execute" and task["entry"] is None:
            # A program of its own ends as Python ends: threads joined, what it registered run, every file flushed.
            ctypes.pythonapi.Py_Exit(status)
    finally:
        os._exit(status)  # a function has answered: whatever it registered for its exit does not run


def bind(task: dict[str, Any]) -> None:
    """Bound this process for good: a session of its own, CPU time, files, address space, user.

    The filter of system calls and the standing with the memory killer are inherited. With a session of its own goes a
    scheduling group (`/proc/self/autogroup`) that nobody else is in.

    Args:
        task: limits, the user to become where the supervisor is root, `metered`: whether the supervisor measures the CPU
            time, and `space`: address space of the interpreter itself in bytes, or 0 to leave the address space unbounded:
            runtimes such as V8 reserve far more than they use, and the container's memory bounds them.
    """
    os.setsid()
    cpu = max(1, -int(-task["cpu"] // 1)) + (
        1 if task["metered"] else 0
    )  # the meter comes first, for all processes together
    resource.setrlimit(resource.RLIMIT_CPU, (cpu, cpu + 1))  # SIGXCPU names the reason, SIGKILL a second later insists
    limits = [(resource.RLIMIT_FSIZE, FILE_BYTES), (resource.RLIMIT_NOFILE, 128), (resource.RLIMIT_CORE, 0)]
    if task["space"]:
        limits.append((resource.RLIMIT_AS, task["space"] + task["memory"]))
    for which, limit in limits:
        resource.setrlimit(which, (limit, limit))
    if os.geteuid() == 0:
        os.setgroups([])
        os.setresgid(task["user"], task["user"], task["user"])
        os.setresuid(task["user"], task["user"], task["user"])


def become(command: list[str], folder: str) -> NoReturn:
    """Turn this process into a program of another language."""
    signal.signal(signal.SIGPIPE, signal.SIG_DFL)
    os.set_inheritable(RESULT, False)
    os.chdir(folder)
    os.execvpe(command[0], command, {"PATH": "/usr/bin:/bin", "HOME": folder, "LANG": "C.UTF-8"})


def run(work: Callable[[dict[str, Any]], None], job: dict[str, Any]) -> int:
    """Do `work`, report why it did not end well, and return the exit code.

    Of a program of its own the exit code tells how it ended, as Python's does; of a function its report.
    """
    alone = work is execute and job["entry"] is None
    try:
        work(job)
        return 0
    except SystemExit as error:
        if alone and error.code in (None, 0):
            return 0
        if alone and type(error.code) is not int:
            print(error.code, file=sys.stderr)
        report(b"X", f"sys.exit({error.code!r})".encode("utf-8", "replace")[:200])
        return error.code & 0xFF or 1 if type(error.code) is int else 1
    except NotPlain as error:
        report(b"I", str(error).encode("utf-8", "replace"))
    except MemoryError as error:
        report(b"M", describe(error))
    except BaseException as error:
        report(b"E", describe(error))
    with contextlib.suppress(BaseException):
        sys.stderr.flush()
    return int(alone)


def report(kind: bytes, text: bytes = b"") -> None:
    """Write one report to the supervisor: a letter and its text."""
    write(kind + text)


def write(data: bytes) -> None:
    """Write all of `data` to the supervisor."""
    left = memoryview(data)
    while left:
        left = left[os.write(RESULT, left) :]


def describe(error: BaseException) -> bytes:
    """Return the end of an exception's traceback: the last frames inside the program and the message.

    The traceback may have millions of frames, and memory may be used up: then there is only the exception's kind.
    """
    with contextlib.suppress(BaseException):
        BALLAST.clear()
        frames: collections.deque[tuple[int, str]] = collections.deque(maxlen=3)
        trace = error.__traceback__
        while trace:
            if trace.tb_frame.f_code.co_filename == "program.py":
                frames.append((trace.tb_lineno, trace.tb_frame.f_code.co_name))
            trace = trace.tb_next
        where = "".join(
            f"  line {line}, in {name}: {linecache.getline('program.py', line).strip()}\n" for line, name in frames
        )
        message = where + "".join(traceback.format_exception_only(error)).strip()[-600:]
        return message.encode("utf-8", "replace")
    return KINDS.get(type(error), b"an exception that can't be described")


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
    if kind in DICTS:
        if any(type(key) is not str for key in value):
            raise NotPlain("a dict key is not a string")
        return {key: plain(item, depth + 1) for key, item in value.items()}
    if kind.__module__ == "numpy":
        return plain(value.tolist(), depth + 1)
    raise NotPlain(f"returned a {kind.__name__}, which is not plain data")


def load(source: str, name: str, before: Callable[[], None], preamble: str = "") -> types.ModuleType:
    """Run a program's text as a module, after the problem's preamble; `before` is called when it has compiled."""
    module = types.ModuleType(name)
    module.__file__ = "program.py"
    sys.modules[name] = module
    sys.argv = ["program.py"]
    linecache.cache["program.py"] = (len(source), None, source.splitlines(keepends=True), "program.py")
    code = compile(source, "program.py", "exec", dont_inherit=True)
    if preamble:
        exec(compile(preamble, "preamble.py", "exec", dont_inherit=True), module.__dict__)
    before()
    exec(code, module.__dict__)
    return module


def execute(job: dict[str, Any]) -> None:
    """Run the program on the input at descriptor 0; report what came out."""
    sys.set_int_max_str_digits(MAX_DIGITS)
    source, entry = job["source"], job["entry"]
    if entry is None:
        load(source, "__main__", before=lambda: report(b"L"), preamble=job["preamble"])
        return
    data = b""
    while piece := os.read(0, 1 << 20):
        data += piece
    arguments = json.loads(data)
    function = getattr(load(source, "program", before=lambda: None, preamble=job["preamble"]), entry, None)
    if not callable(function):
        report(b"E", f"the program defines no function {entry}".encode())
        return
    report(b"L")
    value = function(*arguments or [])
    report(b"A", json.dumps(plain(value)).encode())


def answer_calls(job: dict[str, Any]) -> None:
    """Load the program once and answer an evaluator's calls to it (`calls.py`) until descriptor 0 ends."""
    from .values import Unsupported, decode, encode

    os.environ.update(job["env"])
    requests = os.fdopen(0, "rb", closefd=False)
    module: types.ModuleType | None = None
    while size := requests.read(4):
        request = decode(requests.read(*struct.unpack(">I", size)))
        try:
            if module is None:
                module = load(job["source"], "program", before=lambda: None)
            reply = encode({"value": answer_call(module, request)})
        except Unsupported as error:
            reply = encode({"unsupported": str(error)})
        except BaseException as error:
            text = error.args[0] if len(error.args) == 1 and type(error.args[0]) is str else str(error)
            reply = encode({"error": [type(error).__name__, text[:2000]]})
        write(struct.pack(">I", len(reply)) + reply)


def answer_call(module: types.ModuleType, request: dict[str, Any]) -> Any:
    """Return what one request asks for: the module's names, or a call's value."""
    from .values import Unsupported, decode, encode

    if request["op"] == "names":
        found: dict[str, Any] = {}
        for name, value in vars(module).items():
            if not name.startswith("__") and not isinstance(value, types.ModuleType):
                with contextlib.suppress(Unsupported):
                    found[name] = ["function"] if callable(value) else ["value", decode(encode(value))]
        return found
    return getattr(module, request["name"])(*request["args"], **request["keywords"])


def evaluate(job: dict[str, Any]) -> None:
    """Let an evaluator judge a program."""
    from .evaluator import evaluate

    evaluate(job)


WORKS: dict[str, Callable[[dict[str, Any]], int]] = {
    "execute": lambda task: run(execute, task),
    "calls": lambda task: run(answer_calls, task),
    "evaluator": lambda task: run(evaluate, task),
    "build": lambda task: become(task["toolchain"]["build"], SCRATCH),
    "run": lambda task: become(task["toolchain"]["run"], SCRATCH),
}
"""What a child may do, by name; each returns the exit code."""
