"""The managed vLLM server: a child on loopback that dies with its owner, even on kill -9 (through `evolve.warden`).

CUDA and CPU builds are treated alike but for two things: on the CPU build a request's `seed` kills the engine as soon as a
prompt's prefill is chunked, so none is sent, and it must be told not to reserve a core for itself.
"""

from __future__ import annotations

import asyncio
import contextlib
import importlib.util
import json
import os
import secrets
import shutil
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from types import TracebackType
from typing import Self

import httpx2

from evolve.errors import BadInput, MutatorError

START_SECONDS = 600
MODEL_LENGTH = 8192
"""Tokens of prompt and completion together, where the model can do as many."""
Options = Mapping[str, str | int | float | bool]


def has_cuda() -> bool:
    """Return whether an NVIDIA GPU answers."""
    if shutil.which("nvidia-smi") is None:
        return False
    return subprocess.run(["nvidia-smi", "-L"], capture_output=True, check=False).returncode == 0


def is_installed() -> bool:
    """Return whether vLLM can be imported (without importing it)."""
    return importlib.util.find_spec("vllm") is not None


def default_options(cuda: bool, model: Path) -> dict[str, str | int | float | bool]:
    """Return vLLM's command line options that we set for a model; the user's mapping overrides them."""
    config = model / "config.json"
    longest = json.loads(config.read_text(encoding="utf-8")).get("max_position_embeddings") if config.is_file() else None
    common: dict[str, str | int | float | bool] = {
        "dtype": "bfloat16",
        "enable-prefix-caching": True,
        "logprobs-mode": "processed_logprobs",
        "generation-config": "vllm",  # else a model's generation_config.json changes what is sampled, unseen by the trainer
        "max-model-len": min(MODEL_LENGTH, longest) if isinstance(longest, int) else MODEL_LENGTH,
    }
    return common if cuda else {**common, "enforce-eager": True}


