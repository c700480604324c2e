"""The search: ask, score, tell. One generation is P prompts x G completions x m answers.

choose parents -> build prompts -> record them -> sample -> parse -> score -> record -> add to the population; then again,
until the budget is spent or the goal is reached. What is called from here neither knows what comes next nor calls back.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from enum import StrEnum
from typing import Any, Literal

import numpy as np

from evolve import edits, selection
from evolve import prompt as prompts
from evolve.answers import Answer, parse
from evolve.completion import Completion, Mutator
from evolve.database import Database, NewPrompt, OpenPrompt, Totals
from evolve.errors import BadInput
from evolve.population import Member, Population
from evolve.problem import Problem
from evolve.score import Score
from evolve.scoring import Scorer

EDITS_JUDGED_AFTER = 16
EDITS_MAY_FAIL = 0.5
"""With `--edits auto`: how many answers are judged, and the share that may fail, before whole programs are asked for."""

FALL_BACK = "edits-given-up"


@dataclass(frozen=True, slots=True)
class Options:
    """What the user decides about a search; stored with the run.

    Attributes:
        prompts: P, prompts of one generation, each with a parent of its own.
        completions: G, completions of one prompt.
        answers: m, answers that each completion should hold.
        selection: parent policy, a key of `selection.POLICIES`.
        inspirations: programs shown beside the parent.
        edits: what a completion is asked for: whole programs (`full`), SEARCH/REPLACE edits of the parent (`diff`), or edits
            until they fail too often (`auto`). Either is understood, whatever was asked for.
        candidates: budget in answers, usable or not; None is no limit.
        tokens: budget in sampled tokens; None is no limit.
        minutes: budget in minutes of search over all resumes; None is no limit.
        stop_when: `solved` ends the search when a program passes every visible test.
    """

    prompts: int = 4
    completions: int = 4
    answers: int = 2
    selection: str = "lexicase"
    inspirations: int = 1
    edits: Literal["auto", "diff", "full"] = "full"
    candidates: int | None = 100
    tokens: int | None = None
    minutes: float | None = None
    stop_when: Literal["solved"] | None = None


class Reason(StrEnum):
    """Why a search ended."""

    CANDIDATES = "the budget of candidates is spent"
    TOKENS = "the budget of tokens is spent"
    MINUTES = "the budget of minutes is spent"
    SOLVED = "solved"
    INTERRUPTED = "interrupted"


@dataclass(slots=True)
class Progress:
    """What an observer sees, updated in place.

    Attributes:
        totals: what the run has used so far.
        best: the best program, and how many of the visible tests it passes.
        note: the last thing worth telling.
    """

    totals: Totals
    tests: int
    best: Member | None = None
    best_passed: int = 0
    note: str = ""


@dataclass(frozen=True, slots=True)
class Result:
    """How a search ended."""

    reason: Reason
    best: int
    solved: bool
    confirmed: bool
    """The best program passes the hidden tests as well."""


@dataclass(slots=True)
class Stopwatch:
    """Adds up the time in which at least one of several overlapping activities is going on."""

    seconds: float = 0.0
    _active: int = field(default=0)
    _since: float = field(default=0.0)

    @contextmanager
    def running(self) -> Any:
        """Count the time inside as busy."""
        if self._active == 0:
            self._since = time.monotonic()
        self._active += 1
        try:
            yield
        finally:
            self._active -= 1
            if self._active == 0:
                self.seconds += time.monotonic() - self._since


class Search:
    """One run over one problem.

    Args:
        problem: what is searched for.
        options: what the user decided.
        database: an opened run.
        scorer: scores programs.
        model: the base model, for the record.
        observe: called after every change that a person may want to see.
    """

    def __init__(
        self,
        problem: Problem,
        options: Options,
        database: Database,
        scorer: Scorer,
        model: str,
        observe: Callable[[Progress], None] = lambda _: None,
    ):
        self._problem = problem
        self._options = options
        self._database = database
        self._scorer = scorer
        self._model = model
        self._observe = observe
        self._policy = selection.POLICIES[options.selection]
        self._population = Population()
        self._rng = np.random.default_rng()
        self._rng.bit_generator.state = database.run().rng_state
        self._solved: int | None = None
        self._wants_edits = options.edits != "full" and not (options.edits == "auto" and database.happened(FALL_BACK))
        self._edited = self._failed_edits = 0
        self._stop = asyncio.Event()
        self._sampling, self._scoring = Stopwatch(), Stopwatch()
        self._elapsed_before = database.run().elapsed
        self._started = time.monotonic()
        self.progress = Progress(database.totals(), len(problem.visible))

    def interrupt(self) -> None:
        """End the search as soon as possible; what is in flight is dropped and not charged."""
        self._stop.set()

    async def run(self, mutator: Mutator) -> None:
        """After `begin`, search until a budget is spent, the goal is reached or `interrupt` is called.

        Args:
            mutator: proposes programs.

        Raises:
            EvolveError, SandboxError: a fault of the machine; the run can be resumed.
        """
        self._started = time.monotonic()
        unfinished = self._database.open_prompts()
        while self.reason() is None:
            opened = unfinished or self._next_prompts()
            unfinished = []
            await self._generation(opened, mutator)

    async def finish(self) -> Result:
        """After `run`, or instead of it when there is a reason to stop already: confirm the best program.

        Raises:
            SandboxError: a fault of the machine; the run can be resumed.
        """
        reason, best = self.reason(), self._population.best
        assert reason is not None
        assert best is not None
        winner = best.id if self._solved is None else self._solved
        confirmed = await self._confirm(winner)
        return Result(reason, winner, self._solved is not None, confirmed)

    async def begin(self) -> None:
        """Fill the population from the database; score the initial program in a new run.

        Raises:
            BadInput: the initial program does not run.
        """
        self._database.population(self._population)
        if len(self._population) == 0:
            score = await self._scorer.score(self._problem.initial)
            if not score.ran:
                first = score.results[0]
                raise BadInput(
                    f"The initial program of {self._problem.name} doesn't run, so there is nothing to start from. "
                    f"{first.verdict}: {first.detail or first.stderr}"
                )
            language = self._problem.spec.language
            identity = self._database.record_initial(self._problem.initial, language, score)
            self._tell(identity, self._problem.initial, score)
        elif self._population.best is not None:
            self._note_best(self._population.best)
        self._observe(self.progress)

    def _note_best(self, best: Member) -> None:
        results = self._database.results(best.id)
        self.progress.best = best
        self.progress.best_passed = sum(result.score >= 1 for result in results)
        if self.progress.best_passed == len(results):
            self._solved = best.id

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
        return None

    def _elapsed(self) -> float:
        return float(self._elapsed_before + time.monotonic() - self._started)

    def _next_prompts(self) -> list[OpenPrompt]:
        """Choose parents, build the next generation's prompts and record them."""
        options = self._options
        generation = self.progress.totals.generation + 1
        members = self._population.members
        new: list[NewPrompt] = []
        for completions in self._group_sizes():
            parent = self._policy(members, self._rng)
            helpers = selection.inspirations(parent, members, options.inspirations)
            results = self._database.results(parent.id)
            built = prompts.build(self._problem, parent, results, helpers, options.answers, self._wants_edits)
            seed = int(self._rng.integers(1 << 31))
            ids = [member.id for member in helpers]
            new.append(NewPrompt(parent.id, ids, built.messages, completions, options.answers, seed))
        return self._database.record_prompts(generation, new, self._rng.bit_generator.state)

    def _group_sizes(self) -> list[int]:
        """Return the completions of each prompt: P times G, fewer when the budget ends within the generation."""
        options = self._options
        sizes = [options.completions] * options.prompts
        if options.candidates is None:
            return sizes
        left = -(-(options.candidates - self.progress.totals.candidates) // options.answers)
        kept = []
        for size in sizes:
            if left > 0:
                kept.append(min(size, left))
                left -= size
        return kept

    async def _generation(self, opened: list[OpenPrompt], mutator: Mutator) -> None:
        """Sample and score the missing completions of a generation's prompts, all at once."""
        before = (self._sampling.seconds, self._scoring.seconds, time.monotonic())
        tasks = [asyncio.create_task(self._group(prompt, mutator)) for prompt in opened]
        stop = asyncio.create_task(self._stop.wait())
        pending: set[asyncio.Task[Any]] = {*tasks, stop}
        try:
            while not all(task.done() for task in tasks):
                done, pending = await asyncio.wait(pending, return_when=asyncio.FIRST_COMPLETED)
                for task in done:
                    task.result()
                if stop in done or (self._options.stop_when == "solved" and self._solved is not None):
                    break
            for task in tasks:
                if task.done():
                    task.result()
        finally:
            for task in (*tasks, stop):
                task.cancel()
            await asyncio.gather(*tasks, stop, return_exceptions=True)
        self._database.record_event(
            "generation",
            generation=opened[0].generation,
            mutator_busy=round(self._sampling.seconds - before[0], 3),
            scoring_busy=round(self._scoring.seconds - before[1], 3),
            wall=round(time.monotonic() - before[2], 3),
        )

    async def _group(self, prompt: OpenPrompt, mutator: Mutator) -> None:
        """Sample one prompt's missing completions, and record each as soon as it is scored."""
        with self._sampling.running():
            completions = await mutator.sample(prompt.messages, len(prompt.missing), prompt.answers, prompt.seed)
        parent = self._database.source(prompt.parent)
        await asyncio.gather(
            *(
                self._completion(prompt, position, completion, parent)
                for position, completion in zip(prompt.missing, completions, strict=True)
            )
        )

    def _count_edits(self, completion: Completion, answers: list[Answer]) -> None:
        """With `auto`, give edits up when most of the first ones can't be made."""
        if self._options.edits != "auto" or not self._wants_edits or not edits.mentions(completion.text):
            return
        self._edited += len(answers)
        self._failed_edits += sum(answer.source is None for answer in answers)
        if self._edited >= EDITS_JUDGED_AFTER and self._failed_edits > EDITS_MAY_FAIL * self._edited:
            self._wants_edits = False
            self._database.record_event(FALL_BACK, edited=self._edited, failed=self._failed_edits)
            self.progress.note = (
                f"{self._failed_edits} of {self._edited} edits could not be made: from now on whole programs are asked for"
            )

    async def _completion(self, prompt: OpenPrompt, position: int, completion: Completion, parent: str) -> None:
        language, entry = self._problem.spec.language, self._problem.entry
        answers = parse(completion.text, prompt.answers, language, entry, parent)
        self._count_edits(completion, answers)
        with self._scoring.running():
            scores = await asyncio.gather(*(self._score(answer) for answer in answers))
        scored = list(zip(answers, scores, strict=True))
        mutator = self._database.mutator(completion.mutator, self._model)
        recorded = self._database.record_completion(prompt, position, mutator, completion, scored, language, self._elapsed())
        for row, (answer, score) in zip(recorded, scored, strict=True):
            if answer.source is not None and score is not None and row.duplicate_of is None:
                self._tell(row.id, answer.source, score)
        totals = self.progress.totals
        self.progress.totals = replace(
            totals,
            generation=prompt.generation,
            candidates=totals.candidates + len(recorded),
            unusable=totals.unusable + sum(answer.source is None for answer in answers),
            duplicates=totals.duplicates + sum(row.duplicate_of is not None for row in recorded),
            completion_tokens=totals.completion_tokens + completion.completion_tokens,
            prompt_tokens=totals.prompt_tokens + completion.prompt_tokens,
            elapsed=self._elapsed(),
        )
        self._observe(self.progress)

    async def _score(self, answer: Answer) -> Score | None:
        return None if answer.source is None else await self._scorer.score(answer.source)

    def _tell(self, identity: int, source: str, score: Score) -> None:
        """Add a program that ran to the population."""
        if score.fitness is None:
            return
        member = Member(identity, source, score.scores, score.fitness)
        self._population.add(member)
        if self._population.best is member:
            self.progress.best = member
            self.progress.best_passed = sum(result.score >= 1 for result in score.results)
        if score.solved and self._solved is None:
            self._solved = identity

    async def _confirm(self, program: int) -> bool:
        """Run the best program on the hidden tests; return whether it solves the problem for good."""
        if not self._problem.hidden:
            return self._solved is not None
        source = self._database.source(program)
        results = await self._scorer.hidden(source)
        self._database.record_hidden(program, results)
        return self._solved is not None and all(result.score >= 1 for result in results)
