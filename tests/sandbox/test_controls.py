"""Negative controls: without one mechanism of the supervisor, the attack that it stops gets through.

Each builds an image whose supervisor lacks the mechanism and runs the hostile case that tries it. Were a control to fail,
the hostile case would prove nothing.
"""

import docker
import pytest

from sandbox.base import Program
from sandbox.docker import DockerSandbox
from sandbox.image import build
from tests.sandbox.test_backends import LIMITS, cases

pytestmark = pytest.mark.slow

CONTROLS = {
    "the supervisor's memory and descriptors are its own": (
        "libc.prctl(PR_SET_DUMPABLE, 0, 0, 0, 0)\n    with contextlib.suppress(ImportError)",
        "with contextlib.suppress(ImportError)",
        "write to the supervisor's descriptors",
    ),
    "system calls are filtered": ("    install_filter(seccomp)\n", "    pass\n", "limit the supervisor"),
    "signals don't reach PID 1": (
        "signal.signal(number, signal.SIG_DFL)",
        "signal.signal(number, signal.default_int_handler)",
        "kill the supervisor",
    ),
    "every process ends with its test": ("survivors = kill_all()", "survivors = 0", "daemon that outlives its test"),
    "the scratch folder is emptied": (
        'clean = clean_scratch(self.marker)\n        send(header | {"id": identity, "loaded": loaded, "v',
        'clean = True\n        send(header | {"id": identity, "loaded": loaded, "v',
        "state in a file",
    ),
}


@pytest.mark.parametrize("mechanism", CONTROLS)
async def test_without_the_mechanism_the_attack_gets_through(docker_url, image, monkeypatch, mechanism):
    old, new, name = CONTROLS[mechanism]
    files = {path: data.decode() for path, data in build.guest_files().items()}
    (path,) = [path for path, text in files.items() if old in text]
    assert files[path].count(old) == 1
    files[path] = files[path].replace(old, new)
    monkeypatch.setattr(build, "guest_files", lambda: {path: text.encode() for path, text in files.items()})

    async def no_self_test(*_):
        return None

    monkeypatch.setattr("sandbox.pool.self_test", no_self_test)
    monkeypatch.setattr("sandbox.wire.GRACE_SECONDS", 1.0)
    client = docker.APIClient(base_url=docker_url, version="auto", timeout=600)
    weak = build.ensure_image(client, say=lambda _: None)
    try:
        _, program, entry, inputs, expected = next(case for case in cases() if case[0] == name)
        async with DockerSandbox(docker_url, weak, LIMITS, size=1) as sandbox:
            outcomes = await sandbox.run(Program(program, entry), inputs)
        came = [outcome.answer.decode() if outcome.verdict is None else str(outcome.verdict) for outcome in outcomes]
        assert came != expected
    finally:
        client.remove_image(weak, force=True)
        client.close()
