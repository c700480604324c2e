"""Evaluators in OpenEvolve's manner, in a sandbox; the candidate in another one (separated) or in the same process (shared).

Separated, an evaluator imports a stub in the candidate's place. Each call of a function leaves the evaluator's sandbox,
runs in the candidate's, and comes back as plain data or numeric arrays: what the candidate returns is all it can do to its
metrics. Functions and data cross, but no callbacks, classes or generators, and the evaluator can't read the candidate's
source.

Shared, the candidate runs in the evaluator's process and can give itself any metrics; the host and other candidates are
protected all the same. The level that is stored with a score says which it was.
"""

from __future__ import annotations

import base64
import json
import struct
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

from sandbox.base import Outcome, SandboxError
from sandbox.pool import FAULTS_PER_PROGRAM, PooledSandbox, killed
from sandbox.wire import Guest, GuestDied, calls_job, evaluator_job

INSTANCES = 8
"""Instances of one candidate that may be alive at the same time, each in a sandbox of its own."""

MOST_CALLS, MOST_BYTES, MOST_SPENT = 2_000_000, 4 << 30, 32
"""Calls, bytes of requests and answers, and sandboxes that did not survive, of one evaluation."""


@dataclass(frozen=True, slots=True)
class Evaluator:
    """An evaluator and what it needs.

    Attributes:
        files: content by path, relative to the evaluator's folder; read-only for it.
        path: of the evaluator among them.
        program: file name that a candidate gets.
        thresholds: for `evaluate_stage1` and its like; None to call `evaluate`.
        separated: see the module.
        env: variables of the environment, of the candidate's too.
        checked: refuse NaN and widen small integers in what a separated candidate returns (`guest/values.py`).
    """

    files: Mapping[str, bytes]
    path: str = "evaluator.py"
    program: str = "candidate_program.py"
    thresholds: Sequence[float] | None = None
    separated: bool = True
    checked: bool = True
    env: Mapping[str, str] = field(default_factory=dict)


class EvaluatorSandbox:
    """Evaluates sources.

    Args:
        pool: where the evaluator and the candidate run; its limits are those of a whole evaluation, and of each call.
        evaluator: what judges them.
    """

    def __init__(self, pool: PooledSandbox, evaluator: Evaluator):
        self._pool = pool
        self._evaluator = evaluator
        self._files = {name: (0o444, base64.b64encode(data).decode()) for name, data in evaluator.files.items()}

    @property
    def level(self) -> str:
        """Isolation of a score: the pool's, and whether the candidate shares the evaluator's process."""
        return f"{self._pool.level}-{'separated' if self._evaluator.separated else 'shared'}"

    async def evaluate(self, source: str) -> Outcome:
        """Evaluate a source once, in fresh sandboxes.

        Returns:
            An outcome whose answer is a JSON object of `metrics`, `artifacts` and `stages`; or the verdict of an evaluation
            that raised, hung, crashed, or gave NaN.

        Raises:
            SandboxError: the machine failed, after retries.
        """
        async with self._pool.slot():
            deaths = faults = 0
            out_of_memory = False
            while True:
                candidate = _Candidate(self._pool, source, self._evaluator.env)
                guest = await self._pool.take()
                try:
                    return await self._once(guest, candidate, source)
                except GuestDied as death:
                    out_of_memory = out_of_memory or await guest.ran_out_of_memory()
                    if await self._pool.blame(guest) and not candidate.machine_failed:
                        deaths += 1
                    else:
                        faults += 1
                    if faults >= FAULTS_PER_PROGRAM:
                        raise SandboxError(f"The sandbox engine failed {faults} times under one program: {death}") from death
                    if deaths == 2:
                        detail = f"the evaluator's sandbox died, twice: {death}"
                        return replace(killed(out_of_memory, self._pool.limits, detail), loaded=False)
                finally:
                    self._pool.discard(guest)
                    candidate.discard()

    async def _once(self, guest: Guest, candidate: _Candidate, source: str) -> Outcome:
        evaluator = self._evaluator
        thresholds = None if evaluator.thresholds is None else list(evaluator.thresholds)
        text = None if evaluator.separated else source
        job = evaluator_job(
            self._files,
            evaluator.path,
            evaluator.program,
            text,
            thresholds,
            evaluator.checked,
            evaluator.env,
            self._pool.limits,
        )
        await guest.load(job)
        return await guest.evaluate(candidate.answer, self._pool.limits)


