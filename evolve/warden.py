"""`python -m evolve.warden COMMAND...`: run a command that must not outlive its owner.

The owner holds the other end of this process's stdin. When it ends, even by kill -9, stdin closes and the command's whole
process group is ended. The command's exit code becomes ours. Its temporary files lie in a folder of their own that ends with
it, but for what torch compiles, which the next one can use.
"""

from __future__ import annotations

import contextlib
import os
import select
import signal
import subprocess
import sys
import tempfile
import time

from evolve.cache import cache_folder

TERM_SECONDS = 8.0


def watch(command: list[str]) -> int:
    """Run `command` until it or the owner ends; return its exit code."""
    with tempfile.TemporaryDirectory(prefix="evolve-", ignore_cleanup_errors=True) as scratch:
        environment = os.environ | {"TMPDIR": scratch}
        environment.setdefault("TORCHINDUCTOR_CACHE_DIR", str(cache_folder() / "torchinductor"))
        return _watch(command, environment)


def _watch(command: list[str], environment: dict[str, str]) -> int:
    child = subprocess.Popen(command, stdin=subprocess.DEVNULL, process_group=0, env=environment)
    process = os.pidfd_open(child.pid)
    poll = select.poll()
    poll.register(process, select.POLLIN)
    poll.register(0, select.POLLIN | select.POLLHUP)
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        signal.signal(number, lambda *_: os.close(0))
    with contextlib.suppress(InterruptedError):
        while child.poll() is None:
            events = poll.poll(1000)
            if any(descriptor == 0 for descriptor, _ in events):
                break
    _end(child)
    return child.returncode


def _end(child: subprocess.Popen[bytes]) -> None:
    """End the process group: politely, then for good."""
    for number, patience in ((signal.SIGTERM, TERM_SECONDS), (signal.SIGKILL, 5.0)):
        with contextlib.suppress(ProcessLookupError):
            os.killpg(child.pid, number)
        deadline = time.monotonic() + patience
        while time.monotonic() < deadline:
            child.poll()
            try:
                os.killpg(child.pid, 0)
            except ProcessLookupError:
                break
            time.sleep(0.05)
    child.wait()


if __name__ == "__main__":
    sys.exit(watch(sys.argv[1:]))
