"""Several problems in one go: a run for each, one model server for all, one budget shared by a policy.

A suite is a folder with a run per problem. Every run can be shown, resumed and exported by itself.
"""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal

from evolve.compose import Observe, RunOptions, begin, changed, go_on, session
from evolve.connection import FILE
from evolve.errors import BadInput
from evolve.options import Reason, Result
from evolve.problem import Problem
from evolve.report import Report
from evolve.sandboxes import Say

Share = Literal["equal", "unsolved"]
TOGETHER = 4
"""Problems searched at the same time; the server is kept full by a few."""


@dataclass(frozen=True, slots=True)
class Entry:
    """One problem of a suite."""

    folder: Path
    problem: Problem
    options: RunOptions
    seed: int


def problem_folders(path: Path) -> list[Path]:
    """Return the problem folders in a folder that is none itself; empty when it is one, or holds none."""
    if not path.is_dir() or _is_problem(path):
        return []
    return [child for child in sorted(path.iterdir()) if child.is_dir() and _is_problem(child)]


def _is_problem(path: Path) -> bool:
    return any((path / name).is_file() for name in ("problem.yaml", "tests.jsonl", "evaluator.py"))


def run_folders(path: Path) -> list[Path]:
    """Return the runs of a suite; empty when it is a run itself, or holds none."""
    if not path.is_dir() or (path / FILE).is_file():
        return []
    return [child for child in sorted(path.iterdir()) if (child / FILE).is_file()]


async def start_suite(entries: Sequence[Entry], budget: int, share: Share, say: Say, observe: Observe) -> dict[str, Result]:
    """Search all problems; return how each ended, by the name of its folder.

    Args:
        entries: what is searched; the budgets in their options are replaced.
        budget: candidates for all problems together.
        share: `equal` gives each problem as many; `unsolved` gives what solved ones leave over to the others.
        say: told what takes long.
        observe: shown the progress of each run.

    Raises:
        BadInput: the budget is less than a candidate per problem.
        EvolveError, SandboxError: a fault of the machine; every run can be resumed.
    """
    if budget < len(entries):
        raise BadInput(f"A budget of {budget} candidates is less than one for each of {len(entries)} problems.")
    slots = asyncio.Semaphore(TOGETHER)
    results: dict[str, Result] = {}
    async with session(entries[0].folder.parent, entries[0].options.mutator, say, observe) as shared:

        async def one(entry: Entry, candidates: int) -> None:
            async with slots:
                name = entry.folder.name
                if (entry.folder / FILE).is_file():
                    results[name] = await go_on(entry.folder, shared, budgets={"candidates": candidates})
                else:
                    options = replace(entry.options, search=replace(entry.options.search, candidates=candidates))
                    results[name] = await begin(entry.folder, entry.problem, options, entry.seed, shared)

        wanted = {entry.folder.name: budget // len(entries) for entry in entries}
        open_ = list(entries)
        while open_:
            await _all([one(entry, wanted[entry.folder.name]) for entry in open_])
            left = budget - sum(result.candidates for result in results.values())
            ended = (Reason.SOLVED, Reason.INTERRUPTED, Reason.STAGNANT, Reason.REACHED)
            open_ = [entry for entry in entries if results[entry.folder.name].reason not in ended]
            if share == "equal" or not open_ or left < len(open_):
                break
            for entry in open_:
                name = entry.folder.name
                wanted[name] = results[name].candidates + left // len(open_)
    return results


async def resume_suite(
    folders: Sequence[Path], say: Say, observe: Observe, accept_change: bool = False
) -> dict[str, Result]:
    """Go on with the runs of a suite that have not ended, each with its own budget. See `compose.resume`."""
    slots = asyncio.Semaphore(TOGETHER)
    results: dict[str, Result] = {}
    async with session(folders[0].parent, changed(folders[0], {}).mutator, say, observe) as shared:

        async def one(folder: Path) -> None:
            async with slots:
                results[folder.name] = await go_on(folder, shared, accept_change)

        await _all([one(folder) for folder in folders])
    return results


async def _all(jobs: Sequence[Coroutine[Any, Any, None]]) -> None:
    """Wait for all; when one fails, end the others, which stay resumable, and raise its error."""
    try:
        async with asyncio.TaskGroup() as group:
            for job in jobs:
                group.create_task(job)
    except BaseExceptionGroup as errors:
        raise errors.exceptions[0] from None


def summary(folders: Sequence[Path]) -> list[dict[str, Any]]:
    """Return a row per run of a suite: how it stands and what it reached."""
    rows = []
    for folder in folders:
        report = Report(folder)
        try:
            found = report.summary()
        finally:
            report.close()
        best = found["best"] or {}
        rows.append(
            {
                "run": folder.name,
                "status": found["status"],
                "candidates": found["candidates"],
                "completion_tokens": found["completion_tokens"],
                "best": best.get("id"),
                "fitness": best.get("fitness"),
                "solved": best.get("solved"),
                "confirmed": best.get("confirmed"),
            }
        )
    return rows
