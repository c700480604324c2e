"""Advantage estimators: from the score matrices of a group's completions to one advantage per completion. Pure numpy.

Each is called as `estimator(matrices, **options)`, where `matrices` holds one (m_i, k) array in [0, 1] per completion: the
score vectors of its answers. A completion without a usable answer is a (0, k) array, worth 0. The advantage belongs to every
token of the completion. Groups without signal give exact zeros.

| name | reward of a completion | advantage | source |
|---|---|---|---|
| `grpo` | mean of the vector, averaged over its answers | z-norm | DeepSeekMath, arXiv 2402.03300, eq. 3 |
| `dr_grpo` | the same | minus the mean, no division | arXiv 2503.20783, section 3.2 |
| `gdpo` | each objective by itself | z-norm per objective, then averaged | arXiv 2601.05242 |
| `maxrl` | the same as grpo | (r - mean) / mean | MaxRL (maximum likelihood RL, 2026) |
| `max_at_k` | the same as grpo | what it adds to the best of k - 1 others | PKPO, arXiv 2505.15201, leave-one-out |
| `multi_rlvr` | sum of its answers' means | z-norm | arXiv 2605.22817, baseline |
| `random_weighting` | w . r, one w ~ Dir(1) per group and step | z-norm | arXiv 2605.22817, baseline |
| `best_of_m` | best of its answers' means | z-norm | control: VPO's maximum without its weights |
| `vpo` | E_w max_i w . r_i, see `simplex` | z-norm | arXiv 2605.22817, eq. 4 |

The z-norm is GRPO's: (r - mean) / (std + EPSILON), population std, zeros where std < EPSILON. Deviations from the papers:
`gdpo` has no second normalisation over the batch; `vpo` is canonical instead of sampled, is 0 below three standard errors of
its estimate, and `concentration` may grow sparser with many tests.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np

from mutator_training.simplex import POINTS, Array, Concentration, set_rewards

EPSILON = 1e-6
DEAD_BAND = 3.0
"""Standard errors of the estimate below which a group's spread counts as none."""

Matrices = Sequence[Array]


class Judged(Protocol):
    """A group as estimators need it (`rollouts.Group`)."""

    @property
    def matrices(self) -> Sequence[Array]:
        """The score matrices, one per completion."""
        ...

    @property
    def fitness(self) -> int | None:
        """The objective that is the fitness by itself, or None."""
        ...


def checked(matrices: Matrices) -> list[Array]:
    """Return the matrices as float arrays.

    Raises:
        ValueError: there is none, the objectives differ, or a score is not in [0, 1].
    """
    arrays = [np.asarray(matrix, dtype=np.float64) for matrix in matrices]
    if not arrays:
        raise ValueError("a group needs at least one completion")
    widths = {array.shape[1] if array.ndim == 2 else -1 for array in arrays}
    if len(widths) != 1 or min(widths) < 1:
        raise ValueError(f"expected (m, k) arrays with one k, got shapes {[array.shape for array in arrays]}")
    if any(not ((array >= 0) & (array <= 1)).all() for array in arrays):
        raise ValueError("scores must lie in [0, 1]")
    return arrays


def normalised(rewards: Array) -> Array:
    """Return GRPO's advantage of (G,) rewards."""
    centred = rewards - rewards.mean()
    spread = rewards.std()
    return np.zeros_like(rewards) if spread < EPSILON else centred / (spread + EPSILON)


def _means(matrix: Array) -> list[float]:
    """Return the mean score of each answer, without an error that depends on the order of the objectives."""
    return [math.fsum(row) / matrix.shape[1] for row in matrix]


def _scalar(matrices: Matrices) -> Array:
    means = [_means(matrix) for matrix in checked(matrices)]
    return np.array([math.fsum(mean) / len(mean) if mean else 0.0 for mean in means])


def grpo(matrices: Matrices) -> Array:
    """Group Relative Policy Optimization on the mean of the score vector."""
    return normalised(_scalar(matrices))


def dr_grpo(matrices: Matrices) -> Array:
    """GRPO without the division by the standard deviation."""
    rewards = _scalar(matrices)
    return np.zeros_like(rewards) if rewards.std() < EPSILON else rewards - rewards.mean()


