"""What is bubblewrap's own: its processes and control groups are gone soon, whatever they have left unread."""

import asyncio
import os
import time
from pathlib import Path

import pytest

from sandbox.base import Limits, Program, Verdict
from sandbox.bubblewrap import BubblewrapSandbox
from sandbox.cgroup import ROOT
from tests.sandbox.test_backends import root

pytestmark = pytest.mark.slow
__all__ = ["root"]
LIMITS = Limits(cpu_seconds=1, wall_seconds=3, memory_mb=128, output_kb=256)
LEFT_UNREAD = {
    "a raw report over the cap at import": "import os\nos.write(3, b'A' * ((1 << 18) + 1))\ndef f(x): return x\n",
    "a flood of output": "import os\nwhile True: os.write(1, b'x' * 65536)\n",
    "a flood of errors": "import os\nwhile True: os.write(2, b'x' * 65536)\n",
    "processes that stay": "import os, time\nfor _ in range(5):\n    if not os.fork(): time.sleep(600)\n"
    "def f(x): return x\n",
}


def groups():
    return {path for path in Path(ROOT).rglob(f"vector-evolve-{os.getpid()}-*") if path.is_dir()}


@pytest.mark.parametrize("name", LEFT_UNREAD)
def test_a_pool_closes_soon_and_leaves_no_group(root, name):
    async def closing():
        async with BubblewrapSandbox(root, LIMITS, size=2) as sandbox:
            outcomes = await sandbox.run(Program(LEFT_UNREAD[name], "f"), [b"[1]"] * 3)
            under_way = asyncio.create_task(sandbox.run(Program(LEFT_UNREAD[name], "f"), [b"[1]"] * 3))
            await asyncio.sleep(0.2)
            under_way.cancel()
            started = time.monotonic()
        await asyncio.gather(under_way, return_exceptions=True)
        return outcomes, time.monotonic() - started

    before = groups()
    outcomes, seconds = asyncio.run(asyncio.wait_for(closing(), 60))
    assert all(one.verdict in (Verdict.OUTPUT, Verdict.TIMEOUT, Verdict.CPU, None) for one in outcomes), outcomes
    assert seconds < 15
    assert groups() <= before
