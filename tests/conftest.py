"""Shared parts: a small problem, and the real Docker engine and model server for the slow tests."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import docker
import pytest

from evolve.sandboxes import engine
from sandbox.engine import install
from sandbox.image.build import ensure_image

ROOT = Path(__file__).parent.parent


def write_problem(folder: Path, **changes: Any) -> Path:
    """Write a small, right problem folder: `double(x)`, three visible tests and one hidden."""
    spec = {"name": "double", "statement": "Write double(x), which returns twice x.", "entry": "double"}
    spec |= changes.pop("spec", {})
    tests = changes.pop("tests", None) or [
        {"id": "one", "args": [1], "expected": 2},
        {"id": "text", "args": ["ab"], "expected": "abab"},
        {"id": "list", "args": [[1]], "expected": [1, 1]},
        {"id": "h", "args": [21], "expected": 42, "hidden": True},
    ]
    files = {
        "problem.yaml": json.dumps(spec),
        "initial_program.py": "def double(x):\n    return 2\n",
        "tests.jsonl": "\n".join(map(json.dumps, tests)),
    } | changes.pop("files", {})
    folder.mkdir(parents=True, exist_ok=True)
    for name, text in files.items():
        if text is not None:
            (folder / name).write_text(text)
    return folder


@pytest.fixture
def problem_folder(tmp_path: Path) -> Path:
    """A right problem folder."""
    return write_problem(tmp_path / "double")


@pytest.fixture(scope="session")
def docker_url() -> str:
    """The Docker engine, started if none answers."""
    return engine().start()


@pytest.fixture(scope="session")
def chromium() -> str:
    """A headless browser, installed if there is none (Debian and Ubuntu, as root)."""
    if shutil.which("chromium") is None:
        install(["chromium"], "chromium", print)
    found = shutil.which("chromium")
    assert found is not None
    return found


@pytest.fixture(scope="session")
def image(docker_url: str) -> str:
    """The sandbox image, built if it is not there."""
    client = docker.APIClient(base_url=docker_url, version="auto", timeout=600)
    try:
        return ensure_image(client)
    finally:
        client.close()
