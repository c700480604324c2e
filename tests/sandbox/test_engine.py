"""Which Docker engine is used, and what is said where none can be."""

import socket
import subprocess
import sys

import pytest

from sandbox import engine as engines
from sandbox.base import EngineUnavailable
from sandbox.engine import Engine, fault


def test_a_dead_docker_host_is_never_replaced(monkeypatch, tmp_path):
    monkeypatch.setenv("DOCKER_HOST", "tcp://127.0.0.1:9")
    for use in (Engine(tmp_path).require, Engine(tmp_path).start):
        with pytest.raises(EngineUnavailable, match=r"DOCKER_HOST is tcp://127.0.0.1:9.*unset DOCKER_HOST"):
            use()


@pytest.mark.parametrize("kind", ["missing", "nobody listens", "no socket"])
def test_a_socket_without_an_engine_is_told_by_its_fault(tmp_path, kind):
    place = tmp_path / "docker.sock"
    if kind == "nobody listens":
        with socket.socket(socket.AF_UNIX) as bound:
            bound.bind(str(place))
    elif kind == "no socket":
        place.write_text("")
    assert fault(f"unix://{place}").startswith("no such socket" if kind == "missing" else "it doesn't answer")


class Refused(socket.socket):
    def connect(self, address):
        raise PermissionError(13, "Permission denied")


def test_a_socket_that_may_not_be_used_is_no_missing_engine(monkeypatch, tmp_path):
    place = tmp_path / "docker.sock"
    place.write_text("")
    monkeypatch.delenv("DOCKER_HOST", raising=False)
    monkeypatch.setattr(engines, "SYSTEM", f"unix://{place}")
    monkeypatch.setattr(socket, "socket", Refused)
    with pytest.raises(EngineUnavailable, match=r"may not use it.*usermod"):
        Engine(tmp_path).require()


def test_the_version_is_told():
    done = subprocess.run(
        [sys.executable, "-m", "evolve.cli", "--version"], capture_output=True, text=True, timeout=60, check=True
    )
    assert done.stdout.startswith("vector-evolve 0.")
