"""Whether a mutator is sampled from the distribution that a trainer computes: the model's own, at a temperature.

Truncation and penalties change the distribution of every token, and a trainer that divides the logits by the temperature
alone learns from ratios that are none. Pure functions of options.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from evolve.errors import BadInput

NEUTRAL: dict[str, tuple[Any, ...]] = {
    "top_p": (1.0,), "top_k": (0, -1), "min_p": (0.0,), "typical_p": (1.0,), "repetition_penalty": (1.0,),
    "presence_penalty": (0.0,), "frequency_penalty": (0.0,), "logit_bias": ({},), "bad_words": ([],),
    "allowed_token_ids": (), "min_tokens": (0,), "logits_processors": ([],), "guided_json": (), "guided_regex": (),
    "structured_outputs": (), "response_format": (), "use_beam_search": (False,), "length_penalty": (1.0,),
}  # fmt: skip
"""Fields of a request that change what is sampled, and the values that don't."""

SERVER = {"generation-config": "vllm", "logprobs-mode": "processed_logprobs"}
"""Options of the managed server that make its log-probabilities those of the distribution that it samples from."""


def effective(sampling: Mapping[str, Any], server: Mapping[str, Any] | None) -> dict[str, Any]:
    """Return the fields that decide what is sampled, as a request that leaves them out gets them.

    Args:
        sampling: fields of the requests.
        server: options of the managed server; None for one of somebody else's, of which only what is sent is known.
    """
    if server is None:
        return {"temperature": 1.0, **sampling}
    plain = {name: values[0] for name, values in NEUTRAL.items() if values and isinstance(values[0], (int, float))}
    return {"temperature": 1.0, **plain, **sampling, **{name: server.get(name, value) for name, value in SERVER.items()}}


def departures(sampling: Mapping[str, Any], server: Mapping[str, Any]) -> list[str]:
    """Return what makes the sampler's distribution another than the trainer's, such as `top_p=0.8`; or nothing."""
    found = []
    for name, value in sampling.items():
        if name in NEUTRAL and value is not None and not any(value == neutral for neutral in NEUTRAL[name]):
            found.append(f"{name}={value}")
    temperature = sampling.get("temperature", 1.0)
    if isinstance(temperature, (int, float)) and temperature <= 0:
        found.append(f"temperature={temperature}")
    changed = {name.replace("_", "-"): value for name, value in server.items()}
    found += [f"--server {name}={changed[name]}" for name, value in SERVER.items() if changed.get(name, value) != value]
    return found


def require(sampling: Mapping[str, Any], server: Mapping[str, Any], who: str) -> None:
    """Refuse to train on what such requests get.

    Args:
        sampling: fields of the requests.
        server: options of the managed server.
        who: set them, for the message.

    Raises:
        BadInput: the sampler's distribution is another than the trainer's.
    """
    found = departures(sampling, server)
    if found:
        neutral = [f"--sampling {one.partition('=')[0]}={NEUTRAL[one.partition('=')[0]][0]}" for one in found
                   if NEUTRAL.get(one.partition("=")[0])]  # fmt: skip
        advice = f" Turn it off ({' '.join(neutral)})." if neutral else " Leave it out."
        raise BadInput(
            f"{who}: {', '.join(found)}. A mutator can't be trained on that: the trainer computes the model's own "
            f"distribution at a temperature, so its ratios to the sampler's would be wrong.{advice}"
        )
