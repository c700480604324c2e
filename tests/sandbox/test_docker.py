"""What only the Docker sandbox does: containers, their owners, and the engine's faults."""

import asyncio
import gc
import os
import signal
import subprocess
import sys
import time

import docker
import pytest

from sandbox.base import EngineUnavailable
from sandbox.container import OWNER_LABEL, owner_label
from sandbox.docker import DockerSandbox
from tests.sandbox.test_backends import INNOCENT, LIMITS

pytestmark = pytest.mark.slow


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
    limits = Limits(cpu_seconds=100, wall_seconds=300)
    async with DockerSandbox(sys.argv[1], sys.argv[2], limits, size=4) as sandbox:
        print("up", flush=True)
        busy = Program("import signal\\ndef f(x):\\n    while True: pass", "f")
        await asyncio.gather(*(sandbox.run(busy, [b"[1]"]) for _ in range(4)))
asyncio.run(main())
"""


def test_kill_9_of_the_owner_leaves_nothing_after_10_seconds(docker_url, image):
    """Four busy containers, the idle ones and the sentinel; no reaper comes to help."""
    process = subprocess.Popen([sys.executable, "-c", BUSY, docker_url, image], stdout=subprocess.PIPE)
    assert process.stdout.readline() == b"up\n"
    time.sleep(2)
    assert len(ours(docker_url, process.pid)) >= 8
    os.kill(process.pid, signal.SIGKILL)
    process.wait()
    process.stdout.close()
    time.sleep(10)
    assert ours(docker_url, process.pid) == []


async def test_a_reaper_removes_what_a_dead_owner_left(docker_url, image):
    client = docker.APIClient(base_url=docker_url, version="auto")
    dead = f"{owner_label().rsplit(':', 2)[0]}:999999999:1"
    left = client.create_container(image, command=["true"], labels={OWNER_LABEL: dead})["Id"]
    stranger = client.create_container(image, command=["true"], labels={OWNER_LABEL: "another-boot:1:1:1"})["Id"]
    async with DockerSandbox(docker_url, image, LIMITS, size=1):
        there = {one["Id"] for one in client.containers(all=True)}
    client.remove_container(stranger)
    client.close()
    assert left not in there
    assert stranger in there


async def test_leaving_removes_every_container(docker_url, image):
    async with DockerSandbox(docker_url, image, LIMITS, size=2) as sandbox:
        await sandbox.run(INNOCENT, [b"[1]"])
        assert len(ours(docker_url, os.getpid())) >= 2
    for _ in range(50):  # Docker lists a container for a moment while it is being removed
        if not ours(docker_url, os.getpid()):
            break
        await asyncio.sleep(0.1)
    assert ours(docker_url, os.getpid()) == []


@pytest.mark.filterwarnings("ignore::ResourceWarning", "ignore::pytest.PytestUnraisableExceptionWarning")
async def test_no_engine_is_an_error_that_says_what_to_do(tmp_path):
    with pytest.raises(EngineUnavailable, match="evolve setup"):
        async with DockerSandbox(f"unix://{tmp_path}/none.sock", "x", LIMITS):
            pass
    gc.collect()  # the Docker SDK leaves the socket open whose connection failed


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
