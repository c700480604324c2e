"""The client of an OpenAI-compatible server: n completions a request, m answers a completion, faults waited out.

Two ways to m answers (the set that VPO rewards): *plain* asks for them and hopes; *scaffold* writes each heading and opening
fence itself and lets the model go on in the same sequence, so that every answer is conditioned on the earlier ones. Frame
tokens are marked as not sampled. `auto` starts plain and changes when fewer than 80 % of completions hold m answers.
"""

from __future__ import annotations

import asyncio
import inspect
import re
import time
from collections.abc import Awaitable, Callable, Coroutine, Mapping, Sequence
from typing import Any, Literal, Self, TypeVar

import httpx2
import openai
from openai import AsyncOpenAI

from evolve.answers import Rules, parse
from evolve.completion import Completion, Format, Message
from evolve.dialect import Dialect, context_of, is_local, says_no_system
from evolve.errors import ContextOverflow, MutatorError

AUTO_SHARE = 0.8
AUTO_COMPLETIONS = 8
"""Completions after which `auto` judges the plain way."""
FENCE = "```"
CHARACTERS_A_TOKEN = 3.0
"""Of program text; fewer than most tokenizers have, to be safe."""
PROGRAMS_SHARE = 0.75
"""Of what a completion leaves of the context; the rest is for the task and for what the evaluation told."""
LEAST_ROOM = 1000
MAX_TOKENS = 1024
"""Of a completion, where nothing says how many."""
PASSING = {408, 409, 425, 429}
"""Statuses of refusals that may pass."""
OVERFLOW = re.compile(
    r"context.{0,20}(length|size)|context window|maximum.{0,20}tokens|too (long|large)|reduce the length", re.IGNORECASE
)
"""What servers say when prompt and completion don't fit."""
T = TypeVar("T")
Way = Literal["auto", "plain", "scaffold"]


