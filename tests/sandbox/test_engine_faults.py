"""The engine is restarted, or goes away, in the middle of a run: no program gets a verdict from it."""

import asyncio
import gc
import os
import signal

import pytest

from evolve.sandboxes import engine
from sandbox.base import EngineUnavailable, Limits, Program
from sandbox.docker import DockerSandbox

pytestmark = [
    pytest.mark.slow,
    # the Docker SDK leaves the sockets open whose connections failed
    pytest.mark.filterwarnings("ignore::ResourceWarning", "ignore::pytest.PytestUnraisableExceptionWarning"),
]
SLOW = Program("import time\ndef f(x):\n    time.sleep(0.7)\n    return x + 1\n", "f")
INPUTS = [b"[1]", b"[2]", b"[3]", b"[4]"]
ANSWERS = [b"2", b"3", b"4", b"5"]
LIMITS = Limits(cpu_seconds=5, wall_seconds=30)


@pytest.fixture
def own_engine(docker_url):
    """Our own engine, running again afterwards, whatever the test did to it."""
    ours = engine()
    if docker_url != ours.own_url:
        pytest.skip("the engine here is the system's and not ours to restart")
    yield ours
    ours.start()
    gc.collect()


def kill(ours, how):
    """End the engine: SIGTERM as a service manager does, SIGKILL as the memory killer does."""
    if how == signal.SIGTERM:
        ours.stop()
    else:
        pid = int((ours.folder / "dockerd.pid").read_text())
        os.kill(pid, signal.SIGKILL)


@pytest.mark.parametrize("how", [signal.SIGTERM, signal.SIGKILL])
async def test_a_restart_gives_nobody_a_verdict(own_engine, docker_url, image, how):
    async with DockerSandbox(docker_url, image, LIMITS, size=2, patience=60) as sandbox:
        runs = asyncio.gather(*(sandbox.run(SLOW, INPUTS) for _ in range(4)))
        await asyncio.sleep(1.2)
        await asyncio.to_thread(kill, own_engine, how)
        await asyncio.sleep(1)
        await asyncio.to_thread(own_engine.start)
        for outcomes in await runs:
            assert [outcome.answer for outcome in outcomes] == ANSWERS, outcomes


async def test_an_engine_that_stays_away_is_a_fault(own_engine, docker_url, image):
    async with DockerSandbox(docker_url, image, LIMITS, size=2, patience=2) as sandbox:
        runs = asyncio.gather(*(sandbox.run(SLOW, INPUTS) for _ in range(2)))
        await asyncio.sleep(1.2)
        await asyncio.to_thread(kill, own_engine, signal.SIGKILL)
        with pytest.raises(EngineUnavailable, match="No sandbox could be started for 2 s"):
            await runs
