"""Prove, in the sandbox that will be used, that its limits bite; refuse to score anything otherwise."""

from __future__ import annotations

import json

from sandbox.base import EngineUnavailable, Outcome, Program, Sandbox, Verdict

PROBES = """
import os, socket, time

def memory(megabytes):
    children = []
    for _ in range(8):
        pid = os.fork()
        if pid == 0:
            hoard = b"x" * (megabytes << 18)
            time.sleep(0.3)
            os._exit(0)
        children.append(pid)
    return [os.waitpid(pid, 0)[1] for pid in children]

def fork(_):
    count = 0
    try:
        while count < 500:
            if os.fork() == 0:
                time.sleep(30)
                os._exit(0)
            count += 1
    except OSError:
        return "limited"
    return "unlimited"

def connect(_):
    try:
        socket.create_connection(("127.0.0.1", 9), timeout=1)
    except PermissionError:
        return "refused"

def write(_):
    for path in ("/probe", "/opt/vector-evolve/probe", "/etc/probe"):
        try:
            open(path, "w")
            return path
        except OSError:
            pass
    return "refused"

def setuid(_):
    try:
        os.setuid(0)
    except OSError:  # not permitted, or no such user in this namespace
        return "refused"

def supervisor(_):
    for number in (9, 15, 19, 2, 11):
        try:
            os.kill(1, number)
        except PermissionError:
            pass
    try:
        open("/proc/1/mem", "rb")
    except PermissionError:
        return "refused"

def probe(name, megabytes):
    return globals()[name](megabytes)
"""

EXPECTED: dict[str, bytes | Verdict] = {
    "memory": Verdict.MEMORY,
    "fork": b'"limited"',
    "connect": b'"refused"',
    "write": b'"refused"',
    "setuid": b'"refused"',
    "supervisor": b'"refused"',
}


def bites(outcome: Outcome, expected: bytes | Verdict) -> bool:
    """Return whether a probe met the limit that it tried."""
    if isinstance(expected, Verdict):
        return outcome.verdict is expected
    return outcome.verdict is None and outcome.answer == expected


async def self_test(
    sandbox: Sandbox, megabytes: int, gaps: frozenset[str] = frozenset(), fatal: frozenset[str] = frozenset()
) -> None:
    """Attack the sandbox in six harmless ways.

    Args:
        sandbox: the sandbox that will be used.
        megabytes: the memory that it should grant to all processes of a test together; twice as much is tried.
        gaps: probes that this isolation is known to fail; they are not tried.
        fatal: probes which may also end the whole sandbox.

    Raises:
        EngineUnavailable: a limit did not hold; the text names each.
    """
    tried = {name: expected for name, expected in EXPECTED.items() if name not in gaps}
    inputs = [json.dumps([name, megabytes]).encode() for name in tried]
    outcomes = await sandbox.run(Program(PROBES, "probe"), inputs)
    failed = [
        f"{name}: expected {expected!r}, got {outcome.verdict or outcome.answer!r} {outcome.detail}"
        for (name, expected), outcome in zip(tried.items(), outcomes, strict=True)
        if not (bites(outcome, expected) or (name in fatal and outcome.verdict is Verdict.KILLED))
    ]
    if failed:
        raise EngineUnavailable(
            f"The sandbox ({sandbox.level}) does not hold its limits, so nothing is scored in it. {'; '.join(failed)}"
        )
