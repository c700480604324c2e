"""The managed server: what can be known without starting vLLM."""

import asyncio
import os
import signal
import socket
import sys

import pytest

from evolve import machine_cli, server
from evolve.errors import BadInput, MutatorError


def made(tmp_path, **options):
    return server.VllmServer(tmp_path, "m", tmp_path / "server.log", say=lambda _: None, **options)


async def test_a_taken_port_is_bad_input(tmp_path):
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        with pytest.raises(BadInput, match="is taken"):
            await made(tmp_path, port=taken.getsockname()[1]).start()


async def test_without_vllm_it_says_what_to_install(tmp_path, monkeypatch):
    monkeypatch.setattr(server, "is_installed", lambda: False)
    with pytest.raises(MutatorError, match="make quickstart"):
        await made(tmp_path).start()


async def test_a_server_that_ends_at_once_is_reported_with_its_log(tmp_path, monkeypatch):
    one = made(tmp_path)
    monkeypatch.setattr(one, "_command", lambda: [sys.executable, "-c", "print('no such model'); raise SystemExit(4)"])
    with pytest.raises(MutatorError, match=r"code 4.*\n.*no such model"):
        await one.start()


def test_options_pass_through_and_override_ours(tmp_path):
    command = made(
        tmp_path, options={"dtype": "float32", "enforce-eager": False, "enable-lora": True, "max-loras": 4}
    )._command()
    text = " ".join(command)
    assert "--dtype float32" in text
    assert "--enforce-eager" not in text
    assert "--enable-lora --max-loras 4" in text
    assert "--host 127.0.0.1" in text


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
@pytest.mark.parametrize("loses", [False, True])
async def test_a_signal_ends_a_warm_server_even_when_its_cancellation_is_lost(monkeypatch, number, loses):
    class Server:
        looks = 0

        async def recover(self):
            self.looks += 1
            if not loses:
                return
            try:
                os.kill(os.getpid(), number)
                await asyncio.sleep(5)
            except asyncio.CancelledError:
                return  # as a library may

    monkeypatch.setattr(machine_cli, "LOOK_SECONDS", 0.01)
    server = Server()
    loop = asyncio.get_running_loop()
    if not loses:
        loop.call_later(0.1, os.kill, os.getpid(), number)
    try:
        await asyncio.wait_for(machine_cli._recover_until_interrupted(server), 3)
    finally:
        for one in (signal.SIGINT, signal.SIGTERM):
            loop.remove_signal_handler(one)
    assert server.looks
