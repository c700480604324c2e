"""Connect mutators: to a server of the user's, to several, to a recorded run, or to vLLM as a child, started when needed."""

from __future__ import annotations

import asyncio
import hashlib
import json
from collections.abc import Callable, Mapping, Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from evolve.completion import Mutator
from evolve.ensemble import Ensemble
from evolve.errors import BadInput
from evolve.evaluated import EvaluatedProblem
from evolve.keys import key_for
from evolve.models import DEFAULT_MODEL, resolve
from evolve.mutator import OpenAIMutator, Way
from evolve.problem import Problem
from evolve.replay import ReplayMutator
from evolve.server import VllmServer

Say = Callable[[str], None]


@dataclass(frozen=True, slots=True)
class MutatorOptions:
    """How completions are had; stored with the run.

    Attributes:
        model: hub id, folder, .gguf file or packaged model; with `base_url`, the served name (None: the first).
        base_url: of a running OpenAI-compatible server; None starts vLLM as a child.
        way: plain, scaffold or auto.
        sampling: passed through to every request.
        server: passed through to vLLM's command line.
        patience: seconds for which a server that fails is asked again.
        timeout: seconds that a request may take.
        retries: how often a request that fails is repeated before the server counts as away.
        models: name, weight and base URL of several served models, one of which is drawn for each prompt; instead of `model`
            and `base_url`.
        replay: folder of a recorded run whose completions are given again, instead of a model's.
        adapter: folder of a LoRA adapter that the managed server loads beside the model.
        lora_rank: of adapters that the managed server may get later; None for none.
        allow_env: names of variables of the environment that a problem folder's config may have as keys.
    """

    model: str | None = None
    base_url: str | None = None
    way: Way = "auto"
    sampling: Mapping[str, Any] = field(default_factory=dict)
    server: Mapping[str, Any] = field(default_factory=dict)
    patience: float = 300.0
    timeout: float = 600.0
    retries: int = 2
    models: Sequence[tuple[str, float, str]] = ()
    replay: str | None = None
    adapter: str | None = None
    lora_rank: int | None = None
    allow_env: Sequence[str] = ()


def adapter_name(folder: Path) -> str:
    """Return the served name of an adapter: its folder's, and where it lies, so that no two share one."""
    return f"{folder.name}-{hashlib.sha256(str(folder).encode()).hexdigest()[:8]}"


def adapter_options(options: MutatorOptions) -> dict[str, Any]:
    """Return vLLM's options for the adapter of a run, and for those that training makes.

    Raises:
        BadInput: the folder holds none.
    """
    rank = options.lora_rank or 0
    found: dict[str, Any] = {}
    if options.adapter is not None:
        config = Path(options.adapter) / "adapter_config.json"
        if not config.is_file():
            raise BadInput(
                f"{options.adapter} is no LoRA adapter: it holds no adapter_config.json. `evolve train` makes one."
            )
        rank = max(rank, int(json.loads(config.read_text(encoding="utf-8"))["r"]))
        found["lora-modules"] = f"{adapter_name(Path(options.adapter))}={options.adapter}"
    return found | {"enable-lora": True, "max-lora-rank": max(8, rank), "max-loras": 3} if rank else {}


class Mutators:
    """Mutators for the problems of one process; a managed server is started at the first need and shared.

    Args:
        folder: for the server's log.
        options: how completions are had.
        say: told what takes long.
    """

    def __init__(self, folder: Path, options: MutatorOptions, say: Say):
        self._folder = folder
        self._options = options
        self._say = say
        self._stack = AsyncExitStack()
        self._starting = asyncio.Lock()
        self._server: VllmServer | None = None
        adapter = options.adapter
        self.version = None if adapter is None else (adapter_name(Path(adapter)), Path(adapter))
        """Served name and folder of the adapter that the next mutators sample from; None is the base model."""
        self.base: Path | None = None
        """Folder of the managed server's model, once it runs."""

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self._stack.aclose()

    async def connect(self, problem: Problem, sampling: Mapping[str, Any] | None = None, answers: int = 1) -> Mutator:
        """Return a connected mutator for a problem.

        Args:
            problem: what is searched for.
            sampling: passed through to every request, instead of the options' sampling.
            answers: that each completion will be asked for.

        Raises:
            MutatorError, ModelError: there is none; the text says what to do.
        """
        options = self._options
        if options.replay is not None:
            replay = ReplayMutator(Path(options.replay))
            self._stack.callback(replay.close)
            return replay
        common: dict[str, Any] = {
            "way": options.way,
            "language": problem.language,
            "sampling": options.sampling if sampling is None else sampling,
            "answers": answers,
            "patience": options.patience,
            "timeout": options.timeout,
            "retries": options.retries,
            "say": self._say,
        }
        config_key = problem.config.api_key if isinstance(problem, EvaluatedProblem) else None
        if options.models:
            clients = []
            for name, _, url in options.models:
                key = key_for(url, False, config_key, options.allow_env, self._say)
                clients.append(await self._stack.enter_async_context(OpenAIMutator(url, name, api_key=key, **common)))
            return Ensemble(clients, [weight for _, weight, _ in options.models])
        if options.base_url is not None:
            key = key_for(options.base_url, True, config_key, options.allow_env, self._say)
            client = OpenAIMutator(options.base_url, options.model, api_key=key, **common)
        else:
            server = await self._managed()
            name = server.name if self.version is None else self.version[0]
            client = OpenAIMutator(
                server.base_url, name, api_key=server.key, takes_seeds=server.takes_seeds, recover=server.recover, **common
            )
        connected = await self._stack.enter_async_context(client)
        if not connected.gives_token_ids:
            self._say(f"{options.base_url} gives no token ids: this run can search, but a mutator can't be trained from it")
        return connected

    async def serve(self, name: str, folder: Path) -> None:
        """Let the next mutators sample from an adapter, under a name that no other one ever had; the one before goes.

        Raises:
            MutatorError: the server can't load it.
            BadInput: the server is not managed here.
        """
        if self._options.base_url is not None or self._options.models or self._options.replay is not None:
            raise BadInput("Adapters are served by a server that is managed here, so not with --base-url or --replay.")
        server = await self._managed()
        await server.load_adapter(name, folder)
        before, self.version = self.version, (name, folder)
        if before is not None:
            await server.unload_adapter(before[0])

    async def serve_base(self) -> None:
        """Let the next mutators sample from the base model."""
        before, self.version = self.version, None
        if before is not None and self._server is not None:
            await self._server.unload_adapter(before[0])

    @property
    def server(self) -> VllmServer | None:
        """The managed server, once it runs."""
        return self._server

    async def _managed(self) -> VllmServer:
        async with self._starting:
            if self._server is None:
                name = self._options.model or DEFAULT_MODEL
                path = await asyncio.to_thread(resolve, name, self._say)
                self._say(f"model {name}: {path}")
                log = self._folder / "server.log"
                given = {**adapter_options(self._options), **self._options.server}
                self.base = path
                server = VllmServer(path, Path(name).name, log, options=given, say=self._say)
                self._server = await self._stack.enter_async_context(server)
            return self._server