def gdpo(matrices: Matrices) -> Array:
    """Normalise each objective by itself, then average."""
    arrays = checked(matrices)
    rewards = np.stack([array.mean(axis=0) if len(array) else np.zeros(array.shape[1]) for array in arrays])
    advantages: Array = np.stack([normalised(column) for column in rewards.T]).mean(axis=0)
    return advantages


def maxrl(matrices: Matrices) -> Array:
    """Divide by the mean instead of the standard deviation: the rarer success is in the group, the more it counts."""
    rewards = _scalar(matrices)
    return np.zeros_like(rewards) if rewards.std() < EPSILON else (rewards - rewards.mean()) / (rewards.mean() + EPSILON)


def max_at_k(matrices: Matrices, subset: int = 4) -> Array:
    """Return what each completion adds to the best of `subset` - 1 others, on average over all such subsets.

    In a group of fewer completions than `subset`, the others are all that there are.

    Raises:
        ValueError: `subset` is less than 2.
    """
    rewards = _scalar(matrices)
    size = len(rewards)
    if subset < 2:
        raise ValueError(f"subset must be at least 2, not {subset}")
    subset = min(subset, size)
    if subset < 2:
        return np.zeros(size)
    others = subset - 1
    advantages = np.zeros(size)
    for index, reward in enumerate(rewards):
        rest = np.sort(np.delete(rewards, index))
        chances = np.array([math.comb(position, others - 1) for position in range(size - 1)]) / math.comb(size - 1, others)
        advantages[index] = (chances * np.maximum(reward - rest, 0)).sum()  # rest[position] is the best of its subset
    return advantages


def multi_rlvr(matrices: Matrices) -> Array:
    """Add up the answers of a completion: several answers, no reward for their being different."""
    return normalised(_set_rewards("multi_rlvr", checked(matrices), {})[0])


def random_weighting(matrices: Matrices, seed: int | Sequence[int] = 0) -> Array:
    """Weigh the objectives at random; the draw depends on `seed` alone, which the trainer makes of seed, step and prompt."""
    arrays = checked(matrices)
    weights = np.random.default_rng(seed).dirichlet(np.ones(arrays[0].shape[1]))
    return normalised(np.array([float((array @ weights).mean()) if len(array) else 0.0 for array in arrays]))


def best_of_m(matrices: Matrices) -> Array:
    """Take the best answer of a completion: the maximum of VPO under fixed uniform weights."""
    return normalised(_set_rewards("best_of_m", checked(matrices), {})[0])


def vpo(matrices: Matrices, concentration: Concentration = "auto", points: int = POINTS) -> Array:
    """Vector Policy Optimization: reward a set of answers for covering the reward space.

    Args:
        matrices: of the group.
        concentration: alpha of the Dirichlet weights; `auto` is the paper's 1 up to 16 objectives and 4 / k beyond.
        points: K, weights per group where there is no closed form; a power of two.
    """
    rewards, error = set_rewards(checked(matrices), concentration, points)
    return np.zeros_like(rewards) if rewards.std() < DEAD_BAND * error else normalised(rewards)


def judged(name: str, group: Judged) -> Sequence[Array]:
    """Return the score matrices that an estimator gets: of a single number the fitness alone, where that is one."""
    if name in SCALAR and group.fitness is not None:
        return [matrix[:, [group.fitness]] for matrix in group.matrices]
    return group.matrices


def _set_rewards(name: str, matrices: Matrices, options: Mapping[str, Any]) -> tuple[Array, float]:
    """Return the set reward of each completion under a set estimator, and the standard error of their differences."""
    if name == "vpo":
        return set_rewards(matrices, options.get("concentration", "auto"), options.get("points", POINTS))
    of = max if name == "best_of_m" else math.fsum
    return np.array([of(_means(matrix)) if len(matrix) else 0.0 for matrix in matrices]), 0.0


REPLACEMENTS = 16
"""Other completions whose answer at the same place stands in for an answer, to tell what it adds."""


