"""The composition root: build the real parts of a run, put them together, take them apart again."""

from __future__ import annotations

import asyncio
import fcntl
import os
import re
import signal
import time
from collections.abc import AsyncIterator, Callable, Iterator, Mapping
from contextlib import AsyncExitStack, asynccontextmanager, contextmanager
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any, Literal

import numpy as np

from evolve import problem as problems
from evolve.completion import Mutator
from evolve.connection import FILE
from evolve.database import Database
from evolve.directions import line
from evolve.distribution import effective, require
from evolve.errors import BadInput
from evolve.evaluated import EvaluatedProblem
from evolve.files import make_folder
from evolve.loop import Search
from evolve.metrics_prompt import MetricsPrompter
from evolve.models import DEFAULT_MODEL
from evolve.mutator import CHARACTERS_A_TOKEN, MAX_TOKENS, OpenAIMutator
from evolve.options import Options, Progress, Reason, Result
from evolve.outdated import CHANGED
from evolve.parts import differences, listed
from evolve.problem import Problem
from evolve.prompt import Prompter, TestPrompter
from evolve.refresher import TRAINING, Context, Refresher
from evolve.sandboxes import Isolation, Pools, SandboxKind, Say, grader
from evolve.scoring import Scorer
from evolve.serving import MutatorOptions, Mutators
from evolve.settings import run_seed
from evolve.tested import TestedProblem

Observe = Callable[[Progress], None]
BASELINE = "baseline"
"""Folder in a run's folder with the run of its baseline."""


@dataclass(frozen=True, slots=True)
class RunOptions:
    """All options of a run."""

    search: Options
    mutator: MutatorOptions
    workers: int = 2
    """Candidates that are scored at the same time."""
    sandbox: SandboxKind = "docker"
    network: bool = False
    """Whether an evaluator may use the network."""
    place: Mapping[str, Any] = field(default_factory=dict)
    """File names in the problem folder, where they are not the usual ones."""
    training: Mapping[str, Any] | None = None
    """How the mutator is refreshed between generations (`mutator_training.refresh.RefreshOptions`); None never does."""
    baseline: Literal["best-of-n"] | None = None
    """What the search is compared with at an equal budget: samples from the initial program alone."""

    def stored(self) -> dict[str, Any]:
        """Return the options as the database keeps them."""
        return asdict(self)

    @classmethod
    def restored(cls, stored: Mapping[str, Any]) -> RunOptions:
        """Return options that `stored` gave."""
        values = {name: value for name, value in stored.items() if name not in ("search", "mutator")}
        return cls(Options.restored(stored["search"]), MutatorOptions(**stored["mutator"]), **values)


def new_folder(problem: Problem) -> Path:
    """Return a fresh folder under `runs/` for a run that the user did not name."""
    stem = re.sub(r"[^A-Za-z0-9_.-]+", "-", problem.name)
    return Path("runs") / f"{stem}-{time.strftime('%Y%m%d-%H%M%S')}-{os.getpid()}"


@contextmanager
def only_process(folder: Path) -> Iterator[None]:
    """Hold a run for this process.

    Raises:
        BadInput: another process has it.
    """
    handle = os.open(folder, os.O_RDONLY)
    try:
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise BadInput(f"Another process is working on {folder}. End it first, or use another run.") from None
        yield
    finally:
        os.close(handle)


class Interrupt:
    """Turns SIGINT and SIGTERM into the end of the searches that listen; a second one ends everything at once.

    Args:
        say: told what happens.
    """

    def __init__(self, say: Say):
        self._say = say
        self._searches: list[Search] = []
        self._signalled = False

    @contextmanager
    def listening(self) -> Iterator[None]:
        """Listen while inside."""
        task = asyncio.current_task()
        assert task is not None

        def on_signal() -> None:
            if self._searches and not self._signalled:
                self._say("stopping; what is recorded is kept (again to stop at once)")
                self._signalled = True
                for search in self._searches:
                    search.interrupt()
            else:
                task.cancel()

        loop = asyncio.get_running_loop()
        for number in (signal.SIGINT, signal.SIGTERM):
            loop.add_signal_handler(number, on_signal)
        try:
            yield
        finally:
            for number in (signal.SIGINT, signal.SIGTERM):
                loop.remove_signal_handler(number)

    @contextmanager
    def ends(self, search: Search) -> Iterator[None]:
        """Let an interrupt end this search while inside."""
        self._searches.append(search)
        if self._signalled:
            search.interrupt()
        try:
            yield
        finally:
            self._searches.remove(search)


