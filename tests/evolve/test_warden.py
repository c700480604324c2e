"""The warden: what it runs does not outlive its owner."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

CHILD = """
import os, subprocess, time
p = subprocess.Popen(["sleep", "60"])
print(os.getpid(), p.pid, flush=True)
time.sleep(60)
"""
OWNER = """
import subprocess, sys, time
command = [sys.executable, "-m", "evolve.warden", sys.executable, "-c", sys.argv[1]]
p = subprocess.Popen(command, stdin=subprocess.PIPE)
time.sleep(60)
"""


def gone(pid):
    status = Path(f"/proc/{pid}/status")
    return not status.exists() or "State:\tZ" in status.read_text()


def wait_until_gone(pids, seconds=15):
    deadline = time.monotonic() + seconds
    while not all(map(gone, pids)) and time.monotonic() < deadline:
        time.sleep(0.05)
    return all(map(gone, pids))


def test_kill_9_of_the_owner_ends_the_whole_group():
    owner = subprocess.Popen([sys.executable, "-c", OWNER, CHILD], stdout=subprocess.PIPE)
    pids = list(map(int, owner.stdout.readline().split()))
    assert not any(map(gone, pids))
    os.kill(owner.pid, signal.SIGKILL)
    owner.wait()
    owner.stdout.close()
    assert wait_until_gone(pids)


def test_it_passes_the_exit_code_on():
    command = [sys.executable, "-m", "evolve.warden", sys.executable, "-c", "raise SystemExit(7)"]
    process = subprocess.Popen(command, stdin=subprocess.PIPE)
    assert process.wait(20) == 7
    process.stdin.close()


def test_closing_its_stdin_ends_it():
    command = [sys.executable, "-m", "evolve.warden", sys.executable, "-c", CHILD]
    process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    pids = list(map(int, process.stdout.readline().split()))
    process.stdin.close()
    process.wait(20)
    process.stdout.close()
    assert wait_until_gone(pids)


def test_temporary_files_go_with_it(tmp_path):
    code = "import tempfile; print(tempfile.mkdtemp())"
    process = subprocess.Popen(
        [sys.executable, "-m", "evolve.warden", sys.executable, "-c", code],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        env=os.environ | {"TMPDIR": str(tmp_path)},
    )
    made = Path(process.stdout.read().strip())
    process.wait(20)
    process.stdin.close()
    process.stdout.close()
    assert tmp_path in made.parents
    assert list(tmp_path.iterdir()) == []
