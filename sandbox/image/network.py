"""A bridge of our own for containers that fetch packages: not the host's network, and no other container is on it."""

from __future__ import annotations

import os
import ssl
from pathlib import Path

import docker

NAME = "vector-evolve-build"
PROXIES = ("http_proxy", "https_proxy", "no_proxy", "HTTP_PROXY", "HTTPS_PROXY", "NO_PROXY")


def build_network(client: docker.APIClient) -> str:
    """Return the name of the bridge, made now if it is not there (blocking)."""
    if not any(one["Name"] == NAME for one in client.networks(names=[NAME])):
        options = {"com.docker.network.bridge.enable_icc": "false"}
        try:
            client.create_network(NAME, driver="bridge", options=options, check_duplicate=True)
        except docker.errors.APIError as error:
            if error.status_code != 409:  # another process was faster
                raise
    return NAME


def proxies() -> dict[str, str]:
    """Return this machine's proxies for the network, but for those with a password."""
    return {name: os.environ[name] for name in PROXIES if os.environ.get(name) and "@" not in os.environ[name]}


def authorities() -> bytes | None:
    """Return the certificates that this machine trusts, where they are one file."""
    file = ssl.get_default_verify_paths().cafile
    return Path(file).read_bytes() if file and Path(file).is_file() else None
