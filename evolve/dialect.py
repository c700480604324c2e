"""What servers of the OpenAI API do differently, learnt from their answers: pure functions of texts, and one record.

llama.cpp and Ollama ignore `n`, others refuse it; some chat templates have no system role; newer models of OpenAI want
`max_completion_tokens`; the context's length has a name of its own at each.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from ipaddress import ip_address
from typing import Any
from urllib.parse import urlsplit

from evolve.completion import Message

_NO_SYSTEM = re.compile(
    r"(?i)system.{0,20}(role|message|prompt).{0,40}(not|n't|unsupported)|(not|n't|un)\s?support.{0,20}system"
)
_NO_MAX_TOKENS = re.compile(r"(?i)max_tokens.{0,60}max_completion_tokens")
CONTEXTS = ("max_model_len", "context_length", "max_context_length", "context_window", "n_ctx")
"""How vLLM, OpenRouter, LM Studio, Groq and llama.cpp name the context's length."""


@dataclass(slots=True)
class Dialect:
    """What a server was found to do.

    Attributes:
        gives_n: whether a request for n completions brings n; else each is asked for by itself.
        has_system: whether the model takes a system message; else it goes before the first message of the user.
        limit: the field that bounds a completion's tokens.
    """

    gives_n: bool = True
    has_system: bool = True
    limit: str = "max_tokens"

    def learn(self, refusal: str, n: int, messages: Sequence[Message]) -> bool:
        """Take a refusal; return whether the request is to be asked again, in another form.

        What refusals say differs too much between servers to be told apart: each form that has another is tried once, and a
        request that is refused for another reason is refused again.
        """
        with_system = self.has_system and any(message["role"] == "system" for message in messages)
        if self.limit == "max_tokens" and _NO_MAX_TOKENS.search(refusal):
            self.limit = "max_completion_tokens"
        elif with_system and says_no_system(refusal):
            self.has_system = False
        elif self.gives_n and n > 1:
            self.gives_n = False
        elif with_system:
            self.has_system = False
        else:
            return False
        return True

    def messages(self, messages: Sequence[Message]) -> list[Message]:
        """Return the messages as the server takes them."""
        return list(messages) if self.has_system else folded(messages)


def says_no_system(refusal: str) -> bool:
    """Return whether a refusal is about the system message."""
    return _NO_SYSTEM.search(refusal) is not None


def folded(messages: Sequence[Message]) -> list[Message]:
    """Return messages without the system's, which is put before the first one of the user."""
    system = "\n\n".join(message["content"] for message in messages if message["role"] == "system")
    rest = [message for message in messages if message["role"] != "system"]
    if not system or not rest:
        return list(messages)
    first: Message = {"role": rest[0]["role"], "content": f"{system}\n\n{rest[0]['content']}"}
    return [first, *rest[1:]]


def context_of(model: Mapping[str, Any]) -> int | None:
    """Return the length of a model's context in tokens from an entry of a server's list of models, where it says so."""
    meta = model.get("meta")
    for place in (model, meta if isinstance(meta, Mapping) else {}):
        for name in CONTEXTS:
            value = place.get(name)
            if isinstance(value, int) and not isinstance(value, bool) and value > 0:
                return value
    return None


def is_local(url: str) -> bool:
    """Return whether a server is on this machine, so that no proxy is between."""
    host = urlsplit(url).hostname or ""
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return host == "localhost" or host.endswith(".localhost")
