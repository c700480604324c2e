"""Negative controls: without one mechanism of the supervisor, the attack that it stops gets through.

Each builds an image whose supervisor lacks the mechanism and runs the hostile case that tries it. Were a control to fail,
the hostile case would prove nothing. What is held twice (file size by the size of /tmp, descriptors and core files by the
container's ulimits, no_new_privs by Docker's own) has none.
"""

import asyncio
import contextlib
import os
import signal
import subprocess
import sys

import docker
import pytest

from sandbox import container
from sandbox.base import EngineUnavailable, Limits, Program
from sandbox.docker import DockerSandbox
from sandbox.image import build
from tests.sandbox.test_backends import LIMITS, cases
from tests.sandbox.test_docker import BUSY, ours

pytestmark = pytest.mark.slow

CONTROLS = {
    "the supervisor's memory and descriptors are its own": (
        "    child.libc.prctl(PR_SET_DUMPABLE, 0, 0, 0, 0)\n    while os.dup",
        "    while os.dup",
        "write to the supervisor's descriptors",
    ),
    "system calls are filtered": ("    install_filter(build_filter(network))\n", "    pass\n", "limit the supervisor"),
    "sockets are AF_UNIX only": ("statement(jeq, AF_UNIX, 1, 0)", "statement(jeq, AF_UNIX, 1, 1)", "AF_VSOCK"),
    "signals don't reach PID 1": (
        "signal.signal(signal.SIGINT, signal.SIG_DFL)",
        "signal.signal(signal.SIGINT, signal.default_int_handler)",
        "kill the supervisor",
    ),
    "every process ends with its test": (
        "survivors, seconds = machine.kill_all()",
        "survivors, seconds = 0, 0.0",
        "daemon that outlives its test",
    ),
    "the scratch folder is emptied": (
        'clean = self.machine.clean_scratch()\n        self.report(facts | {"id": identity, "clean": clean}, attempt',
        'clean = True\n        self.report(facts | {"id": identity, "clean": clean}, attempt',
        "state in a file",
    ),
    "inputs are spliced, not read": (
        "moved = os.splice(0, self.input_write, self.remaining, flags=2)",
        "globals().setdefault('KEPT', []).append(os.read(0, min(self.remaining, 60000)))\n"
        "            moved = os.write(self.input_write, globals()['KEPT'][-1])",
        "search its own memory for other inputs",
    ),
    "the dumpable state is fixed": (
        "statement(jeq, PR_SET_DUMPABLE, 0, 1)",
        "statement(jeq, 99, 0, 1)",
        "lower its standing with the memory killer, once dumpable",
    ),
    "what comes out is spliced, not read": (
        "self._filed += os.splice(self.reader, self._file, CHUNK, offset_dst=self._filed, flags=NONBLOCK)",
        "globals().setdefault('KEPT', []).append(os.read(self.reader, CHUNK))\n"
        "            self._filed += os.pwrite(self._file, globals()['KEPT'][-1], self._filed)",
        "search its own memory for earlier tests' output",
    ),
    "address space is limited": ('if task["space"]:', "if False:", "memory at once"),
}


@contextlib.contextmanager
def without(monkeypatch, docker_url, *changes):
    """An image whose supervisor has the second text of each pair in the place of the first; no sandbox is self-tested."""
    files = {path: data.decode() for path, data in build.guest_files().items()}
    for old, new in zip(changes[::2], changes[1::2], strict=True):
        (path,) = [path for path, text in files.items() if old in text]
        assert files[path].count(old) == 1
        files[path] = files[path].replace(old, new)

    async def no_self_test(*_):
        return None

    with monkeypatch.context() as patch:
        patch.setattr(build, "guest_files", lambda: {path: text.encode() for path, text in files.items()})
        patch.setattr("sandbox.pool.self_test", no_self_test)
        patch.setattr("sandbox.wire.GRACE_SECONDS", 1.0)
        client = docker.APIClient(base_url=docker_url, version="auto", timeout=600)
        weak = build.ensure_image(client, say=lambda _: None)
        try:
            yield weak
        finally:
            client.remove_image(weak, force=True)
            client.close()


async def attack(sandbox, name):
    """Return whether the case came out as the suite expects, and what came."""
    _, program, entry, inputs, expected = next(case for case in cases() if case[0] == name)
    outcomes = await sandbox.run(Program(program, entry), inputs)
    came = [outcome.answer.decode() if outcome.verdict is None else str(outcome.verdict) for outcome in outcomes]
    held = all(one in (good if isinstance(good, tuple) else (good,)) for one, good in zip(came, expected, strict=True))
    return held, outcomes


@pytest.mark.parametrize("mechanism", [name for name in CONTROLS if name != "address space is limited"])
async def test_without_the_mechanism_the_attack_gets_through(docker_url, image, monkeypatch, mechanism):
    old, new, name = CONTROLS[mechanism]
    with without(monkeypatch, docker_url, old, new) as weak:
        async with DockerSandbox(docker_url, weak, LIMITS, size=1) as sandbox:
            held, outcomes = await attack(sandbox, name)
    assert not held, outcomes


