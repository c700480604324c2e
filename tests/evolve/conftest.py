"""The warm model server of a module of slow tests; an idle one keeps a core busy, so it ends with the module."""

import signal
import socket
import subprocess
import sys
import time
from pathlib import Path

import httpx2
import pytest

EVOLVE = str(Path(sys.executable).parent / "evolve")


@pytest.fixture(scope="module")
def server(docker_url, image):
    """One warm server with the default model, as `evolve mutator serve` gives it."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    process = subprocess.Popen([EVOLVE, "mutator", "serve", "--port", str(port)])
    url = f"http://127.0.0.1:{port}"
    deadline = time.monotonic() + 400
    while True:
        assert process.poll() is None
        assert time.monotonic() < deadline
        try:
            if httpx2.get(f"{url}/health", trust_env=False).status_code == 200:
                break
        except httpx2.HTTPError:
            time.sleep(0.5)
    yield f"{url}/v1"
    process.send_signal(signal.SIGINT)
    assert process.wait(60) == 130