def answer_credits(name: str, matrices: Matrices, options: Mapping[str, Any]) -> list[Array]:
    """Return, per completion, the advantage (m_i,) of each of its answers: what it adds over the others' at its place.

    The credit of answer j of the set S is R(S) minus the mean of R(S with j replaced by answer j of each other completion),
    a counterfactual baseline (COMA, arXiv 1705.08926, eq. 4), which does not depend on the answer itself; divided by the
    standard deviation over the group. This is ours, not the paper's on VPO. What a set loses without the answer, R(S) - R(S
    without j), is no such measure: it is 0 for every answer of {a, b, a, b}, whatever a third kind would add, and a training
    on it stops short of the optimum (docs/estimators.md).

    Args:
        name: of a set estimator (`SEVERAL_ANSWERS`).
        matrices: of the group.
        options: of the estimator.

    Raises:
        ValueError: the estimator rewards no sets.
    """
    if name not in SEVERAL_ANSWERS:
        raise ValueError(f"credit per answer is for estimators of sets ({', '.join(sorted(SEVERAL_ANSWERS))}), not {name}")
    arrays = checked(matrices)
    places = [(index, place) for index, array in enumerate(arrays) for place in range(len(array))]
    swapped: list[Array] = []
    counts = []
    for index, place in places:
        others = [array[place] for number, array in enumerate(arrays) if number != index and place < len(array)]
        taken = np.unique(np.linspace(0, len(others) - 1, min(len(others), REPLACEMENTS)).round().astype(int))
        counts.append(len(taken))
        for other in taken:
            one = arrays[index].copy()
            one[place] = others[other]
            swapped.append(one)
    rewards, error = _set_rewards(name, [*arrays, *swapped], options)
    ends = len(arrays) + np.cumsum([0, *counts])
    means = [rewards[start:end].mean() if end > start else np.nan for start, end in itertools.pairwise(ends)]
    credit = np.array([rewards[index] - mean for (index, _), mean in zip(places, means, strict=True)])
    credit = np.nan_to_num(credit)
    spread = credit.std() if credit.size else 0.0
    advantages = np.zeros_like(credit) if spread < max(EPSILON, DEAD_BAND * error) else credit / (spread + EPSILON)
    return np.split(advantages, np.cumsum([len(array) for array in arrays])[:-1])


ESTIMATORS: dict[str, Callable[..., Array]] = {
    "grpo": grpo,
    "dr_grpo": dr_grpo,
    "gdpo": gdpo,
    "maxrl": maxrl,
    "max_at_k": max_at_k,
    "multi_rlvr": multi_rlvr,
    "random_weighting": random_weighting,
    "best_of_m": best_of_m,
    "vpo": vpo,
}

SCALAR = frozenset({"grpo", "dr_grpo", "maxrl", "max_at_k"})
"""Estimators of one number per answer: the mean of its vector, or the objective that is the fitness."""

DRAWN = frozenset({"random_weighting"})
"""Estimators that take a `seed`."""

SEVERAL_ANSWERS = frozenset({"multi_rlvr", "best_of_m", "vpo"})
"""Estimators that want several answers in a completion, so that prompts and budgets follow."""


@dataclass(frozen=True, slots=True)
class Diagnosis:
    """What a group looks like to an estimator.

    Attributes:
        set_reward: mean R over the completions.
        coverage: mean over completions of mean_j max_i r_ij, the share of the objectives that a set covers.
        spread: population standard deviation of R.
        tied: whether VPO gives the group no signal.
        answers: answers in all completions.
        distinct: distinct score vectors among them.
    """

    set_reward: float
    coverage: float
    spread: float
    tied: bool
    answers: int
    distinct: int


def diagnose(matrices: Matrices, concentration: Concentration = "auto", points: int = POINTS) -> Diagnosis:
    """Describe a group; options are those of `vpo`."""
    arrays = checked(matrices)
    rewards, _ = set_rewards(arrays, concentration, points)
    covered = [float(array.max(axis=0).mean()) if len(array) else 0.0 for array in arrays]
    rows = np.concatenate(arrays)
    return Diagnosis(
        set_reward=float(rewards.mean()),
        coverage=float(np.mean(covered)),
        spread=float(rewards.std()),
        tied=not vpo(arrays, concentration, points).any(),
        answers=len(rows),
        distinct=len(np.unique(rows, axis=0)),
    )