class OpenAIMutator:
    """Samples from a served model.

    Args:
        base_url: of the OpenAI API, ending in /v1.
        model: served name; None takes the first that the server lists.
        way: how to get m answers.
        language: of the programs, for the scaffold's fences.
        sampling: passed through to every request, such as `temperature`, `top_p`; `max_tokens` is that of one answer.
        answers: that a completion will be asked for, for `room`.
        takes_seeds: whether requests may carry a seed.
        concurrency: requests in flight at once.
        patience: seconds for which a server that fails is asked again.
        timeout: seconds that a request may take.
        retries: how often a request that fails is repeated before the server counts as away.
        recover: called before each new attempt, to restart a managed server.
        api_key: for servers that want one; never stored.
        say: told when the way changes and when the server is away.
    """

    def __init__(
        self,
        base_url: str,
        model: str | None = None,
        *,
        way: Way = "auto",
        language: str = "python",
        sampling: Mapping[str, Any] | None = None,
        answers: int = 1,
        takes_seeds: bool = False,
        concurrency: int = 16,
        patience: float = 300.0,
        timeout: float = 600.0,
        retries: int = 2,
        recover: Callable[[], Awaitable[None]] | None = None,
        api_key: str = "none",
        say: Callable[[str], None] = print,
    ):
        self._base_url = base_url.rstrip("/")
        self._model = model or ""
        self._way = way
        self._language = language
        self._sampling = {"temperature": 1.0, "max_tokens": MAX_TOKENS, **(sampling or {})}
        self._answers = answers
        self._takes_seeds = takes_seeds
        self._slots = asyncio.Semaphore(concurrency)
        self._patience = patience
        self._timeout, self._retries = timeout, retries
        self._recover = recover
        self._api_key = api_key
        self._say = say
        self._is_vllm = False
        self.dialect = Dialect()
        self._context: int | None = None
        self._frames: dict[str, list[int]] = {}
        self._judged = self._full = 0
        self.format: Format = "scaffold" if way == "scaffold" else "plain"

    @property
    def name(self) -> str:
        """The served model's name."""
        return self._model

    @property
    def gives_token_ids(self) -> bool:
        """Whether completions carry token ids and log-probabilities, which training needs."""
        return self._is_vllm

    @property
    def context(self) -> int | None:
        """Length of the model's context in tokens, where the server says it."""
        return self._context

    @property
    def room(self) -> int | None:
        """See `Mutator.room`: what the completion and the rest of the prompt leave of the context."""
        if self._context is None:
            return None
        left = self._context - self._limit(self._answers) * self._answers
        return max(LEAST_ROOM, round(PROGRAMS_SHARE * CHARACTERS_A_TOKEN * left))

    def use(self, name: str) -> None:
        """Sample from this served name from now on; what is under way goes on with the old one."""
        self._model = name

    def resume_with(self, last: Format) -> None:
        """Go on in the format of a run's last completion."""
        if self._way == "auto" and self._is_vllm:
            self.format = last

    async def __aenter__(self) -> Self:
        """Connect and learn what the server can do.

        Raises:
            MutatorError: no server answers, or it lacks the model.
        """
        self._client = AsyncOpenAI(
            base_url=self._base_url,
            api_key=self._api_key,
            max_retries=self._retries,
            timeout=httpx2.Timeout(self._timeout, connect=10.0),
            http_client=openai.DefaultAsyncHttpxClient(trust_env=not is_local(self._base_url)),
        )
        self._http = httpx2.AsyncClient(
            base_url=self._base_url.removesuffix("/v1"),
            timeout=60,
            trust_env=not is_local(self._base_url),
            headers={"Authorization": f"Bearer {self._api_key}"},
        )
        try:
            await self._learn()
        except BaseException:
            await self.__aexit__()
            raise
        return self

    async def _learn(self) -> None:
        """Ask the server for its models and its kind."""
        try:
            served = {model.id: context_of(model.to_dict()) async for model in self._client.models.list()}
        except (openai.APIStatusError, openai.APIResponseValidationError, ValueError, AttributeError) as error:
            if not self._model or isinstance(error, openai.AuthenticationError):
                raise MutatorError(f"{self._base_url} lists no models ({error}); name one with --model.") from error
            served = {self._model: None}  # it answers, but has no such list
        except openai.APIError as error:
            raise MutatorError(
                f"No OpenAI-compatible server answers at {self._base_url} ({error}). Start one with `evolve mutator serve`."
            ) from error
        if not served or (self._model and self._model not in served):
            raise MutatorError(f"{self._base_url} serves {', '.join(served) or 'nothing'}, not {self._model!r}.")
        self._model = self._model or next(iter(served))
        context = served[self._model]
        if context is not None:  # room for the prompt
            self._context = context
        try:
            answer = await self._http.get("/version")
            self._is_vllm = answer.status_code == 200 and "version" in answer.json()
        except (httpx2.HTTPError, ValueError):
            self._is_vllm = False
        if self._way == "scaffold" and not self._is_vllm:
            raise MutatorError(f"The scaffold needs vLLM's token interface, which {self._base_url} lacks. Use `plain`.")

    async def __aexit__(self, *_: object) -> None:
        await self._client.close()
        await self._http.aclose()

    async def sample(self, messages: Sequence[Message], positions: Sequence[int], m: int, seed: int) -> list[Completion]:
        """See `Mutator.sample`."""
        n, seed = len(positions), (seed + 7919 * positions[0]) % (1 << 31)  # a rest of a group is no repetition of its start
        first: _Refused | None = None
        async with self._slots:
            while True:
                try:
                    if self.format == "scaffold" and m > 1:
                        return await self._scaffold(messages, n, m, seed)
                    completions = await self._several(messages, n, m, seed)
                    break
                except _Refused as error:
                    first = first or error
                    if not error.is_of_form or not self.dialect.learn(str(error), n, messages):
                        raise MutatorError(f"{self._base_url} refuses the request: {first}") from first
        self._judge_format(completions)
        return completions

    def _judge_format(self, completions: Sequence[Completion]) -> None:
        """Change from plain to scaffold when too few completions hold all answers."""
        if self._way != "auto" or self.format != "plain" or not self._is_vllm:
            return
        for completion in completions:
            if completion.wanted > 1:
                answers = parse(completion.text, completion.wanted, Rules(self._language))
                self._judged += 1
                self._full += sum(answer.source is not None for answer in answers) == completion.wanted
        if self._judged >= AUTO_COMPLETIONS and self._full < AUTO_SHARE * self._judged:
            self.format = "scaffold"
            self._say(
                f"{self._full} of {self._judged} completions held all answers; from now on the client writes the frame "
                "(scaffold)"
            )

    async def _several(self, messages: Sequence[Message], n: int, m: int, seed: int) -> list[Completion]:
        """Return n completions, those that the server doesn't give at once asked for singly."""
        completions: list[Completion] = []
        if self.dialect.gives_n or n == 1:
            completions = (await self._plain(messages, n, m, seed))[:n]
            if len(completions) < n:
                self.dialect.gives_n = False
                self._say(f"{self._base_url} gives one completion a request; the others are asked for singly")
        singly = [self._plain(messages, 1, m, seed + 7919 * place) for place in range(len(completions), n)]
        return completions + [found[0] for found in await _all(singly)]

    async def _plain(self, messages: Sequence[Message], n: int, m: int, seed: int) -> list[Completion]:
        """Return what one request brings: at least one completion, n where the server gives them."""
        started = time.monotonic()
        known, unknown = self._fields(self._client.chat.completions.create, m * self._limit(m))
        extra = {**unknown, **({"return_token_ids": True} if self._is_vllm else {})}
        reply = await self._choices(
            1,
            lambda: self._client.chat.completions.create(
                model=self._model,
                messages=self.dialect.messages(messages),  # type: ignore[arg-type]
                n=n if n > 1 else openai.omit,
                logprobs=self._is_vllm or openai.omit,
                seed=seed if self._takes_seeds else openai.omit,
                extra_body=extra,
                **known,
            ),
        )
        seconds = time.monotonic() - started
        prompt_ids = getattr(reply, "prompt_token_ids", None)
        used = reply.usage
        prompt_tokens = (used.prompt_tokens if used else None) or len(prompt_ids or ())
        completions = []
        for choice in reply.choices:
            ids = getattr(choice, "token_ids", None)
            content = choice.logprobs.content if choice.logprobs else None
            # Without token ids the tokens of one choice are an equal share of the request's.
            tokens = len(ids) if ids is not None else ((used.completion_tokens if used else None) or 0) // len(reply.choices)
            completions.append(
                Completion(
                    text=(choice.message.content if choice.message else None) or "",
                    format="plain",
                    wanted=m,
                    finish_reason=str(choice.finish_reason),
                    prompt_tokens=prompt_tokens,
                    completion_tokens=tokens,
                    seconds=seconds,
                    temperature=float(self._sampling["temperature"]),
                    mutator=self._model,
                    seed=seed if self._takes_seeds else None,
                    prompt_token_ids=prompt_ids,
                    token_ids=ids,
                    logprobs=[token.logprob for token in content] if content and ids is not None else None,
                )
            )
        return completions

    def _limit(self, m: int) -> int:
        """Return the tokens that each of m answers may have: what was asked for; half of the context for all of them."""
        most = int(self._sampling["max_tokens"])
        return max(1, most if self._context is None else min(most, self._context // 2 // m))

    def _fields(self, create: Callable[..., Any], tokens: int) -> tuple[dict[str, Any], dict[str, Any]]:
        """Return the fields that a method of the client takes, and those of the server alone, such as `top_k`."""
        names = inspect.signature(create).parameters
        wanted = {**self._sampling, "max_tokens": tokens}
        if self.dialect.limit not in wanted:
            wanted[self.dialect.limit] = wanted["max_tokens"]
        if self.dialect.limit != "max_tokens":
            del wanted["max_tokens"]
        taken = {name: value for name, value in wanted.items() if name in names and name != "seed"}
        return taken, {name: value for name, value in wanted.items() if name not in taken}

    async def _scaffold(self, messages: Sequence[Message], n: int, m: int, seed: int) -> list[Completion]:
        started = time.monotonic()
        prompt = await self._tokens({"messages": self.dialect.messages(messages), "add_generation_prompt": True})
        heading = await self._frame(self._heading(1))
        first = await self._go_on([*prompt, *heading], n, m, seed)
        rollouts = [_Rollout(self._heading(1), heading) for _ in range(n)]
        for rollout, choice in zip(rollouts, first, strict=True):
            rollout.take(choice)
        await _all([self._rest(prompt, rollout, m, seed + 1 + i) for i, rollout in enumerate(rollouts)])
        seconds = time.monotonic() - started
        return [
            Completion(
                text=rollout.text,
                format="scaffold",
                wanted=m,
                finish_reason=rollout.finish_reason,
                prompt_tokens=len(prompt),
                completion_tokens=sum(rollout.sampled),
                seconds=seconds,
                temperature=float(self._sampling["temperature"]),
                mutator=self._model,
                seed=seed if self._takes_seeds else None,
                prompt_token_ids=prompt,
                token_ids=rollout.ids,
                logprobs=rollout.logprobs,
                sampled=rollout.sampled,
            )
            for rollout in rollouts
        ]

    async def _rest(self, prompt: list[int], rollout: _Rollout, m: int, seed: int) -> None:
        """Let one rollout write its answers 2 to m."""
        for number in range(2, m + 1):
            if rollout.ended_turn:
                return
            text = ("" if rollout.closed else f"\n{FENCE}") + "\n\n" + self._heading(number)
            rollout.frame(text, await self._frame(text))
            (choice,) = await self._go_on([*prompt, *rollout.ids], 1, m, seed + 1000 * number)
            rollout.take(choice)

    def _heading(self, number: int) -> str:
        return f"### Solution {number}\n{FENCE}{self._language}\n"

    async def _go_on(self, ids: list[int], n: int, m: int, seed: int) -> list[Any]:
        """Return `n` continuations of a token sequence, each up to the closing fence."""
        known, unknown = self._fields(self._client.completions.create, self._limit(m))
        reply = await self._choices(
            n,
            lambda: self._client.completions.create(
                model=self._model,
                prompt=ids,
                n=n,
                logprobs=0,
                stop=[FENCE],
                seed=seed if self._takes_seeds else openai.omit,
                extra_body={**unknown, "return_token_ids": True, "include_stop_str_in_output": True},
                **known,
            ),
        )
        return list(reply.choices)

    async def _frame(self, text: str) -> list[int]:
        if text not in self._frames:
            self._frames[text] = await self._tokens({"prompt": text, "add_special_tokens": False})
        return self._frames[text]

    async def _tokens(self, body: dict[str, Any]) -> list[int]:
        async def ask() -> list[int]:
            answer = await self._http.post("/tokenize", json={"model": self._model, **body})
            answer.raise_for_status()
            tokens: list[int] = answer.json()["tokens"]
            return tokens

        return await self._patiently(ask)

    async def _choices(self, n: int, ask: Callable[[], Awaitable[Any]]) -> Any:
        """Ask for a reply with at least `n` choices; fewer are a fault of the server, like no answer."""

        async def checked() -> Any:
            reply = await ask()
            if not reply.choices or len(reply.choices) < n:
                raise ValueError(f"{len(reply.choices or ())} choices instead of {n}")
            return reply

        return await self._patiently(checked)

    async def _patiently(self, ask: Callable[[], Awaitable[T]]) -> T:
        """Ask until there is an answer; between attempts let the server recover.

        Raises:
            MutatorError: it refused the request, or stayed away for longer than the patience.
        """
        away_since: float | None = None
        delay = 0.5
        while True:
            try:
                return await ask()
            except (openai.APIError, httpx2.HTTPError, ValueError, KeyError) as error:
                refusal = _refusal(error)
                if refusal is not None and OVERFLOW.search(str(refusal)):
                    raise ContextOverflow(f"The model's context is too short for the prompt: {refusal}") from error
                if refusal is not None:
                    raise refusal from error
                away_since = time.monotonic() if away_since is None else away_since
                away = time.monotonic() - away_since
                if away > self._patience:
                    raise MutatorError(
                        f"{self._base_url} gave no answer for {away:.0f} s ({type(error).__name__}: {error}). Everything "
                        "recorded is kept; go on with `evolve resume` when the server is back."
                    ) from error
                self._say(f"the model server fails ({type(error).__name__}); asking again")
                await asyncio.sleep(delay)
                delay = min(2 * delay, 10.0)
                if self._recover is not None:
                    await self._recover()


class _Refused(MutatorError):
    """A server refuses a request; asked in the same form, it would again.

    Attributes:
        is_of_form: whether another form of the request may be taken.
    """

    def __init__(self, text: str, status: int):
        super().__init__(text)
        self.is_of_form = status in (400, 422) or status >= 500


def _refusal(error: Exception) -> _Refused | None:
    """Return what a server said when it refused a request for good, or None for what may pass."""
    if isinstance(error, openai.APIStatusError):
        status, text = error.status_code, str(error)
    elif isinstance(error, httpx2.HTTPStatusError):
        status, text = error.response.status_code, error.response.text
    else:
        return None
    # a chat template that takes no system message is a fault of llama.cpp's own, status 500
    return _Refused(text, status) if (400 <= status < 500 and status not in PASSING) or says_no_system(text) else None


async def _all(jobs: Sequence[Coroutine[Any, Any, T]]) -> list[T]:
    """Wait for all; when one fails, end the others."""
    tasks = [asyncio.ensure_future(job) for job in jobs]
    try:
        return list(await asyncio.gather(*tasks))
    finally:
        for task in tasks:
            task.cancel()


class _Rollout:
    """A completion that grows answer by answer."""

    def __init__(self, text: str, ids: list[int]):
        self.text = ""
        self.ids: list[int] = []
        self.logprobs: list[float | None] = []
        self.sampled: list[bool] = []
        self.finish_reason = ""
        self.frame(text, ids)

    def frame(self, text: str, ids: list[int]) -> None:
        """Append tokens that the client wrote."""
        self.text += text
        self.ids += ids
        self.logprobs += [None] * len(ids)
        self.sampled += [False] * len(ids)

    def take(self, choice: Any) -> None:
        """Append what the model sampled."""
        ids = list(choice.token_ids)
        self.text += choice.text
        self.ids += ids
        self.logprobs += choice.logprobs.token_logprobs[: len(ids)]
        self.sampled += [True] * len(ids)
        self.finish_reason = choice.finish_reason or ""

    @property
    def closed(self) -> bool:
        """Whether the last answer's fence is closed."""
        return self.text.rstrip().endswith(FENCE)

    @property
    def ended_turn(self) -> bool:
        """Whether the model ended its turn instead of closing the fence."""
        return self.finish_reason == "stop" and not self.closed