class _Candidate:
    """The candidate of one evaluation: a sandbox per instance that is alive, used again by the next."""

    def __init__(self, pool: PooledSandbox, source: str, env: Mapping[str, str]):
        self._pool = pool
        self._source = source
        self._env = env
        self._instances: dict[int, Guest | None] = {}
        self._idle: list[Guest] = []
        self._busy: set[int] = set()
        self._calls = self._bytes = self._spent = 0
        self.machine_failed = False

    async def answer(self, number: int, request: bytes | None) -> bytes:
        """Answer a call to an instance, or end it: the seconds that it took (f64), then the answer. See `Guest.evaluate`."""
        if request is None:
            await self._close(number)
            return b""
        self._calls += 1
        self._bytes += len(request)
        if self._calls > MOST_CALLS or self._bytes > MOST_BYTES:
            return _error(f"more than {MOST_CALLS} calls, or {MOST_BYTES >> 30} GB of values, in one evaluation")
        if number in self._busy:
            return _error("a second call of an instance that has not answered the first one")
        try:
            guest = await self._instance(number)
            if guest is None:
                return _error("the candidate's process has ended in an earlier call")
            self._busy.add(number)
            outcome, usable = await guest.test(number, struct.pack(">I", len(request)) + request, self._pool.limits)
        except _TooMany as error:
            return _error(str(error))
        except GuestDied as death:
            return await self._died(number, death)
        finally:
            self._busy.discard(number)
        if outcome.verdict is None:
            self._bytes += len(outcome.answer)
            return struct.pack(">d", outcome.wall_seconds) + outcome.answer
        self._instances[number] = None
        if usable:
            self._idle.append(guest)
        else:
            self._throw_away(guest)
        return _error(f"the candidate's process ended: {outcome.verdict}: {outcome.detail}")

    def discard(self) -> None:
        """Throw all its sandboxes away."""
        for guest in (*self._instances.values(), *self._idle):
            if guest is not None:
                self._pool.discard(guest)
        self._instances, self._idle = {}, []

    async def _instance(self, number: int) -> Guest | None:
        if number in self._instances:
            return self._instances[number]
        if sum(guest is not None for guest in self._instances.values()) >= INSTANCES:
            raise _TooMany(f"the evaluator uses more than {INSTANCES} instances of the candidate at the same time")
        if self._spent >= MOST_SPENT:
            raise _TooMany(f"the candidate has cost {MOST_SPENT} sandboxes in one evaluation")
        if self._idle:
            guest = self._idle.pop()
            self._instances[number] = guest
        else:
            guest = await self._pool.take()
            self._instances[number] = guest
            await guest.load(calls_job(self._source, self._env, self._pool.limits))
        return guest

    async def _close(self, number: int) -> None:
        guest = self._instances.get(number)
        clean = False
        try:
            clean = guest is not None and number not in self._busy and await guest.close_calls()
        finally:  # the end of the evaluation cancels this
            self._instances.pop(number, None)
            if guest is not None and clean:
                self._idle.append(guest)
            elif guest is not None:
                self._throw_away(guest)

    def _throw_away(self, guest: Guest) -> None:
        self._spent += 1
        self._pool.discard(guest)

    async def _died(self, number: int, death: GuestDied) -> bytes:
        guest = self._instances.get(number)
        self._instances[number] = None
        if guest is not None:
            self._throw_away(guest)
            if not await self._pool.blame(guest):
                self.machine_failed = True
                raise death  # ends the evaluation, which starts again
        return _error(f"the candidate's sandbox died: {death}")


class _TooMany(Exception):
    """The evaluator asks for more instances than it may have."""


def _error(text: str) -> bytes:
    """Return the answer that raises RuntimeError in the evaluator (`guest/values.py`)."""
    return struct.pack(">d", 0.0) + json.dumps({"dict": [["error", ["RuntimeError", text]]]}).encode()
