"""Say what works on this machine and what to do about the rest."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import docker
from sqlalchemy import select

from evolve import schema as s
from evolve.cache import cache_folder
from evolve.completion import Message
from evolve.connection import reading
from evolve.errors import DatabaseError, MutatorError
from evolve.history import totals
from evolve.keys import key_for
from evolve.models import DEFAULT_MODEL, PACKAGED
from evolve.mutator import OpenAIMutator
from evolve.server import has_cuda, is_installed
from sandbox.base import EngineUnavailable, Limits, SandboxError
from sandbox.docker import DockerSandbox
from sandbox.engine import Engine
from sandbox.image.build import find_image, image_tag

MIN_FREE_GB = 5
PROBE_TOKENS = 16
PROBE: list[Message] = [{"role": "system", "content": "You answer in one word."}, {"role": "user", "content": "Say yes."}]


@dataclass(frozen=True, slots=True)
class Check:
    """One thing that was looked at."""

    name: str
    works: bool
    found: str
    advice: str = ""


async def examine(engine: Engine) -> list[Check]:
    """Look at everything that a run needs."""
    return [*_disk(), *(await _sandbox(engine)), *_model()]


def _disk() -> Iterator[Check]:
    folder = cache_folder()
    free = shutil.disk_usage(folder).free / 1e9
    enough = free >= MIN_FREE_GB
    advice = "" if enough else f"Free {MIN_FREE_GB} GB there, or set VECTOR_EVOLVE_CACHE to another place."
    yield Check("disk", enough, f"{free:.0f} GB free in {folder}", advice)


async def _sandbox(engine: Engine) -> list[Check]:
    try:
        url = engine.require()
    except EngineUnavailable as error:
        return [Check("docker", False, "no engine answers", str(error))]
    client = docker.APIClient(base_url=url, version="auto", timeout=30)
    try:
        checks = [Check("docker", True, f"engine {client.version()['Version']} at {url}")]
        image = find_image(client)
    finally:
        client.close()
    if image is None:
        return [*checks, Check("image", False, f"{image_tag()} is not built", "Run `evolve setup`.")]
    checks.append(Check("image", True, image_tag()))
    try:
        async with DockerSandbox(url, image, Limits(), size=1, patience=10):
            checks.append(Check("sandbox", True, "its limits hold (six harmless attacks)"))
    except SandboxError as error:
        checks.append(Check("sandbox", False, "its limits could not be proved", str(error)))
    return checks


def _model() -> Iterator[Check]:
    kind = "CUDA" if has_cuda() else "CPU"
    advice = "Run `make quickstart`, or use a running server with --base-url."
    yield Check("vllm", is_installed(), f"{'installed' if is_installed() else 'not installed'}, {kind}", advice)
    ready = [name for name in PACKAGED if (cache_folder() / "models" / name / "config.json").is_file()]
    yield Check(
        "model",
        bool(ready),
        f"ready: {', '.join(ready) or 'none'}",
        f"`evolve setup` fetches {DEFAULT_MODEL}; `--model` takes a hub id, a folder or a .gguf file.",
    )


async def examine_server(url: str, model: str | None) -> list[Check]:
    """Ask a server of models for two short completions; say what it can do.

    Args:
        url: of the OpenAI API, ending in /v1.
        model: served name; None takes the first that the server lists.
    """
    key = key_for(url, True, None, ())
    mutator = OpenAIMutator(url, model, api_key=key, sampling={"max_tokens": PROBE_TOKENS}, patience=10, say=lambda _: None)
    try:
        async with mutator:
            found = await mutator.sample(PROBE, (0, 1), 1, 0)
    except MutatorError as error:
        return [Check("server", False, "no completion", str(error))]
    dialect, trainable = mutator.dialect, mutator.gives_token_ids
    tokens = sum(one.completion_tokens for one in found)
    context = (
        f"{mutator.context} tokens"
        if mutator.context is not None
        else "not said; prompts are shortened when the server refuses them"
    )
    return [
        Check("server", True, f"{url} answers: {len(found)} completions, {tokens or 'an unknown number of'} tokens"),
        Check("model", True, mutator.name),
        Check("context", True, context),
        Check("completions", True, "several a request" if dialect.gives_n else "one a request; each is asked for by itself"),
        Check("system", True, "taken" if dialect.has_system else "refused; it goes before the first message of the user"),
        Check("training", True, "possible: token ids are given" if trainable else "not possible: no token ids are given"),
    ]


def examine_run(folder: Path) -> list[Check]:
    """Look at a run's database: readable, whole, nothing that points nowhere, and how far it came.

    Raises:
        BadInput: there is no run.
    """
    lost = "Copy the file away; `sqlite3 run.sqlite .recover` saves what can be read. Start a new run."
    checks: list[Check] = []
    try:
        with reading(folder) as connection:
            found = list(connection.exec_driver_sql("pragma integrity_check").scalars())
            checks.append(Check("integrity", found == ["ok"], "; ".join(found)[:300], lost))
            loose = len(connection.exec_driver_sql("pragma foreign_key_check").all())
            checks.append(Check("references", loose == 0, f"{loose} rows point nowhere", lost))
            run = connection.execute(select(s.run)).one()
            used = totals(connection)
            state = f"{run.status}{': ' + run.reason if run.reason else ''}; {used.candidates} candidates"
            checks.append(Check("run", True, f"{run.problem_name}: {state}"))
            there = Path(run.problem).is_dir()
            checks.append(Check("problem", there, run.problem, "Put the problem folder back there, or it can't be resumed."))
    except DatabaseError as error:
        checks.append(Check("readable", False, str(error)[:300], lost))
    return checks
