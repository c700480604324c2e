"""Run a comparison: a cell per arm and seed, trained, sampled, searched; nothing is ever done twice.

A comparison's folder holds `plan.json`, `cells/ARM-sSEED/{train.json, samples.npz, sample.json, search.json}` and what the
lab leaves. A stage's file appears whole, after the stage; so whatever is killed, the next start goes on with the stages
whose file is missing, and the report is computed from the files alone.
"""

from __future__ import annotations

import fcntl
import json
import os
import sys
import threading
from collections.abc import Iterator, Sequence
from concurrent.futures import FIRST_EXCEPTION, ThreadPoolExecutor, wait
from contextlib import contextmanager
from enum import StrEnum
from pathlib import Path
from typing import Any

import numpy as np

from evolve.errors import EvolveError
from mutator_training import child
from mutator_training.lab import Cell, Lab, Say, open_lab
from mutator_training.plan import Plan, load
from mutator_training.samples import Samples


class Phase(StrEnum):
    """What the processes of a comparison do; a phase begins when the one before has ended for all cells."""

    PREPARE = "prepare"
    SAMPLE = "sample"
    """Train each cell and sample from it."""
    SEARCH = "search"


HARDEST = "hardest.json"


class CellError(EvolveError):
    """The process of a stage failed; the text holds the end of what it said."""


def cells(folder: Path, plan: Plan) -> list[Cell]:
    """Return the cells of a comparison, seed by seed. The base has one per seed like every arm: it samples anew."""
    return [Cell(folder / "cells" / f"{arm.slug}-s{seed}", arm, seed) for seed in range(plan.seeds) for arm in plan.parsed]


def run(folder: Path, jobs: int, say: Say) -> None:
    """Run what is missing of a comparison.

    Args:
        folder: with a plan.
        jobs: cells at a time.
        say: told of the progress.

    Raises:
        CellError: a stage failed; what is finished is kept.
    """
    plan = load(folder)
    places = [cell.folder for cell in cells(folder, plan)]
    if not (folder / "prepare.json").exists():
        _phase(folder, Phase.PREPARE, 1, say)
    if not _finished(places, Phase.SAMPLE):
        _phase(folder, Phase.SAMPLE, jobs, say)
    if hardest(folder, plan) and not _finished(places, Phase.SEARCH):
        _phase(folder, Phase.SEARCH, jobs, say)


def _finished(places: Sequence[Path], phase: Phase) -> bool:
    return all((place / f"{phase}.json").exists() for place in places)


def _phase(folder: Path, phase: Phase, jobs: int, say: Say) -> None:
    """Run a phase in processes that share the cells; the first failure ends all."""
    stop = threading.Event()

    def one(share: int) -> None:
        log = folder / f"{phase}-{share}.log"
        threads = {} if jobs == 1 else {"OMP_NUM_THREADS": str(max(1, (os.cpu_count() or 1) // jobs))}
        code = child.run("mutator_training.comparison", [str(folder), phase], log, say, stop, threads)
        if code != 0 and not stop.is_set():
            raise CellError(f"The phase {phase} ended with code {code}; the same command goes on. {child.ending(log)}")

    with ThreadPoolExecutor(jobs) as pool:
        futures = [pool.submit(one, share) for share in range(jobs)]
        try:
            finished, _ = wait(futures, return_when=FIRST_EXCEPTION)
            for future in finished:
                future.result()
        finally:
            stop.set()


def work(folder: Path, phase: Phase) -> None:
    """Do the cells of a phase that no other process does, in a process of its own."""
    plan = load(folder)
    lab = open_lab(plan, folder, child.tell)
    try:
        if phase is Phase.PREPARE:
            write(folder / "prepare.json", {"cost": lab.prepare(), "problems": list(lab.problems)})
            return
        for cell in cells(folder, plan):
            cell.folder.mkdir(parents=True, exist_ok=True)
            with _claimed(cell.folder) as mine:
                if not mine or (cell.folder / f"{phase}.json").exists():
                    continue
                if phase is Phase.SAMPLE:
                    _sample(lab, cell)
                else:
                    searches, cost = lab.search(cell, hardest(folder, plan))
                    write(cell.folder / "search.json", {"searches": searches, "cost": cost})
                child.tell(f"{phase}: {cell.folder.name} is finished")
    finally:
        lab.close()


@contextmanager
def _claimed(folder: Path) -> Iterator[bool]:
    """Hold a cell for this process; False when another one has it."""
    handle = os.open(folder, os.O_RDONLY)
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        yield True
    except BlockingIOError:
        yield False
    finally:
        os.close(handle)


def _sample(lab: Lab, cell: Cell) -> None:
    if not (cell.folder / "train.json").exists():
        write(cell.folder / "train.json", lab.train(cell))
    samples, cost = lab.sample(cell)
    samples.save(cell.folder / "samples.npz")
    write(cell.folder / "sample.json", {"cost": cost})


def hardest(folder: Path, plan: Plan) -> list[str]:
    """Return the held-out problems that are searched, the hardest first: fewest answers that pass, over all cells.

    They are chosen once, when every cell has sampled. Ties go by name.
    """
    path = folder / HARDEST
    if path.exists():
        found: list[str] = json.loads(path.read_text(encoding="utf-8"))
        return found
    if not plan.search_budget:
        return []
    samples = [Samples.load(cell.folder / "samples.npz") for cell in cells(folder, plan)]
    solved = np.mean([one.values("pass", "visible").mean(axis=(1, 2)) for one in samples], axis=0)
    order = sorted(range(len(solved)), key=lambda place: (solved[place], samples[0].problems[place]))
    if plan.hardest is None:
        order = [place for place in order if solved[place] == 0]
    chosen = [samples[0].problems[place] for place in order[: plan.hardest]]
    write(path, chosen)
    return chosen


def write(path: Path, found: Any) -> None:
    """Write JSON to a file that appears whole."""
    unborn = path.with_name(f".{path.name}")
    unborn.write_text(json.dumps(found), encoding="utf-8")
    unborn.rename(path)


if __name__ == "__main__":
    work(Path(sys.argv[1]), Phase(sys.argv[2]))