@dataclass(frozen=True, slots=True)
class Session:
    """What the runs of one process share.

    Attributes:
        mutators: where completions come from.
        interrupt: ends all searches.
        say: told what takes long.
        observe: shown the progress.
        pools: where programs run.
    """

    mutators: Mutators
    interrupt: Interrupt
    say: Say
    observe: Observe
    pools: Pools


@asynccontextmanager
async def session(folder: Path, options: MutatorOptions, say: Say, observe: Observe) -> AsyncIterator[Session]:
    """Open what the runs of one process share; inside, an interrupt ends them.

    Args:
        folder: for the log of a managed server; its name labels containers.
        options: how completions are had.
        say: told what takes long.
        observe: shown the progress.
    """
    interrupt = Interrupt(say)
    with interrupt.listening():
        async with Mutators(folder, options, say) as mutators, Pools(folder.name, say) as pools:
            yield Session(mutators, interrupt, say, observe, pools)


async def start(folder: Path, problem: Problem, options: RunOptions, seed: int, say: Say, observe: Observe) -> Result:
    """Make a run and search.

    Raises:
        EvolveError, SandboxError: see their texts; what was recorded is kept.
    """
    async with session(folder, options.mutator, say, observe) as shared:
        return await begin(folder, problem, options, seed, shared)


async def resume(
    folder: Path,
    budgets: Mapping[str, Any],
    base_url: str | None,
    say: Say,
    observe: Observe,
    accept_change: bool = False,
) -> Result:
    """Go on with a run where it stopped.

    Args:
        folder: the run.
        budgets: fields of `Options` that replace the stored ones, for good.
        base_url: a running server to use from now on, instead of the run's own choice.
        say: told what takes long.
        observe: shown the progress.
        accept_change: go on where the problem has changed: the best programs are scored anew, see `outdated.py`.

    Raises:
        BadInput: no run, or its problem has changed since.
        EvolveError, SandboxError: see their texts; what was recorded is kept.
    """
    options = changed(folder, budgets, base_url)
    async with session(folder, options.mutator, say, observe) as shared:
        return await go_on(folder, shared, accept_change, budgets, base_url)


async def begin(folder: Path, problem: Problem, options: RunOptions, seed: int, session: Session) -> Result:
    """Make a run and search. See `start`."""
    if options.training is not None:
        require(options.mutator.sampling, options.mutator.server, "Options of this run or of the folder's config")
    state = np.random.default_rng(seed).bit_generator.state
    make_folder(folder)
    with only_process(folder):
        database = Database.create(folder, problem, options.stored(), seed, state)
        database.events.record("start")
        return await _search_with_baseline(folder, problem, options, database, session)


def changed(folder: Path, budgets: Mapping[str, Any], base_url: str | None = None) -> RunOptions:
    """Return a run's options as they will be with other budgets and another server. Nothing is written: see `go_on`.

    Raises:
        BadInput: no run.
    """
    database = Database.open(folder)
    try:
        return RunOptions.restored(_changed(database.run().options, budgets, base_url))
    finally:
        database.close()


def _changed(stored: Mapping[str, Any], budgets: Mapping[str, Any], base_url: str | None) -> dict[str, Any]:
    found = {**stored, "search": {**stored["search"], **budgets}}
    if base_url is not None:
        found["mutator"] = {**stored["mutator"], "base_url": base_url, "model": None}
    return found


async def go_on(
    folder: Path,
    session: Session,
    accept_change: bool = False,
    budgets: Mapping[str, Any] | None = None,
    base_url: str | None = None,
) -> Result:
    """Go on with a run, its budgets and its server changed for good. See `resume`."""
    if not (folder / FILE).is_file():
        Database.open(folder)  # says what is wrong
    with only_process(folder):
        database = Database.open(folder)
        if budgets or base_url is not None:
            database.set_options(_changed(database.run().options, budgets or {}, base_url))
        row = database.run()
        problem = problems.load(Path(row.problem), **row.options.get("place", {}))
        if problem.digest != row.problem_digest:
            _take_change(folder, problem, database, session.say, accept_change)
        for line in database.quarantine():
            session.say(f"set aside, because it can't be read any more: {line}")
        database.events.record("resume")
        options = RunOptions.restored(row.options)
        return await _search_with_baseline(folder, problem, options, database, session, accept_change)


