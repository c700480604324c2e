"""Build the sandbox image: from the Dockerfile where a registry answers, otherwise on a base made by debootstrap.

Images are named by the hash of what goes into them, so an existing one is used and a changed supervisor gives a new one.
"""

from __future__ import annotations

import hashlib
import io
import re
import shutil
import subprocess
import tarfile
import tempfile
from collections.abc import Callable, Sequence
from importlib.resources import files
from pathlib import Path

import docker

from sandbox.base import EngineUnavailable
from sandbox.container import HOME, EngineErrors
from sandbox.image.names import debian_packages
from sandbox.image.network import build_network, proxies

REPOSITORY = "vector-evolve-sandbox"
PUBLIC_BASE = ("debian", "bookworm-slim")
PYTHON_PACKAGES = ("python3", "python3-numpy", "python3-tqdm", "python3-yaml")
"""Python, what programs use most, and what evaluators use that OpenEvolve itself brings."""

Say = Callable[[str], None]


def image_tag(packages: Sequence[str] = ()) -> str:
    """Return the name of the image with these Debian packages beside Python and numpy.

    Raises:
        BadName: one of them is no name of a package.
    """
    packages = debian_packages(packages)
    named = " ".join((*PYTHON_PACKAGES, *packages)).encode()
    content = [*guest_files().items(), ("Dockerfile", _dockerfile()), ("packages", named)]
    return f"{REPOSITORY}:{hashlib.sha256(repr(content).encode()).hexdigest()[:12]}"


def find_image(client: docker.APIClient, packages: Sequence[str] = ()) -> str | None:
    """Return the id of the built image, or None."""
    try:
        return str(client.inspect_image(image_tag(packages))["Id"])
    except docker.errors.ImageNotFound:
        return None


def ensure_image(client: docker.APIClient, packages: Sequence[str] = (), say: Say = print) -> str:
    """Return the id of the sandbox image, built now if it is not there (blocking; about a minute).

    Raises:
        EngineUnavailable: it cannot be built here; the text says what is missing.
    """
    found = find_image(client, packages)
    if found is not None:
        return found
    base, present = _base(client, say)
    missing = [name for name in (*PYTHON_PACKAGES, *packages) if name not in present]
    say(f"building the sandbox image {image_tag(packages)} on {base}")
    try:
        _build(client, base, missing, image_tag(packages))
    except (*EngineErrors, EngineUnavailable) as error:
        raise EngineUnavailable(f"The sandbox image could not be built: {error}") from error
    built = find_image(client, packages)
    if built is None:
        raise EngineUnavailable("Docker reported a finished build, but the sandbox image is not there.")
    return built


def guest_files() -> dict[str, bytes]:
    """Return what the image holds of ours, by path under `HOME`: the supervisor, and the `openevolve` of evaluators."""
    guest = Path(str(files("sandbox").joinpath("guest")))
    found = {f"guest/{path.name}": path.read_bytes() for path in sorted(guest.glob("*.py"))}
    return found | {f"openevolve/{path.name}": path.read_bytes() for path in sorted(guest.glob("openevolve/*.py"))}


def _dockerfile() -> bytes:
    return files("sandbox").joinpath("image/Dockerfile").read_bytes()


def _build(client: docker.APIClient, base: str, packages: Sequence[str], tag: str) -> None:
    context = io.BytesIO()
    home = guest_files() | {"sandbox-image": tag.encode()}
    parts = {"Dockerfile": _dockerfile()} | {f"home/{name}": data for name, data in home.items()}
    with tarfile.open(fileobj=context, mode="w") as archive:
        for name, data in parts.items():
            entry = tarfile.TarInfo(name)
            entry.size, entry.mode = len(data), 0o444
            archive.addfile(entry, io.BytesIO(data))
    context.seek(0)
    events = client.build(
        fileobj=context,
        custom_context=True,
        tag=tag,
        buildargs={"BASE": base, "PACKAGES": " ".join(debian_packages(packages)), **proxies()},
        network_mode=build_network(client),
        rm=True,
        forcerm=True,
        decode=True,
    )
    log: list[str] = []
    for event in events:
        log.append(str(event.get("stream", "")).strip())
        if "error" in event:
            raise EngineUnavailable(f"{event['error']} ({' | '.join(line for line in log[-6:] if line)})")


