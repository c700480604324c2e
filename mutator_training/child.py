"""A part of the work in a process of its own, so that its memory goes back; it never outlives its owner."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from evolve.server import has_cuda

QUIET = {"TRL_EXPERIMENTAL_SILENCE": "1", "HF_HUB_OFFLINE": "1", "TOKENIZERS_PARALLELISM": "false"}
SAID = "say "
"""Begins the lines of a child's stdout that its owner passes on."""


def run(
    module: str,
    arguments: Sequence[str],
    log: Path,
    say: Callable[[str], None],
    stop: threading.Event | None = None,
    environment: Mapping[str, str] | None = None,
    processes: int = 1,
) -> int:
    """Run `python -m module arguments` to its end and return its exit code.

    Args:
        module: what is run.
        arguments: given to it.
        log: file that its stderr is added to.
        say: told what the child says (`tell`).
        stop: ends the child when it is set.
        environment: added to this process's.
        processes: that run it together, by `accelerate launch`.
    """
    command = [sys.executable, "-P", "-W", "ignore", "-m"]
    if processes > 1:
        command += ["accelerate.commands.launch", "--num_processes", str(processes), "--num_machines", "1"]
        command += ["--mixed_precision", "no", "--dynamo_backend", "no", "--main_process_port", "0"]
        command += ["-m"] if has_cuda() else ["--cpu", "-m"]
    command += [module, *arguments]
    with log.open("a", encoding="utf-8") as errors:
        child = subprocess.Popen(
            [sys.executable, "-P", "-m", "evolve.warden", *command],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=errors,
            text=True,
            env=os.environ | QUIET | dict(environment or {}),
        )
        assert child.stdout is not None and child.stdin is not None
        ended = threading.Event()
        watcher = threading.Thread(target=_end_when, args=(stop or threading.Event(), ended, child), daemon=True)
        watcher.start()
        try:
            for line in child.stdout:
                if line.startswith(SAID):
                    say(line[len(SAID) :].strip())
            return child.wait()
        finally:
            ended.set()
            watcher.join()
            child.stdin.close()  # the warden ends what is left
            child.stdout.close()
            child.wait()


def _end_when(stop: threading.Event, ended: threading.Event, child: subprocess.Popen[str]) -> None:
    """End the warden's process, and so the work, when it is time."""
    while not ended.wait(0.2):
        if stop.is_set():
            child.terminate()
            return


def tell(text: str) -> None:
    """In the child: say something to the owner."""
    print(f"{SAID}{text}", flush=True)


def ending(log: Path) -> str:
    """Return the last lines of a child's log, for an error's text."""
    lines = log.read_text(encoding="utf-8", errors="replace").strip().splitlines()[-12:]
    return f"{log} ends with:\n" + "\n".join(lines)