class VllmServer:
    """`vllm serve` as a child: started on entry, stopped on exit, restarted by `recover` after it died.

    Args:
        model: a folder that vLLM loads.
        name: the name under which the model is served.
        log: file for the server's output.
        port: a fixed port, or None for a free one.
        options: vLLM's command line options without the leading dashes; True gives a bare flag, False its absence.
        say: told what takes long.
    """

    def __init__(
        self,
        model: Path,
        name: str,
        log: Path,
        port: int | None = None,
        options: Options | None = None,
        say: Callable[[str], None] = print,
    ):
        self._model = model
        self.name = name
        self._log = log
        self._port = port or 0
        self._cuda = has_cuda()
        self.key = secrets.token_urlsafe(24)
        """What requests must carry: another user of this machine could load adapters otherwise."""
        self._options = {**default_options(self._cuda, model), **(options or {})}
        self._say = say
        self._process: subprocess.Popen[bytes] | None = None
        self._recovering = asyncio.Lock()
        self._adapters: dict[str, Path] = {}

    @property
    def base_url(self) -> str:
        """URL of the OpenAI API."""
        return f"http://127.0.0.1:{self._port}/v1"

    @property
    def takes_seeds(self) -> bool:
        """Whether requests may carry a seed."""
        return self._cuda

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()

    async def start(self) -> None:
        """Start the server and wait until it answers.

        Raises:
            MutatorError: it ended or did not answer in time; the text holds the end of its log.
            BadInput: the fixed port is taken.
        """
        if not is_installed():
            raise MutatorError(
                "vLLM is not installed. Install it with `pip install 'vector-evolve[vllm]'` (CUDA) or `make quickstart` "
                "(this machine), or give the URL of a running OpenAI-compatible server with --base-url."
            )
        self._port = self._port or _free_port()  # a restarted server keeps its port
        if not _is_free(self._port):
            raise BadInput(f"Port {self._port} of 127.0.0.1 is taken. Give another one, or none for a free one.")
        self._log.parent.mkdir(parents=True, exist_ok=True)
        self._say(f"starting the model server on port {self._port} (log: {self._log})")
        with self._log.open("ab") as log:
            self._process = subprocess.Popen(
                [sys.executable, "-P", "-m", "evolve.warden", *self._command()],
                stdin=subprocess.PIPE, stdout=log, stderr=log, env=self._environment(), start_new_session=True,
            )  # fmt: skip
        started = time.monotonic()
        try:
            while not await self.healthy():
                if self._process.poll() is not None:
                    raise MutatorError(f"The model server ended with code {self._process.returncode}. {self._tail()}")
                if time.monotonic() - started > START_SECONDS:
                    raise MutatorError(f"The model server did not answer in {START_SECONDS} s. {self._tail()}")
                await asyncio.sleep(0.25)
        except BaseException:
            self.stop()
            raise
        self._say(f"the model server answers after {time.monotonic() - started:.0f} s")

    async def healthy(self) -> bool:
        """Return whether the server and its engine answer."""
        try:
            async with httpx2.AsyncClient(timeout=5, trust_env=False) as client:
                return (await client.get(f"http://127.0.0.1:{self._port}/health")).status_code == 200
        except httpx2.HTTPError:
            return False

    async def load_adapter(self, name: str, folder: Path) -> None:
        """Serve a LoRA adapter under a name that no other one ever had; a restarted server loads it again.

        Raises:
            MutatorError: the server refuses it.
        """
        await self._post("/v1/load_lora_adapter", {"lora_name": name, "lora_path": str(folder)})
        self._adapters[name] = folder

    async def unload_adapter(self, name: str) -> None:
        """Serve an adapter no longer."""
        self._adapters.pop(name, None)
        await self._post("/v1/unload_lora_adapter", {"lora_name": name})

    async def _post(self, path: str, body: dict[str, str]) -> None:
        try:
            async with httpx2.AsyncClient(timeout=120, trust_env=False) as client:
                headers = {"Authorization": f"Bearer {self.key}"}
                answer = await client.post(f"http://127.0.0.1:{self._port}{path}", json=body, headers=headers)
        except httpx2.HTTPError as error:
            raise MutatorError(f"The model server did not take {path}: {error!r}") from error
        if answer.status_code != 200:
            raise MutatorError(f"The model server refuses {path} for {body}: {answer.text[:500]}")

    async def make_room(self, megabytes: float) -> str:
        """Leave the machine to a training until `go_on`; return how: `halted`, `ended` or `beside`.

        On the CPU the processes are halted, because even an idle engine keeps a core busy; they keep their memory. On a
        GPU, whose memory vLLM holds (nine tenths of it by its default), the server is ended unless enough is free beside it.
        vLLM's sleep mode is not used: it needs the server's development endpoints.

        Args:
            megabytes: of GPU memory that the training needs.
        """
        if not self._cuda:
            self._signal(signal.SIGSTOP)
            return "halted"
        if self.free_gpu_megabytes() >= megabytes:
            return "beside"
        self.stop()
        return "ended"

    async def go_on(self) -> None:
        """Answer again, with the adapters that were served before.

        Raises:
            MutatorError: it does not start any more.
        """
        if self._process is not None:
            self._signal(signal.SIGCONT)
            return
        async with self._recovering:
            await self._start_again()

    @staticmethod
    def free_gpu_megabytes() -> float:
        """Return the free memory of the emptiest GPU, 0 where nothing tells."""
        command = ["nvidia-smi", "--query-gpu=memory.free", "--format=csv,noheader,nounits"]
        try:
            done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=30)
        except (OSError, subprocess.TimeoutExpired):
            return 0.0
        found = [float(line) for line in done.stdout.split("\n") if line.strip().isdigit()]
        return max(found, default=0.0)

    async def _start_again(self) -> None:
        await self.start()
        for name, folder in list(self._adapters.items()):
            await self.load_adapter(name, folder)

    def _signal(self, number: signal.Signals) -> None:
        """Send a signal to the server's process group, not to its warden, who ends them when this process dies."""
        if self._process is None or self._process.poll() is not None:
            return
        children = Path(f"/proc/{self._process.pid}/task/{self._process.pid}/children").read_text(encoding="utf-8").split()
        for child in children[:1]:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(int(child), number)

    async def recover(self) -> None:
        """Restart the server when it is dead; do nothing when it answers."""
        async with self._recovering:
            if self._process is not None and self._process.poll() is None and await self.healthy():
                return
            self._say("the model server died; restarting it")
            self.stop()
            await self._start_again()

    def stop(self) -> None:
        """End the server and everything that it started (blocking, some seconds)."""
        if self._process is None:
            return
        assert self._process.stdin is not None
        self._process.stdin.close()
        try:
            self._process.wait(timeout=20)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        self._process = None

    def _command(self) -> list[str]:
        command = [sys.executable, "-P", "-m", "vllm.entrypoints.openai.api_server", "--host", "127.0.0.1"]
        command += ["--port", str(self._port), "--model", str(self._model), "--served-model-name", self.name]
        for key, value in self._options.items():
            if value is not False:
                command += [f"--{key}"] if value is True else [f"--{key}", str(value)]
        return command

    def _environment(self) -> dict[str, str]:
        environment = {
            **os.environ,
            "HF_HUB_OFFLINE": "1",
            "VLLM_NO_USAGE_STATS": "1",
            "DO_NOT_TRACK": "1",
            "VLLM_HOST_IP": "127.0.0.1",
            "VLLM_ALLOW_RUNTIME_LORA_UPDATING": "True",
            "VLLM_API_KEY": self.key,  # in the environment, which only its user can read, not on the command line
        }
        if not self._cuda:
            environment.setdefault("VLLM_CPU_KVCACHE_SPACE", "2")
            environment.setdefault("VLLM_CPU_NUM_OF_RESERVED_CPU", "0")
            if self._options.get("enforce-eager") is True:
                # else vLLM still compiles its log-probabilities at the first request: 13 s a start, for no more tokens/s
                environment.setdefault("TORCHDYNAMO_DISABLE", "1")
        return environment

    def _tail(self) -> str:
        text = self._log.read_text(errors="replace", encoding="utf-8") if self._log.exists() else ""
        lines = [line for line in text.splitlines() if line.strip()][-8:]
        return f"{self._log} ends with:\n" + "\n".join(lines)


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


def _is_free(port: int) -> bool:
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind(("127.0.0.1", port))
        except OSError:
            return False
        return True
