"""Python packages that an evaluator's `requirements.txt` names, as an image layer of their own.

The host's pip fetches wheels for the image's Python and unpacks them; nothing of them runs on the host, and no build script
of a package runs anywhere. They are laid where Debian's Python looks for local packages.
"""

from __future__ import annotations

import hashlib
import io
import re
import shutil
import subprocess
import sys
import tarfile
import tempfile
from collections.abc import Callable
from pathlib import Path

import docker

from sandbox.base import EngineUnavailable
from sandbox.container import EngineErrors
from sandbox.image.build import REPOSITORY

PLATFORMS = ("manylinux_2_28", "manylinux_2_27", "manylinux_2_24", "manylinux2014", "manylinux_2_17")
"""What Debian 12 and newer can load."""
Say = Callable[[str], None]


def ensure_layer(client: docker.APIClient, image: str, requirements: str, say: Say = print) -> str:
    """Return the id of an image with these packages on top of another one, built if it is not there (blocking).

    Raises:
        EngineUnavailable: a package can't be had as a wheel, or the engine failed.
    """
    tag = f"{REPOSITORY}:{hashlib.sha256(f'{image} {requirements}'.encode()).hexdigest()[:12]}"
    try:
        return str(client.inspect_image(tag)["Id"])
    except docker.errors.ImageNotFound:
        say("building an image layer for requirements.txt")
    try:
        version = _python(client, image)
        with tempfile.TemporaryDirectory(prefix="vector-evolve-requirements-") as folder:
            unpack(requirements, version, str(client.inspect_image(image)["Architecture"]), Path(folder))
            _build(client, image, version, Path(folder), tag)
        return str(client.inspect_image(tag)["Id"])
    except EngineErrors as error:
        raise EngineUnavailable(f"The image layer for requirements.txt could not be built: {error}") from error


def unpack(requirements: str, version: str, architecture: str, folder: Path) -> None:
    """Unpack wheels for a Python version such as `3.11` into a folder (blocking).

    Raises:
        EngineUnavailable: pip failed; the text says why.
    """
    machine = {"amd64": "x86_64", "arm64": "aarch64"}.get(architecture, architecture)
    listed = folder / "requirements.txt"
    listed.write_text(requirements)
    command = [sys.executable, "-m", "pip", "install", "--quiet", "--disable-pip-version-check", "--no-compile"]
    command += [
        "--only-binary=:all:",
        "--implementation",
        "cp",
        "--python-version",
        version,
        "--target",
        str(folder / "site"),
    ]
    for platform in PLATFORMS:
        command += ["--platform", f"{platform}_{machine}"]
    done = subprocess.run([*command, "-r", str(listed)], capture_output=True, text=True, check=False, cwd=folder)
    if done.returncode != 0:
        lines = [re.sub(r"\S+://\S+", "<index>", line) for line in done.stderr.splitlines() if line.startswith("ERROR")]
        why = " ".join(lines)[-800:] or done.stderr[-400:]
        raise EngineUnavailable(f"requirements.txt could not be had as wheels for Python {version}: {why}")


def _python(client: docker.APIClient, image: str) -> str:
    """Return the version of an image's Python, such as `3.11`."""
    made = client.create_container(image, command=["python3", "-c", "import sys; print('%d.%d' % sys.version_info[:2])"])
    try:
        client.start(made["Id"])
        client.wait(made["Id"], timeout=60)
        found = re.search(r"\d+\.\d+", client.logs(made["Id"]).decode())
    finally:
        client.remove_container(made["Id"], force=True)
    if found is None:
        raise EngineUnavailable("The sandbox image's Python doesn't tell its version.")
    return found[0]


def _build(client: docker.APIClient, image: str, version: str, folder: Path, tag: str) -> None:
    (folder / "site").mkdir(exist_ok=True)
    for cache in folder.rglob("__pycache__"):
        shutil.rmtree(cache)
    name = f"{tag}-from".replace(":", "-")
    client.tag(image, name)  # a build starts from a name, not from an id
    dockerfile = f"FROM {name}\nCOPY site /usr/local/lib/python{version}/dist-packages\n".encode()
    with tempfile.TemporaryFile() as context:
        with tarfile.open(fileobj=context, mode="w") as archive:
            entry = tarfile.TarInfo("Dockerfile")
            entry.size = len(dockerfile)
            archive.addfile(entry, io.BytesIO(dockerfile))
            archive.add(folder / "site", "site", filter=_owned)
        context.seek(0)
        events = client.build(fileobj=context, custom_context=True, tag=tag, rm=True, forcerm=True, decode=True)
        for event in events:
            if "error" in event:
                raise EngineUnavailable(f"The image layer for requirements.txt could not be built: {event['error']}")
    client.remove_image(name)


def _owned(entry: tarfile.TarInfo) -> tarfile.TarInfo:
    entry.uid = entry.gid = 0
    entry.uname = entry.gname = "root"
    return entry
