"""The supervisor refuses to run on a host and touches nothing there."""

import os
import subprocess
import sys
from pathlib import Path

from sandbox.guest import runner, seccomp, supervisor

FILE = Path(runner.__file__)


def test_it_refuses_on_a_host(tmp_path):
    keep = tmp_path / "keep"
    keep.write_text("mine")
    done = subprocess.run([sys.executable, FILE], input=b"\0" * 64, capture_output=True, cwd=tmp_path, check=False)
    assert done.returncode == 2
    assert done.stdout == b""
    assert b"only as PID 1" in done.stderr
    assert keep.read_text() == "mine"


def test_its_destructive_step_is_inert_on_a_host(tmp_path, monkeypatch):
    (tmp_path / "keep").write_text("mine")
    monkeypatch.setattr(supervisor, "SCRATCH", str(tmp_path))
    assert os.getpid() != 1
    assert supervisor.clean_scratch(str(tmp_path / "keep")) is False
    assert (tmp_path / "keep").exists()


def test_it_needs_only_the_standard_library():
    code = f"import sys; sys.path.insert(0, {str(FILE.parent.parent)!r}); import guest.supervisor"
    done = subprocess.run([sys.executable, "-I", "-S", "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


def test_the_filter_is_a_whole_number_of_instructions():
    assert len(seccomp.build_filter()) % 8 == 0
