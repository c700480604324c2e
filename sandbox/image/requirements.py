"""Python packages that an evaluator's `requirements.txt` names, as an image layer of their own.

pip fetches wheels for the image's Python in a bounded container of that image, on a bridge of its own; nothing of a package
runs there, and nothing at all on the host. What pip unpacked is laid where Debian's Python looks for local packages.
"""

from __future__ import annotations

import hashlib
import importlib.util
import io
import os
import re
import subprocess
import sys
import tarfile
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import IO, Any
from urllib.parse import urlsplit

import docker

from sandbox.base import EngineUnavailable
from sandbox.container import EngineErrors
from sandbox.image.build import REPOSITORY
from sandbox.image.names import BadName, python_requirements
from sandbox.image.network import authorities, build_network, proxies

FETCH_SECONDS = 1800
MOST_BYTES = 8 << 30
"""Of the packages, unpacked."""

FETCH = """
import sys
sys.path.insert(0, "/fetch")
print("python %d.%d" % sys.version_info[:2], flush=True)
from pip._internal.cli.main import main
wanted = ["install", "--isolated", "--no-input", "--no-cache-dir", "--quiet", "--disable-pip-version-check", "--no-compile"]
wanted += ["--only-binary=:all:", "--target", "/fetch/site", "-r", "/fetch/requirements.txt", *sys.argv[1:]]
sys.exit(main(wanted))
"""
Say = Callable[[str], None]


def ensure_layer(client: docker.APIClient, image: str, requirements: str, say: Say = print) -> str:
    """Return the id of an image with these packages on top of another one, built if it is not there (blocking).

    Raises:
        EngineUnavailable: a line is no package, a package can't be had as a wheel, or the engine failed.
    """
    try:
        wanted = "\n".join(python_requirements(requirements)) + "\n"
    except BadName as error:
        raise EngineUnavailable(f"requirements.txt, {error}.") from None
    tag = f"{REPOSITORY}:{hashlib.sha256(f'{image} {wanted}'.encode()).hexdigest()[:12]}"
    try:
        return str(client.inspect_image(tag)["Id"])
    except docker.errors.ImageNotFound:
        say("building an image layer for requirements.txt")
    try:
        with tempfile.TemporaryFile() as site:
            version = fetch(client, image, wanted, site)
            _build(client, image, version, site, tag)
        return str(client.inspect_image(tag)["Id"])
    except EngineErrors as error:
        raise EngineUnavailable(f"The image layer for requirements.txt could not be built: {error}") from error


def fetch(client: docker.APIClient, image: str, wanted: str, site: IO[bytes]) -> str:
    """Let pip unpack wheels in a container; write them as a tar file and return the version of the image's Python.

    Raises:
        EngineUnavailable: pip failed; the text says why.
    """
    trusted = authorities()
    index = package_index()
    options = [*(["--cert", "/fetch/trusted.pem"] if trusted else []), *(["--index-url", index] if index else [])]
    config = client.create_host_config(
        network_mode=build_network(client),
        cap_drop=["ALL"],
        security_opt=["no-new-privileges"],
        pids_limit=256,
        mem_limit=2 << 30,
        memswap_limit=2 << 30,
        log_config=docker.types.LogConfig(type="json-file", config={"max-size": "1m"}),
        tmpfs={"/tmp": "noexec,nosuid,nodev,size=1g"},
    )
    made = client.create_container(
        image,
        command=["python3", "-I", "-c", FETCH, *options],
        user="65534:65534",
        environment=proxies() | {"HOME": "/tmp"},
        working_dir="/",
        host_config=config,
    )["Id"]
    try:
        client.put_archive(made, "/", _parts(wanted, trusted))
        client.start(made)
        code = client.wait(made, timeout=FETCH_SECONDS)["StatusCode"]
        log = client.logs(made).decode("utf-8", "replace")
        version = re.match(r"python (\d+\.\d+)\n", log)
        if code != 0 or version is None:
            raise EngineUnavailable(f"requirements.txt could not be had as wheels for the image's Python: {_reason(log)}")
        _take(client, made, site)
        return version[1]
    finally:
        client.remove_container(made, force=True)


