"""The search: ask, score, tell. One generation is P prompts x G completions x m answers.

choose a parent -> build a prompt -> record it -> sample -> parse -> score -> record -> commit: add to the population; then
again, until the budget is spent or the goal is reached. What is called from here neither knows what comes next nor calls
back.

P prompts are under way at any time. They are committed in their order, whatever the order of arrival, and each commit makes
room for the next prompt: so the model samples while the last answers are scored, and yet every choice is a function of the
seed and of what the prompts before brought.
"""

from __future__ import annotations

import asyncio
import time
from collections import deque
from collections.abc import Callable, Sequence
from typing import Any, TypeGuard

import numpy as np

from evolve import selection
from evolve.answers import Rules
from evolve.completion import Mutator
from evolve.database import Database, NewPrompt, OpenPrompt
from evolve.errors import BadInput
from evolve.group import Bench, Group
from evolve.history import Committed, Totals
from evolve.options import Options, Progress, Reason, Result
from evolve.patience import Patience
from evolve.population import Population
from evolve.problem import Problem
from evolve.prompt import ROOM, Prompter, View
from evolve.refresher import Refresher
from evolve.score import Score
from evolve.scoring import Scorer

EDITS_JUDGED_AFTER = 16
EDITS_MAY_FAIL = 0.5
"""With `--edits auto`: how many answers are judged, and the share that may fail, before whole programs are asked for."""

FALL_BACK = "edits-given-up"
REFRESH = "refresh"