def _take_change(folder: Path, problem: Problem, database: Database, say: Say, accepted: bool) -> None:
    """Go on with a problem that has changed, or say what has.

    Raises:
        BadInput: it is not accepted.
    """
    row = database.run()
    if row.problem_parts is None:
        changes = [f"the run was made by version {row.version}, which did not record of what its scores depend"]
    else:
        changes = differences(row.problem_parts, problem.parts)
    told = listed(changes)
    if not accepted:
        raise BadInput(
            f"{problem.path} is not as it was when the run began, so new scores could not be compared with the recorded "
            f"ones: {told}. Undo that, start a new run, or go on with `evolve resume {folder} --accept-change`: the best "
            "programs are scored anew, and the old scores set aside."
        )
    version = database.outdate(problem, changes)
    say(f"the problem has changed ({told}); scoring version {version}: the best programs are scored anew")


async def _search_with_baseline(
    folder: Path,
    problem: Problem,
    options: RunOptions,
    database: Database,
    session: Session,
    accept_change: bool = False,
) -> Result:
    """Search; then spend as many candidates on the baseline, in a run of its own beside this one."""
    result = await _search(folder, problem, options, database, session)
    if options.baseline is None or result.reason is Reason.INTERRUPTED:
        return result
    place = folder / BASELINE
    search = replace(options.search, selection="initial", inspirations=0, top=0, diverse=0, candidates=result.candidates)
    plain = replace(options, search=replace(search, tokens=None, minutes=None, patience=None, reach=None), baseline=None)
    session.say(f"best of {result.candidates} from the initial program, for comparison: {place}")
    if (place / FILE).exists():
        await go_on(place, session, accept_change, {"candidates": result.candidates})
    else:
        await begin(place, problem, plain, run_seed(folder), session)
    return result


async def _search(folder: Path, problem: Problem, options: RunOptions, database: Database, session: Session) -> Result:
    say, mutators = session.say, session.mutators
    async with AsyncExitStack() as stack:
        stack.callback(database.close)
        database.set_status("running")
        try:
            decided = database.events.last("isolation", after=CHANGED)
            opened, isolation = await stack.enter_async_context(
                grader(
                    problem,
                    options.sandbox,
                    options.workers,
                    folder.name,
                    say,
                    options.network,
                    None if decided is None else Isolation(**decided),
                    database.best_fitness(),
                    session.pools,
                    _required(problem, database),
                )
            )
            if decided is None and isolation is not None:
                database.events.record("isolation", **asdict(isolation))
            _check_level(database, opened.level)
            scorer = Scorer(opened, problem.language, database.known)
            stack.push_async_callback(scorer.close)
            model = options.mutator.model or DEFAULT_MODEL
            search = Search(problem, options.search, database, scorer, prompter(problem), model, session.observe)
            await search.begin()
            for fault in search.faults:
                say(f"the initial program's evaluation: {fault}")
            if options.training is not None and isinstance(problem, EvaluatedProblem):
                _check_directions(problem, database.initial_metrics() or {})
            if search.reason() is None:
                _check_room(problem, options, say)
                mutator = await mutators.connect(problem, options.mutator.sampling, options.search.answers)
                if options.mutator.replay is None:
                    managed = None if mutators.server is None else options.mutator.server
                    database.events.record("sampling", **effective(options.mutator.sampling, managed))
                if mutators.version is not None:
                    _record_version(database, *mutators.version, model)
                if isinstance(mutator, OpenAIMutator):
                    mutator.resume_with(database.last_format() or mutator.format)
                refresher = await _refresher(folder, problem, options, database, scorer, mutator, mutators, say)
                with session.interrupt.ends(search):
                    await search.run(mutator, refresher)
            result = await search.finish()
        except asyncio.CancelledError:
            database.set_status("stopped", Reason.INTERRUPTED)
            raise
        except Exception as error:
            database.set_status("stopped", str(error)[:2000])
            database.events.record("fault", error=f"{type(error).__name__}: {error}"[:2000])
            raise
        stopped = result.reason is Reason.INTERRUPTED
        database.set_status("stopped" if stopped else "finished", result.reason)
        database.events.record("end", reason=result.reason, best=result.best, confirmed=result.confirmed)
        return result