async def test_without_a_mark_for_the_memory_killer_it_takes_the_supervisor(docker_url, image, monkeypatch):
    """The verdict is the same, because the engine tells of it, but it costs sandboxes."""
    with without(monkeypatch, docker_url, 'os.pwrite(self._file, b"1000", 0)', 'os.pwrite(self._file, b"0", 0)') as weak:
        async with DockerSandbox(docker_url, weak, LIMITS, size=1) as sandbox:
            _, (_, unmarked, _) = await attack(sandbox, "memory in small programs")
    async with DockerSandbox(docker_url, image, LIMITS, size=1) as sandbox:
        _, (_, marked, _) = await attack(sandbox, "memory in small programs")
    assert "took its sandbox down" in unmarked.detail
    assert "took its sandbox down" not in marked.detail


async def test_without_a_limit_of_address_space_the_container_pays(docker_url, image, monkeypatch):
    """With it, a large allocation is a MemoryError with its line; without it, the kernel kills, and nobody knows where."""
    old, new, name = CONTROLS["address space is limited"]
    with without(monkeypatch, docker_url, old, new) as weak:
        async with DockerSandbox(docker_url, weak, LIMITS, size=1) as sandbox:
            _, killed = await attack(sandbox, name)
    async with DockerSandbox(docker_url, image, LIMITS, size=1) as sandbox:
        _, refused = await attack(sandbox, name)
    assert "MemoryError" in refused[1].detail
    assert "MemoryError" not in killed[1].detail


async def test_without_the_meter_a_child_that_nobody_reaps_costs_nothing(docker_url, image, monkeypatch):
    source = dict(cases("BURNERS"))["in a child that nobody reaps"].replace("SECONDS", "0.5")
    old = "return reaped if self._start is None else max(0.0, self._used() - others)"
    with without(monkeypatch, docker_url, old, "return reaped") as weak:
        async with DockerSandbox(docker_url, weak, LIMITS, size=1) as sandbox:
            free = await sandbox.run(Program(source, "f"), [b"[1]"] * 4)  # where its parent ends first, PID 1 reaps it
    async with DockerSandbox(docker_url, image, LIMITS, size=1) as sandbox:
        (seen,) = await sandbox.run(Program(source, "f"), [b"[1]"])
    assert min(one.cpu_seconds for one in free) < 0.1 < 0.45 < seen.cpu_seconds


async def test_without_a_limit_of_cpu_time_a_loop_lasts_until_the_wall_clock_ends_it(docker_url, image, monkeypatch):
    """Where no control group counts, the kernel's limit of one process holds; without both, nothing does."""
    old = "resource.setrlimit(resource.RLIMIT_CPU, (cpu, cpu + 1))"
    unmetered = ("return float(rest.split(maxsplit=1)[0]) * self._unit if rest.strip() else None", "return None")
    lasted = []
    for limit in (old, "pass"):
        with without(monkeypatch, docker_url, *unmetered, old, limit) as weak:
            async with DockerSandbox(docker_url, weak, LIMITS, size=1) as sandbox:
                _, loop, _ = (await attack(sandbox, "loop on one input"))[1]
                lasted.append(loop.cpu_seconds)
    assert lasted[0] < 1.5 < lasted[1]


async def test_without_a_user_of_its_own_a_program_ends_the_zygote(docker_url, image, monkeypatch):
    old = '        os.setresuid(task["user"], task["user"], task["user"])\n'
    with without(monkeypatch, docker_url, old, "") as weak:
        async with DockerSandbox(docker_url, weak, LIMITS, size=1, reuse=True) as sandbox:
            held, outcomes = await attack(sandbox, "kill the supervisor")
    assert not held, outcomes


async def test_without_a_zygote_the_next_program_finds_what_the_supervisor_held(docker_url, image, monkeypatch):
    leave, look = next((leave, look) for name, leave, look in cases("ACCOMPLICES") if name == "its text in memory")
    with without(monkeypatch, docker_url, "forks.Zygote(machine) if reuse else ", "") as weak:
        async with DockerSandbox(docker_url, weak, LIMITS, size=1, reuse=True) as sandbox:
            await sandbox.run(Program(leave + "\ndef f(x): return x\n", "f"), [b"[1]"])
            (found,) = await sandbox.run(Program(look + "\ndef f(x): return found\n", "f"), [b"[1]"])
    assert found.verdict is None
    assert found.answer != b"[]"


async def test_a_supervisor_that_is_not_pid_1_refuses(docker_url, image, monkeypatch):
    """`--init` would put another process in its place."""
    real = container.host_config
    monkeypatch.setattr(container, "host_config", lambda *a: real(*a) | {"Init": True})
    with pytest.raises(EngineUnavailable, match="the sandbox ended"):
        async with DockerSandbox(docker_url, image, LIMITS, size=1, patience=1):
            pass


async def test_without_looking_at_the_host_a_busy_container_outlives_it(docker_url, image, monkeypatch):
    with without(monkeypatch, docker_url, "poll.register(0, 0)", "poll.register(2, 0)") as weak:
        process = subprocess.Popen([sys.executable, "-c", BUSY, docker_url, weak], stdout=subprocess.PIPE)
        assert process.stdout.readline() == b"up\n"
        await asyncio.sleep(1.5)
        os.kill(process.pid, signal.SIGKILL)
        process.wait()
        process.stdout.close()
        await asyncio.sleep(10)
        assert len(ours(docker_url, process.pid)) == 4
        async with DockerSandbox(docker_url, image, Limits(), size=1):
            pass  # its reaper removes them
        assert ours(docker_url, process.pid) == []
