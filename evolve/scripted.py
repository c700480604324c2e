"""A mutator that gives prepared replies: for tests, examples and replays, in milliseconds."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from evolve.completion import Completion, Format, Message

Script = Callable[[Sequence[Message], int], str]


class ScriptedMutator:
    """Answers with `script(messages, number)`, where number counts the completions given so far.

    Args:
        script: a function, or a sequence of replies that is repeated.
        name: served name.
    """

    def __init__(self, script: Script | Sequence[str], name: str = "scripted"):
        replies = script
        self._script: Script = replies if callable(replies) else lambda _, number: replies[number % len(replies)]
        self.name = name
        self.format: Format = "plain"
        self.room: int | None = None
        self.prompts: list[Sequence[Message]] = []
        self._count = 0

    async def sample(self, messages: Sequence[Message], positions: Sequence[int], m: int, seed: int) -> list[Completion]:
        """See `Mutator.sample`. A token is a word here."""
        self.prompts.append(messages)
        completions = []
        for _ in positions:
            text = self._script(messages, self._count)
            self._count += 1
            completions.append(
                Completion(
                    text=text,
                    format=self.format,
                    wanted=m,
                    finish_reason="stop",
                    prompt_tokens=sum(len(message["content"].split()) for message in messages),
                    completion_tokens=len(text.split()),
                    seconds=0.0,
                    temperature=1.0,
                    mutator=self.name,
                    seed=seed,
                )
            )
        return completions