def _check_room(problem: Problem, options: RunOptions, say: Say) -> None:
    """Say so where an answer may not be as long as the initial program and whole programs are asked for."""
    tokens = len(problem.initial) / CHARACTERS_A_TOKEN
    most = int(options.mutator.sampling.get("max_tokens", MAX_TOKENS))
    if options.search.edits == "full" and tokens > most:
        say(
            f"the initial program has about {tokens:.0f} tokens and an answer may have {most}, so whole programs don't fit: "
            "ask for edits with --edits diff, or raise --sampling max_tokens=N"
        )


def _check_directions(problem: EvaluatedProblem, metrics: Mapping[str, Any]) -> None:
    """Refuse to train on a folder before somebody has said which way its costs go.

    Raises:
        BadInput: a metric looks like a cost, and nothing says so.
    """
    costs = problem.undirected(metrics)
    if costs:
        raise BadInput(
            f"The evaluator of {problem.name} gives {', '.join(costs)}, and nothing says whether less is better, so a "
            f"mutator might be trained the wrong way. Add to {problem.path / 'problem.yaml'}: {line(costs)} "
            "(or direction: none, to leave a metric out)."
        )


def _required(problem: Problem, database: Database) -> list[str] | None:
    """Return the metrics that every program of a run must have, or None where that is still to be seen."""
    given = database.initial_metrics()
    return problem.steers(given) if isinstance(problem, EvaluatedProblem) and given is not None else None


def _record_version(database: Database, name: str, adapter: Path, model: str) -> None:
    """Record an adapter that the run did not train itself, and that it is the one in use from now on."""
    if name in {row.name for row in database.versions.all()}:
        return
    database.versions.record(name, model, str(adapter))
    database.versions.serve(name, "mutator-use", name=name)


async def _refresher(
    folder: Path,
    problem: Problem,
    options: RunOptions,
    database: Database,
    scorer: Scorer,
    mutator: Mutator,
    mutators: Mutators,
    say: Say,
) -> Refresher | None:
    """Return what refreshes the mutator, the last version restored.

    Raises:
        BadInput: it can't be trained here.
    """
    if options.training is None:
        return None
    if TRAINING.factory is None:
        raise BadInput("Training needs the packages of the extra `train`: pip install 'vector-evolve[train]'.")
    server, base = mutators.server, mutators.base
    if server is None or base is None or not isinstance(mutator, OpenAIMutator):
        raise BadInput("A mutator is refreshed in a server that this run manages, so not with --base-url or --replay.")
    name = options.mutator.model or DEFAULT_MODEL
    adapter = None if options.mutator.adapter is None else Path(options.mutator.adapter)
    context = Context(folder, problem, database, scorer, mutator, server, base, name, adapter, say)
    refresher = TRAINING.factory(options.training, context)
    await refresher.restore()
    return refresher


def use(folder: Path, version: str) -> str:
    """Make an earlier version of a run's mutator the one that it goes on with; return its name.

    Raises:
        BadInput: there is no such version.
    """
    database = Database.open(folder)
    try:
        rows = database.versions.all()
        matching = [row for row in rows if row.name == version or (row.adapter and Path(row.adapter).name == version)]
        if not matching:
            raise BadInput(f"{folder} has no version {version!r}. Known: {', '.join(row.name for row in rows) or 'none'}.")
        own = [
            row for row in matching if row.name == version or Path(row.adapter).parent.parent.name == folder.resolve().name
        ]
        chosen = (own or matching)[0].name
        database.versions.serve(chosen, "mutator-use", name=chosen)
        return str(chosen)
    finally:
        database.close()


def prompter(problem: Problem) -> Prompter:
    """Return what asks for better programs of a problem."""
    if isinstance(problem, TestedProblem):
        return TestPrompter(problem)
    assert isinstance(problem, EvaluatedProblem)
    return MetricsPrompter(problem)


def _check_level(database: Database, level: str) -> None:
    """Refuse to mix scores of different isolation in one run."""
    recorded = database.level()
    if recorded is not None and recorded != level:
        raise BadInput(
            f"The scores of this run come from the sandbox {recorded!r}; here it would be {level!r}. Scores of different "
            "isolation are never mixed: resume on a machine where the first one works, or start a new run."
        )
