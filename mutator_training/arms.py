"""The arms of a comparison: what is trained how, written as `NAME[:KEY=VALUE]...`, such as `vpo:m=8:beta=0.01`."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from evolve.errors import BadInput, nearest
from mutator_training.credit import check_credit
from mutator_training.estimators import ESTIMATORS, SEVERAL_ANSWERS

BASE = "base"


def _concentration(text: str) -> float | str:
    return text if text == "auto" else float(text)


KEYS: dict[str, Callable[[str], Any]] = {
    "m": int,
    "beta": float,
    "learning_rate": float,
    "concentration": _concentration,
    "tests": int,
    "credit": str,
}
"""What an arm may set for itself: answers of a completion, weight of the KL divergence, learning rate, alpha of VPO's
weights, how many of the tests (the first ones) training sees, and whose advantage a token has (`completion` or `answer`)."""


@dataclass(frozen=True, slots=True)
class Arm:
    """One arm.

    Attributes:
        label: as given; names the arm in files and figures.
        estimator: key of `ESTIMATORS`; None for the base model as it is.
        answers: m, answers of a completion.
        settings: of its own, by `KEYS` without m.
    """

    label: str
    estimator: str | None
    answers: int
    settings: Mapping[str, Any] = field(default_factory=dict)

    @property
    def slug(self) -> str:
        """Name for folders."""
        return "".join(letter if letter.isalnum() or letter in "_.=" else "-" for letter in self.label)

    def completions(self, answers: int) -> int:
        """Return the completions that hold so many answers."""
        return answers // self.answers


def parse(text: str, answers: int) -> Arm:
    """Return an arm.

    Args:
        text: `NAME[:KEY=VALUE]...`; NAME is `base` or an estimator.
        answers: m of the arms that have several answers in a completion.

    Raises:
        BadInput: the name, a key or a value is unknown.
    """
    name, *settings = text.split(":")
    known = [BASE, *ESTIMATORS]
    if name not in known:
        raise BadInput(f"--arms: no arm {name!r}{nearest(name, known)} Known: {', '.join(known)}.")
    values: dict[str, Any] = {}
    for setting in settings:
        key, _, value = setting.partition("=")
        if key not in KEYS:
            raise BadInput(f"--arms: {text!r} has no setting {key!r}{nearest(key, KEYS)} Known: {', '.join(KEYS)}.")
        try:
            values[key] = KEYS[key](value)
        except ValueError:
            raise BadInput(f"--arms: {text!r}: expected a number for {key}, came {value!r}.") from None
    m = values.pop("m", answers if name in SEVERAL_ANSWERS else 1)
    if m < 1:
        raise BadInput(f"--arms: {text!r}: m must be at least 1.")
    check_credit(name, values.get("credit", "completion"))
    if "concentration" in values and name != "vpo":
        raise BadInput(f"--arms: {text!r}: only vpo has a concentration.")
    return Arm(text, None if name == BASE else name, m, values)


def parse_all(texts: Sequence[str], answers: int, group: int, samples: int) -> list[Arm]:
    """Return the arms of a comparison, checked against its sizes.

    Args:
        texts: one per arm.
        answers: m of the arms with several answers.
        group: scored answers per prompt in training, the same for all arms.
        samples: answers sampled per held-out problem, the same for all arms.

    Raises:
        BadInput: see `parse`; two are the same; or a size can't be divided into completions of m answers.
    """
    arms = [parse(text, answers) for text in texts]
    if len({arm.slug for arm in arms}) < len(arms):
        raise BadInput(f"--arms: an arm is named twice: {', '.join(texts)}.")
    for arm in arms:
        for what, count, least in (("--group", group, 2), ("--samples", samples, 1)):
            if count % arm.answers or count // arm.answers < least:
                raise BadInput(
                    f"{what} {count} answers can't be had with {arm.answers} in each completion of the arm {arm.label}: "
                    f"give a multiple of {arm.answers} of at least {least * arm.answers}."
                )
    return arms
