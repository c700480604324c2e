"""What a mutator is asked and what it gives: messages in, completions out."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal, Protocol, TypedDict

Format = Literal["plain", "scaffold"]


class Message(TypedDict):
    """One message of a chat prompt."""

    role: Literal["system", "user", "assistant"]
    content: str


@dataclass(frozen=True, slots=True)
class Completion:
    """One reply (rollout), holding up to `wanted` answers.

    Attributes:
        text: the reply, frames of the scaffold included.
        format: `plain`, or `scaffold` when the client wrote the headings and fences.
        wanted: m, the number of answers asked for.
        finish_reason: the server's, `stop` or `length`.
        prompt_tokens: tokens of the prompt.
        completion_tokens: tokens that the model sampled; frames are not counted.
        seconds: from request to reply; shared by the completions of one request.
        temperature: of the sampling.
        mutator: the served name that gave it, which names the adapter version.
        seed: the request's, or None when none was sent.
        prompt_token_ids: of the prompt, or None when the server gives none.
        token_ids: (n,) of the reply as sampled, frames included, or None.
        logprobs: (n,) log-probabilities under the sampling distribution; None at frame tokens.
        sampled: (n,) False at frame tokens, which are not the policy's; None when all are.
    """

    text: str
    format: Format
    wanted: int
    finish_reason: str
    prompt_tokens: int
    completion_tokens: int
    seconds: float
    temperature: float
    mutator: str
    seed: int | None = None
    prompt_token_ids: Sequence[int] | None = None
    token_ids: Sequence[int] | None = None
    logprobs: Sequence[float | None] | None = None
    sampled: Sequence[bool] | None = None


class Mutator(Protocol):
    """A language model that proposes programs."""

    @property
    def name(self) -> str:
        """The served name, stored with every completion."""
        ...

    @property
    def format(self) -> Format:
        """The way to m answers that the next completions use."""
        ...

    @property
    def room(self) -> int | None:
        """Characters that the programs of a prompt may take together; None where the context's length isn't known."""
        ...

    async def sample(self, messages: Sequence[Message], positions: Sequence[int], m: int, seed: int) -> list[Completion]:
        """Return completions of one prompt, each asked for `m` answers.

        Args:
            messages: the prompt.
            positions: places of the wanted completions in the prompt's group; all of them (0 to G-1) but after a kill.
            m: answers in each completion.
            seed: of the prompt, different for each of a run. With the positions it decides the sampling where the server
                can.

        Raises:
            ContextOverflow: the server refuses the prompt because it is too long.
            MutatorError: the server stayed away for longer than the patience.
        """
        ...