class Search:
    """One run over one problem.

    Args:
        problem: what is searched for.
        options: what the user decided.
        database: an opened run.
        scorer: scores programs.
        prompter: asks for better ones.
        model: the base model, for the record.
        observe: called after every change that a person may want to see.
    """

    def __init__(
        self,
        problem: Problem,
        options: Options,
        database: Database,
        scorer: Scorer,
        prompter: Prompter,
        model: str,
        observe: Callable[[Progress], None] = lambda _: None,
    ):
        self._problem = problem
        self._options = options
        self._database = database
        self._scorer = scorer
        self._prompter = prompter
        self._model = model
        self._observe = observe
        self._policy = selection.POLICIES[options.selection]
        self._population = Population(options.population)
        self._rng = np.random.default_rng()
        self._rng.bit_generator.state = database.run().rng_state
        self._solved: int | None = None
        self._wants_edits = options.edits != "full" and not (options.edits == "auto" and database.events.happened(FALL_BACK))
        self._edited = self._failed_edits = 0
        self._patience = Patience(options.patience, options.better_by, options.patience_metric, options.reach)
        self._prompts = 0
        self._groups: deque[Group] = deque()
        self._stop = asyncio.Event()
        last = database.events.last(REFRESH)
        self._refreshed = 0 if last is None else int(last["prompt"])
        self._woken = asyncio.Event()
        self._noted = (0.0, 0.0, 0.0, 0.0)
        self._committed = 0
        self._elapsed_before = database.run().elapsed
        self._started = time.monotonic()
        self.faults: tuple[str, ...] = ()
        tests = sum(kind == "test" for _, kind in problem.dimensions)
        self.progress = Progress(Totals(0, 0, 0, 0, 0, 0, self._elapsed_before), tests)

    def interrupt(self) -> None:
        """End the search as soon as possible; what is being scored is recorded, what is being sampled is dropped."""
        self._stop.set()
        self._woken.set()

    async def begin(self) -> None:
        """Fill the population from the database; score the initial program in a new run.

        Raises:
            BadInput: the initial program does not run.
        """
        language = self._problem.language
        for program in self._database.without_score():
            source = self._database.source(program)
            score = await self._scorer.score(source)
            if program == 1:
                self._check_initial(score)
            self._database.rescore(program, source, language, score)
        if not self._database.has_initial():
            score = await self._scorer.score(self._problem.initial)
            self._check_initial(score)
            self._database.record_seed(self._problem.initial, language, score)
        for brought in self._database.history():
            self._tell(brought)
        if self._options.stop_when == "solved" and self._solved is None:
            self._solved = self._database.solved()  # of a prompt that is not committed
        self._observe(self.progress)

    def _check_initial(self, score: Score) -> None:
        self.faults = score.faults
        if not score.ran:
            first = score.results[0]
            raise BadInput(
                f"The initial program of {self._problem.name} doesn't run, so there is nothing to start from. "
                f"{first.verdict}: {first.detail or first.stderr}"
            )

    async def run(self, mutator: Mutator, refresher: Refresher | None = None) -> None:
        """After `begin`, search until a budget is spent, the goal is reached or `interrupt` is called.

        Args:
            mutator: proposes programs.
            refresher: trains it between generations; nothing is under way meanwhile.

        Raises:
            EvolveError, SandboxError: a fault of the machine; the run can be resumed.
        """
        options, problem = self._options, self._problem
        self._started = time.monotonic()
        self._noted = (0.0, 0.0, 0.0, self._started)
        rules = Rules(problem.language, problem.entry, options.longest, options.edit_pattern)
        bench = Bench(
            self._database,
            self._scorer,
            mutator,
            self._model,
            rules,
            options.completions,
            self._elapsed,
            self._on_recorded,
        )
        stop = asyncio.create_task(self._woken.wait())
        try:
            for prompt in self._database.open_prompts():
                self._start(prompt, bench)
            while self.reason() is None:
                self._ask(bench, refresher)
                if self._groups:
                    await self._next(stop)
                    self._note_flow(bench)
                elif self._is_due(refresher):
                    await self._refresh(refresher, bench, stop)
                else:
                    break
            await self._wind_up(stop)
        finally:
            for task in (stop, *(group.task for group in self._groups)):
                task.cancel()
            await asyncio.gather(stop, *(group.task for group in self._groups), return_exceptions=True)
            self._groups.clear()
            self._note_flow(bench, at_end=True)

    async def finish(self) -> Result:
        """After `run`, or instead of it when there is a reason to stop already: confirm the best program.

        Raises:
            SandboxError: a fault of the machine; the run can be resumed.
        """
        reason, winner = self.reason(), self._database.best()
        assert winner is not None
        confirmed = await self._confirm(winner)
        candidates = self._database.totals().candidates
        return Result(reason or Reason.CANDIDATES, winner, self._solved is not None, confirmed, candidates)

    def reason(self) -> Reason | None:
        """Return why the search is at its end, or None while it is not."""
        options, totals = self._options, self.progress.totals
        if options.stop_when == "solved" and self._solved is not None:
            return Reason.SOLVED
        if self._stop.is_set():
            return Reason.INTERRUPTED
        if options.candidates is not None and totals.candidates >= options.candidates:
            return Reason.CANDIDATES
        if options.tokens is not None and totals.completion_tokens >= options.tokens:
            return Reason.TOKENS
        if options.minutes is not None and self._elapsed() >= 60 * options.minutes:
            return Reason.MINUTES
        if self._all_asked and not self._groups:
            return Reason.GENERATIONS
        if self._patience.has_reached:
            return Reason.REACHED
        if self._patience.is_over:
            return Reason.STAGNANT
        return None

    @property
    def _all_asked(self) -> bool:
        """Whether every prompt of the budget in generations has been asked."""
        options = self._options
        return options.generations is not None and self._prompts >= options.generations * options.prompts

    def _elapsed(self) -> float:
        return float(self._elapsed_before + time.monotonic() - self._started)

    async def _next(self, stop: asyncio.Task[Any]) -> None:
        """Wait until the oldest prompt is complete and commit it; return early on an interrupt, a solution or a fault."""
        while not self._groups[0].task.done():
            tasks = {group.task for group in self._groups if not group.task.done()}
            await asyncio.wait({*tasks, stop}, return_when=asyncio.FIRST_COMPLETED)
            for group in self._groups:
                if group.task.done():
                    group.task.result()
            if self.reason() in (Reason.INTERRUPTED, Reason.SOLVED):
                return
        self._groups[0].task.result()
        self._commit()

    async def _wind_up(self, stop: asyncio.Task[Any]) -> None:
        """At the end of a budget, complete what is under way. Otherwise record what is sampled, and drop the rest."""
        while self._groups and self.reason() in (Reason.CANDIDATES, Reason.TOKENS, Reason.STAGNANT, Reason.REACHED):
            await self._next(stop)
        for group in self._groups:
            group.stop_sampling()
        if self.reason() is not Reason.SOLVED:
            for group in self._groups:
                await group.task
        while self._groups and self._groups[0].is_complete:
            self._commit()

    def _commit(self) -> None:
        group = self._groups.popleft()
        brought = self._database.commit(group.prompt)
        self._tell(brought)
        self.progress.under_way = max(0, self.progress.under_way - brought.candidates)
        self._give_edits_up()
        self._observe(self.progress)

    def _start(self, prompt: OpenPrompt, bench: Bench) -> None:
        self._prompts = prompt.id
        self._groups.append(Group(prompt, bench))

    def _is_due(self, refresher: Refresher | None) -> TypeGuard[Refresher]:
        """Whether the mutator is refreshed before the next prompt."""
        if refresher is None or self._prompts == 0 or self._prompts == self._refreshed:
            return False
        return self._prompts % (refresher.every * self._options.prompts) == 0

    async def _refresh(self, refresher: Refresher, bench: Bench, stop: asyncio.Task[Any]) -> None:
        """Refresh the mutator; an interrupt ends that, and a resumed run does it again."""
        self._note_flow(bench, at_end=True)
        task = asyncio.create_task(refresher.refresh(self._prompts))
        try:
            await asyncio.wait({task, stop}, return_when=asyncio.FIRST_COMPLETED)
        finally:
            if not task.done():
                task.cancel()
                await asyncio.gather(task, return_exceptions=True)
        if task.cancelled():
            return
        task.result()
        self._database.events.record(REFRESH, prompt=self._prompts)
        self._refreshed = self._prompts
        self._noted = (*self._noted[:3], time.monotonic())

    def _ask(self, bench: Bench, refresher: Refresher | None) -> None:
        """Fill the window with prompts, as far as the budget lets, and never across a refresh."""
        while len(self._groups) < self._options.prompts and not self._is_due(refresher):
            size, retries = self._group_size()
            if size == 0:
                return
            self._start(self._next_prompt(size, retries, bench.mutator.room), bench)

    def _on_recorded(self, programs: Sequence[int], solved: Sequence[int]) -> None:
        """Tell of candidates; end at once when one solves it and that is the goal.

        Otherwise the order of commits decides which program solved it.
        """
        self.progress.under_way += len(programs)
        self._observe(self.progress)
        if self._options.stop_when == "solved" and self._solved is None and solved:
            self._solved = solved[0]
            self._woken.set()

    def _group_size(self) -> tuple[int, bool]:
        """Return the completions of the next prompt, and whether the budget has room for their retries."""
        options = self._options
        retries = options.retry
        if self._all_asked:
            return 0, retries
        if options.candidates is None:
            return options.completions, retries
        reserved = sum(group.reserved for group in self._groups)
        left = options.candidates - self.progress.totals.candidates - reserved
        size = min(options.completions, -(-left // options.answers)) if left > 0 else 0
        return size, retries and left >= 2 * size * options.answers

    def _next_prompt(self, size: int, retries: bool, room: int | None) -> OpenPrompt:
        """Choose a parent, build the prompt and record it."""
        options = self._options
        island = self._prompts % options.population.islands
        scales = self._problem.scales(self._database.objectives)
        pool = selection.Pool(self._population.members(island), self._population.archive, options.ratios, scales)
        parent = self._policy(pool, self._rng)
        others = selection.inspirations(parent, pool.members, options.inspirations)
        fittest, diverse = selection.shown(parent, pool, options.top, options.diverse, self._rng)
        others += [member for member in diverse if member not in others]
        seed = int(self._rng.integers(1 << 31))
        generation, position = divmod(self._prompts, options.prompts)
        score = self._database.score(parent.id)
        view = View(parent, score, fittest, others, options.answers, self._wants_edits, seed, generation + 1, room or ROOM)
        new = NewPrompt(
            generation + 1,
            position,
            parent.id,
            [member.id for member in (*fittest, *others)],
            self._prompter.build(view),
            size,
            options.answers,
            seed,
            island,
            retries,
        )
        return self._database.record_prompt(new, self._rng.bit_generator.state)

    def _tell(self, brought: Committed) -> None:
        """Take what a committed prompt, or a program to start from, brought."""
        for member in brought.members:
            if brought.prompt is None:
                self._population.seed(member)
            else:
                self._population.add(member, brought.island)
        if brought.solved and self._solved is None:
            self._solved = brought.solved[0]
        if brought.prompt is not None:
            self._population.advance(brought.island, brought.candidates)
            self._prompts = max(self._prompts, brought.prompt)
        self._edited += brought.edited
        self._failed_edits += brought.failed_edits
        best = self._population.best
        if best is not None:
            self._patience.see(best, brought.candidates)
            if best is not self.progress.best:
                self.progress.best = best
                self.progress.best_passed = int((best.scores[: self.progress.tests] >= 1).sum())
        totals = self.progress.totals
        self.progress.totals = Totals(
            max(totals.generation, brought.generation),
            totals.candidates + brought.candidates,
            totals.unusable + brought.unusable,
            totals.duplicates + brought.duplicates,
            totals.completion_tokens + brought.completion_tokens,
            totals.prompt_tokens + brought.prompt_tokens,
            self._elapsed() if self._groups else totals.elapsed,
        )

    def _give_edits_up(self) -> None:
        """With `auto`, ask for whole programs from now on when most edits can't be made."""
        if self._options.edits != "auto" or not self._wants_edits or self._edited < EDITS_JUDGED_AFTER:
            return
        if self._failed_edits > EDITS_MAY_FAIL * self._edited:
            self._wants_edits = False
            self._database.events.record(FALL_BACK, edited=self._edited, failed=self._failed_edits)
            self.progress.note = (
                f"{self._failed_edits} of {self._edited} edits could not be made: from now on whole programs are asked for"
            )

    def _note_flow(self, bench: Bench, at_end: bool = False) -> None:
        """After each generation, record how busy mutator and sandbox were since the last time."""
        if at_end:
            self._database.note_elapsed(self._elapsed())
        now = (bench.sampling.total(), bench.scoring.total(), bench.busy.total(), time.monotonic())
        sampling, scoring, busy, wall = (after - before for after, before in zip(now, self._noted, strict=True))
        self._committed += 0 if at_end else 1
        if wall > 0 and (at_end or self._committed >= self._options.prompts):
            self._noted, self._committed = now, 0
            self._database.events.record(
                "generation",
                generation=self.progress.totals.generation,
                mutator_busy=round(sampling, 3),
                scoring_busy=round(scoring, 3),
                idle_while_scoring=round(busy - sampling, 3),
                wall=round(wall, 3),
            )

    async def _confirm(self, program: int) -> bool:
        """Run the best program on the hidden tests; return whether it solves the problem for good."""
        results = await self._scorer.hidden(self._database.source(program))
        if results:
            self._database.record_hidden(program, results)
        return self._database.score(program).solved and all(result.score >= 1 for result in results)
