"""One prompt under way: its completions are sampled, parsed, scored and recorded, each as soon as it is there."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from typing import Any

from evolve import edits
from evolve.answers import Answer, Rules, parse
from evolve.completion import Completion, Message, Mutator
from evolve.database import Database, OpenPrompt
from evolve.errors import ContextOverflow
from evolve.prompt import retry, shorten
from evolve.score import Score
from evolve.scoring import Scorer
from evolve.stopwatch import Stopwatch


class Bench:
    """What all groups of a search share.

    Args:
        database: an opened run.
        scorer: scores programs.
        mutator: proposes them.
        model: the base model, for the record.
        rules: how answers become programs.
        completions: G, completions of a whole group.
        elapsed: seconds that the search ran so far.
        on_recorded: called with the ids of programs as soon as they are recorded, and those that pass every visible test.
    """

    def __init__(
        self,
        database: Database,
        scorer: Scorer,
        mutator: Mutator,
        model: str,
        rules: Rules,
        completions: int,
        elapsed: Callable[[], float],
        on_recorded: Callable[[Sequence[int], Sequence[int]], None],
    ):
        self.database = database
        self.scorer = scorer
        self.mutator = mutator
        self.rules = rules
        self.completions = completions
        self.elapsed = elapsed
        self.on_recorded = on_recorded
        self.sampling, self.scoring, self.busy = Stopwatch(), Stopwatch(), Stopwatch()
        self._model = model
        self._names: dict[str, int] = {}

    def mutator_id(self, name: str) -> int:
        """Return the id of a served name."""
        if name not in self._names:
            self._names[name] = self.database.versions.identity(name, self._model)
        return self._names[name]


class Group:
    """A prompt under way, started with its making.

    Args:
        prompt: the recorded prompt; completions that it has already are left alone.
        bench: what it works with.
    """

    def __init__(self, prompt: OpenPrompt, bench: Bench):
        self.prompt = prompt
        self.is_complete = False
        self._bench = bench
        self._parent = bench.database.source(prompt.parent)
        self._requests: set[asyncio.Task[list[Completion]]] = set()
        self._stopped = False
        self.task = asyncio.create_task(self._run())

    @property
    def reserved(self) -> int:
        """Candidates that it may bring."""
        return self.prompt.completions * self.prompt.answers * (2 if self.prompt.retries else 1)

    def stop_sampling(self) -> None:
        """Drop the requests under way; what they have given already is still scored and recorded."""
        self._stopped = True
        for request in self._requests:
            request.cancel()

    async def _run(self) -> None:
        size = self._bench.completions
        positions = [position for position in self.prompt.missing if position < size]
        again = [position - size for position in self.prompt.missing if position >= size]
        jobs: list[Awaitable[None]] = [self._retry_recorded(position) for position in again]
        if positions:
            jobs.append(self._sample(positions))
        try:
            await together(jobs)
        except _Stopped:
            return
        self.is_complete = True

    async def _sample(self, positions: Sequence[int]) -> None:
        completions = await self._request(self.prompt.messages, positions)
        jobs = [self._completion(position, one) for position, one in zip(positions, completions, strict=True)]
        await together(jobs)

    async def _request(self, messages: Sequence[Message], positions: Sequence[int]) -> list[Completion]:
        """Sample, with a prompt that is too long made shorter until it fits; that is recorded."""
        while True:
            try:
                return await self._sampled(messages, positions)
            except ContextOverflow as error:
                shorter = shorten(messages)
                if shorter is None:
                    raise
                self._bench.database.record_shortened(self.prompt.id, shorter, str(error))
                messages = shorter

    async def _sampled(self, messages: Sequence[Message], positions: Sequence[int]) -> list[Completion]:
        if self._stopped:
            raise _Stopped
        bench, prompt = self._bench, self.prompt
        request = asyncio.create_task(bench.mutator.sample(messages, positions, prompt.answers, prompt.seed))
        self._requests.add(request)
        try:
            with bench.sampling.running(), bench.busy.running():
                await asyncio.wait({request})
        finally:
            self._requests.discard(request)
            request.cancel()
        if request.cancelled():
            raise _Stopped
        return request.result()

    async def _completion(self, position: int, completion: Completion, retry_of: int | None = None) -> None:
        bench, prompt = self._bench, self.prompt
        answers = parse(completion.text, prompt.answers, bench.rules, self._parent)
        with bench.scoring.running(), bench.busy.running():
            scores: list[Score | None] = list(await together([self._score(answer) for answer in answers]))
        ids = bench.database.record_completion(
            prompt,
            position,
            bench.mutator_id(completion.mutator),
            completion,
            list(zip(answers, scores, strict=True)),
            bench.rules.language,
            bench.elapsed(),
            edits.mentions(completion.text, bench.rules.edit_pattern),
            retry_of,
        )
        solved = [identity for identity, score in zip(ids, scores, strict=True) if score is not None and score.solved]
        bench.on_recorded(ids, solved)
        if retry_of is None and prompt.retries and all(answer.source is None for answer in answers):
            await self._retry(position, completion.text, [answer.reason for answer in answers])

    async def _retry_recorded(self, position: int) -> None:
        await self._retry(position, *self._bench.database.completion(self.prompt, position))

    async def _retry(self, position: int, reply: str, reasons: Sequence[str]) -> None:
        """Answer a reply without any program with the reason, once."""
        messages = retry(self.prompt.messages, reply, reasons, self._bench.rules.language, self.prompt.answers)
        place = self._bench.completions + position
        (completion,) = await self._request(messages, [place])
        await self._completion(place, completion, position)

    async def _score(self, answer: Answer) -> Score | None:
        return None if answer.source is None else await self._bench.scorer.score(answer.source)


class _Stopped(Exception):
    """Sampling was stopped before the group was complete."""


async def together(jobs: Sequence[Awaitable[Any]]) -> list[Any]:
    """Wait for all; when one fails, end the others and raise its error. What is recorded meanwhile stays recorded."""
    tasks = [asyncio.ensure_future(job) for job in jobs]
    try:
        await asyncio.gather(*tasks)
    except _Stopped:
        await asyncio.gather(*tasks, return_exceptions=True)  # what was sampled is still scored and recorded
        for task in tasks:
            error = task.exception()
            if error is not None and not isinstance(error, _Stopped):
                raise error from None
        raise
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
    return [task.result() for task in tasks]