def _base(client: docker.APIClient, say: Say) -> tuple[str, Sequence[str]]:
    """Return a base image and the packages of ours that it already holds."""
    local = f"{REPOSITORY}-base:{_release()}-{hashlib.sha256(repr(PYTHON_PACKAGES).encode()).hexdigest()[:8]}"
    if client.images(local):
        return local, PYTHON_PACKAGES
    name, tag = PUBLIC_BASE
    try:
        if not client.images(f"{name}:{tag}"):
            say(f"asking the image registry for {name}:{tag}")
            client.pull(name, tag=tag)
        return f"{name}:{tag}", ()
    except EngineErrors:
        say("no image registry answers; making the base image with debootstrap (about a minute)")
    _bootstrap(client, local)
    return local, PYTHON_PACKAGES


def _release() -> str:
    """Return the code name of this Debian or Ubuntu release, or an empty string elsewhere."""
    text = Path("/etc/os-release").read_text(encoding="utf-8") if Path("/etc/os-release").exists() else ""
    found = re.search(r'^VERSION_CODENAME="?(\w+)', text, re.MULTILINE)
    return found[1] if found else ""


def _mirror() -> str:
    """Return the package mirror that this machine's apt uses."""
    places = [Path("/etc/apt/sources.list"), *sorted(Path("/etc/apt/sources.list.d").glob("*"))]
    text = "\n".join(place.read_text(encoding="utf-8") for place in places if place.is_file())
    release = _release()
    deb822 = re.search(rf"^URIs:\s*(\S+)\s*\n(?:.*\n)*?Suites:[^\n]*\b{release}\b", text, re.MULTILINE)
    classic = re.search(rf"^deb\s+(?:\[[^\]]*\]\s+)?(\S+)\s+{release}\s", text, re.MULTILINE)
    found = deb822 or classic
    if found is None:
        raise EngineUnavailable("No package mirror of this Debian or Ubuntu release is named in /etc/apt.")
    return found[1]


def _bootstrap(client: docker.APIClient, tag: str) -> None:
    with tempfile.TemporaryDirectory(prefix="vector-evolve-image-") as folder:
        root = Path(folder, "root")
        debootstrap(root)
        archive = Path(folder, "root.tar")
        with tarfile.open(archive, "w") as tar:
            for part in sorted(root.iterdir()):
                if part.name not in ("proc", "sys", "dev"):
                    tar.add(part, arcname=part.name)
        client.import_image_from_file(str(archive), *tag.split(":"))


def debootstrap(root: Path, packages: Sequence[str] = ()) -> None:
    """Make the root file system of this Debian or Ubuntu release with Python and numpy (blocking; about a minute).

    Raises:
        EngineUnavailable: debootstrap is not here, or failed.
    """
    release = _release()
    if not release or shutil.which("debootstrap") is None:
        raise EngineUnavailable(
            "The sandbox image needs an image registry that answers, or `debootstrap` on Debian or Ubuntu "
            "(`apt-get install debootstrap`, as root). Neither is here."
        )
    include = f"--include={','.join(debian_packages((*PYTHON_PACKAGES, *packages)))}"
    command = ["debootstrap", "--variant=minbase", include, release, str(root), _mirror()]
    made = subprocess.run(command, capture_output=True, text=True, check=False)
    if made.returncode != 0:
        raise EngineUnavailable(f"debootstrap failed ({made.returncode}): {made.stdout[-600:]}")


def ensure_root(cache: Path, packages: Sequence[str] = (), say: Say = print) -> Path:
    """Return a folder with the image's root file system, for backends without Docker (blocking; about a minute once).

    Raises:
        EngineUnavailable: it cannot be made here.
    """
    name = image_tag(packages).replace(":", "-")
    root = cache / name
    if root.is_dir():
        return root
    say(f"making the sandbox's root file system in {root} (about a minute, once)")
    cache.mkdir(parents=True, exist_ok=True)
    partial = Path(tempfile.mkdtemp(prefix="root-", dir=cache))
    try:
        debootstrap(partial, packages)
        home = partial / HOME.lstrip("/")
        for path, data in (guest_files() | {"sandbox-image": name.encode()}).items():
            (home / path).parent.mkdir(parents=True, exist_ok=True)
            (home / path).write_bytes(data)
        if not (partial / "usr/bin/python").exists():
            (partial / "usr/bin/python").symlink_to("python3")
        partial.chmod(0o755)
        partial.rename(root)
    except BaseException:
        shutil.rmtree(partial, ignore_errors=True)
        raise
    return root
