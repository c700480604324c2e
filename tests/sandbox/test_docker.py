"""The Docker sandbox against real containers: verdicts, isolation between tests and candidates, nothing left behind."""

import asyncio
import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import docker
import pytest

from sandbox.base import EngineUnavailable, Limits, Program, Verdict
from sandbox.container import OWNER_LABEL
from sandbox.docker import DockerSandbox

pytestmark = pytest.mark.slow
CASES = Path(__file__).parent / "hostile" / "cases.py"
LIMITS = Limits(cpu_seconds=1, wall_seconds=3, memory_mb=128, output_kb=256)
INNOCENT = Program("def f(x):\n    return x + 1\n", "f")


def cases():
    scope = {}
    exec(compile(CASES.read_text(), str(CASES), "exec"), scope)
    return scope["CASES"]


@pytest.fixture(scope="module")
def loop_sandbox(docker_url, image):
    """One pool for the whole module, on a loop of its own."""
    loop = asyncio.new_event_loop()
    sandbox = DockerSandbox(docker_url, image, LIMITS, size=2, run="tests")
    loop.run_until_complete(sandbox.__aenter__())
    yield loop, sandbox
    loop.run_until_complete(sandbox.__aexit__(None, None, None))
    loop.close()


def run(loop_sandbox, program, inputs):
    loop, sandbox = loop_sandbox
    return loop.run_until_complete(sandbox.run(program, inputs))


@pytest.mark.parametrize("case", cases(), ids=lambda case: case[0])
def test_hostile_case_and_the_innocent_after_it(loop_sandbox, case):
    """Each case: three tests in one container, with the expected verdict or answer per test."""
    name, source, entry, inputs, expected = case
    outcomes = run(loop_sandbox, Program(source, entry), inputs)
    came = [outcome.answer.decode() if outcome.verdict is None else str(outcome.verdict) for outcome in outcomes]
    for one, allowed in zip(came, expected, strict=True):
        assert one in (allowed if isinstance(allowed, tuple) else (allowed,)), (name, came, outcomes)
    after = run(loop_sandbox, INNOCENT, [b"[1]", b"[2]"])
    assert [outcome.answer for outcome in after] == [b"2", b"3"]


def test_a_large_input_and_output_pass(loop_sandbox):
    text = "a" * 200_000
    (outcome,) = run(loop_sandbox, Program("def f(x):\n    return x[::-1]\n", "f"), [json.dumps([text]).encode()])
    assert json.loads(outcome.answer) == text


def test_a_program_that_does_not_load_says_so(loop_sandbox):
    for source in ("def f(x) return", "import nothing_like_this\ndef f(x): return 1", "def g(x): return 1", "1/0"):
        (outcome,) = run(loop_sandbox, Program(source, "f"), [b"[1]"])
        assert outcome.verdict is Verdict.EXCEPTION
        assert not outcome.loaded
        assert outcome.detail


def test_stdin_programs(loop_sandbox):
    source = "import sys\nfor line in sys.stdin:\n    print(int(line) * 2)\n"
    good, bad = run(loop_sandbox, Program(source, None), [b"1\n2\n", b"x\n"])
    assert (good.verdict, good.answer) == (None, b"2\n4\n")
    assert bad.verdict is Verdict.EXCEPTION
    assert "ValueError" in bad.detail


def test_cpu_time_is_reported(loop_sandbox):
    (outcome,) = run(loop_sandbox, Program("def f(x):\n    return sum(range(5_000_000))\n", "f"), [b"[1]"])
    assert 0.02 < outcome.cpu_seconds < 1


def test_waiting_candidates_are_all_served(loop_sandbox):
    loop, sandbox = loop_sandbox

    async def many():
        return await asyncio.gather(*(sandbox.run(INNOCENT, [b"[%d]" % i]) for i in range(12)))

    assert [one[0].answer for one in loop.run_until_complete(many())] == [b"%d" % (i + 1) for i in range(12)]


def ours(url, pid):
    client = docker.APIClient(base_url=url, version="auto")
    try:
        found = client.containers(all=True, filters={"label": OWNER_LABEL})
        return [one["Id"] for one in found if one["Labels"][OWNER_LABEL].split(":")[2] == str(pid)]
    finally:
        client.close()


BUSY = """
import asyncio, sys
from sandbox.base import Limits, Program
from sandbox.docker import DockerSandbox
async def main():
    async with DockerSandbox(sys.argv[1], sys.argv[2], Limits(cpu_seconds=100, wall_seconds=300), size=2) as sandbox:
        print("up", flush=True)
        await asyncio.gather(*(sandbox.run(Program("def f(x):\\n    while True: pass", "f"), [b"[1]"]) for _ in range(2)))
asyncio.run(main())
"""


def test_kill_9_of_the_owner_leaves_nothing_running(docker_url, image):
    process = subprocess.Popen([sys.executable, "-c", BUSY, docker_url, image], stdout=subprocess.PIPE)
    assert process.stdout.readline() == b"up\n"
    time.sleep(1.5)
    assert len(ours(docker_url, process.pid)) >= 2
    os.kill(process.pid, signal.SIGKILL)
    process.wait()
    process.stdout.close()
    deadline = time.monotonic() + 10
    # Idle containers end at once by themselves; a busy one when its test ends or a reaper comes.
    client = DockerSandbox(docker_url, image, LIMITS, size=1)

    async def reap():
        async with client:
            pass

    asyncio.run(reap())
    while ours(docker_url, process.pid) and time.monotonic() < deadline:
        time.sleep(0.2)
    assert ours(docker_url, process.pid) == []


async def test_leaving_removes_every_container(docker_url, image):
    async with DockerSandbox(docker_url, image, LIMITS, size=2) as sandbox:
        await sandbox.run(INNOCENT, [b"[1]"])
        assert len(ours(docker_url, os.getpid())) >= 2
    for _ in range(50):  # Docker lists a container for a moment while it is being removed
        if not ours(docker_url, os.getpid()):
            break
        await asyncio.sleep(0.1)
    assert ours(docker_url, os.getpid()) == []


async def test_no_engine_is_an_error_that_says_what_to_do(tmp_path):
    with pytest.raises(EngineUnavailable, match="evolve setup"):
        async with DockerSandbox(f"unix://{tmp_path}/none.sock", "x", LIMITS):
            pass


async def test_a_container_whose_limits_do_not_bite_is_refused(docker_url, image, monkeypatch):
    """Negative control of the self-test: without the PID and memory limits it must refuse."""
    from sandbox import container

    real = container.host_config
    monkeypatch.setattr(
        container, "host_config", lambda *a: real(*a) | {"PidsLimit": 0, "Memory": 4 << 30, "MemorySwap": 4 << 30}
    )
    with pytest.raises(EngineUnavailable, match=r"memory.*fork"):
        async with DockerSandbox(docker_url, image, LIMITS, size=1):
            pass
