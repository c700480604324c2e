"""Whose advantage a token has: its completion's, or what its answer adds."""

from __future__ import annotations

from evolve.errors import BadInput
from mutator_training.estimators import SEVERAL_ANSWERS

CREDIT = {
    "completion": "one advantage for all tokens of a completion, as the estimators are defined",
    "answer": "each answer's tokens have what it adds over others in its place (VectorEvolve's own, not the paper's)",
}
"""In words, for cards."""


def check_credit(estimator: str, credit: str) -> None:
    """Refuse a credit that an estimator can't give.

    Raises:
        BadInput: it is unknown, or the estimator rewards single answers.
    """
    if credit not in CREDIT:
        raise BadInput(f"credit is completion or answer, not {credit!r}.")
    if credit == "answer" and estimator not in SEVERAL_ANSWERS:
        raise BadInput(f"credit=answer is for estimators of sets: {', '.join(sorted(SEVERAL_ANSWERS))}; not {estimator}.")