def package_index() -> str | None:
    """Return the package index that this machine's pip asks, where it is not the default one; never with a password."""
    found = os.environ.get("PIP_INDEX_URL")
    if not found:
        command = [sys.executable, "-P", "-m", "pip", "config", "get", "global.index-url"]
        found = subprocess.run(command, capture_output=True, text=True, check=False).stdout.strip()
    if found and urlsplit(found).username is not None:
        raise EngineUnavailable(
            "The package index of this machine's pip has a password in its address, which no container gets. Set "
            "PIP_INDEX_URL to an index without one."
        )
    return found or None


def _parts(wanted: str, trusted: bytes | None) -> bytes:
    """Return a tar file of what the container needs: pip as it is installed here, the wanted packages, certificates."""
    spec = importlib.util.find_spec("pip")
    if spec is None or not spec.submodule_search_locations:
        raise EngineUnavailable(f"requirements.txt needs pip, which {sys.executable} doesn't have: `python -m ensurepip`.")
    archive = io.BytesIO()
    with tarfile.open(fileobj=archive, mode="w") as tar:
        _add(tar, "fetch", None)
        _add(tar, "fetch/site", None)
        _add(tar, "fetch/requirements.txt", wanted.encode())
        if trusted:
            _add(tar, "fetch/trusted.pem", trusted)
        home = Path(next(iter(spec.submodule_search_locations)))
        for path in sorted(home.rglob("*")):
            if path.is_file() and "__pycache__" not in path.parts:
                _add(tar, f"fetch/pip/{path.relative_to(home).as_posix()}", path.read_bytes())
    return archive.getvalue()


def _add(tar: tarfile.TarFile, name: str, data: bytes | None) -> None:
    entry = tarfile.TarInfo(name)
    entry.uid = entry.gid = 65534
    if data is None:
        entry.type, entry.mode = tarfile.DIRTYPE, 0o755
        tar.addfile(entry)
    else:
        entry.size, entry.mode = len(data), 0o444
        tar.addfile(entry, io.BytesIO(data))


def _reason(log: str) -> str:
    """Return what pip complained about, without addresses."""
    lines = [line for line in re.sub(r"\S+://\S+", "<index>", log).splitlines() if line.startswith("ERROR")]
    return " ".join(lines)[-800:] or log[-400:]


def _take(client: docker.APIClient, container: str, site: IO[bytes]) -> None:
    """Copy what pip unpacked out of a container, byte by byte as a tar file.

    Raises:
        EngineUnavailable: it is too much.
    """
    pieces, _ = client.get_archive(container, "/fetch/site")
    for piece in pieces:
        site.write(piece)
        if site.tell() > MOST_BYTES:
            raise EngineUnavailable(f"The packages of requirements.txt take more than {MOST_BYTES >> 30} GB unpacked.")
    site.seek(0)


def _build(client: docker.APIClient, image: str, version: str, site: IO[bytes], tag: str) -> None:
    """Build the layer. Only files and folders of what came out of the container go into it, owned by root."""
    name = f"{tag}-from".replace(":", "-")
    client.tag(image, name)  # a build starts from a name, not from an id
    dockerfile = f"FROM {name}\nCOPY site /usr/local/lib/python{version}/dist-packages\n".encode()
    with tempfile.TemporaryFile() as context:
        with tarfile.open(fileobj=site) as source, tarfile.open(fileobj=context, mode="w") as archive:
            _add(archive, "Dockerfile", dockerfile)
            for entry in source:
                if entry.isfile() or entry.isdir():
                    entry.uid = entry.gid = 0
                    entry.uname = entry.gname = "root"
                    archive.addfile(entry, source.extractfile(entry) if entry.isfile() else None)
        context.seek(0)
        events: Any = client.build(
            fileobj=context, custom_context=True, tag=tag, rm=True, forcerm=True, decode=True, network_mode="none"
        )
        for event in events:
            if "error" in event:
                raise EngineUnavailable(f"The image layer for requirements.txt could not be built: {event['error']}")
    client.remove_image(name)
