"""What a comparison counts: pass@k, best@k, diversity, and how sure a difference is. Pure numpy and scipy.

1. pass@k is the unbiased estimator of Chen et al. 2021 (arXiv 2107.03374, eq. 1), best@k its form for any score: the mean of
   the maximum over all k-subsets of n values, by counting for each value the subsets in which it is the greatest.
2. Differences are paired: two arms share problems and seeds. Problems and seeds are resampled together (a bootstrap over
   both; Owen 2007, arXiv 0712.1111). Three seeds resampled look more alike than they are: the bootstrap's variance
   over n is that of the mean times (n - 1) / n, and a normal quantile is too short for n - 1 degrees of freedom. So the
   interval is stretched: the part of its variance that comes from seeds by Student's quantile for their number, the part
   that comes from problems by the one for theirs (on the safe side, as in Cochran and Cox 1957).
3. Of many differences some leave 0 out by chance. `simultaneous` widens the intervals of a family, so that with 95 % all of
   them hold together: the bootstrap's draws are shared, and the greatest standardised deviation among all differences gives
   the width (max-t; Romano and Wolf 2005, doi 10.1198/016214504000000539).
4. A difference is a claim only where its interval leaves 0 out, and never with one seed: a training that was run once says
   nothing about the next one.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray
from scipy import special, stats

from mutator_training.simplex import Array

LEVEL = 0.95
DRAWS = 2000
ROUND = 1e-12


def subsets(k: int, n: int) -> Array:
    """Return, for the values of n sorted upwards, the share (n,) of the k-subsets in which each is the greatest."""
    places = np.arange(1, n + 1)
    with np.errstate(divide="ignore", invalid="ignore"):
        logs = _log_comb(places - 1, k - 1) - _log_comb(np.array([n]), k)
    share: Array = np.exp(logs)
    return share


def _log_comb(n: NDArray[np.int64], k: int) -> Array:
    found = np.full(n.shape, -np.inf)
    ok = n >= k
    found[ok] = special.gammaln(n[ok] + 1) - special.gammaln(k + 1) - special.gammaln(n[ok] - k + 1)
    return found


def pass_at_k(n: int, correct: int, k: int) -> float:
    """Return the chance that k of n samples, drawn without repetition, hold at least one of the `correct` ones.

    Raises:
        ValueError: k is not in 1..n.
    """
    _check(n, k)
    if n - correct < k:
        return 1.0
    return float(1.0 - np.prod(1.0 - k / np.arange(n - correct + 1, n + 1)))


def best_at_k(values: Array, k: int) -> float:
    """Return the mean of the greatest of k of the (n,) values, over all k-subsets.

    Raises:
        ValueError: k is not in 1..n.
    """
    _check(len(values), k)
    return float(np.sort(values) @ subsets(k, len(values)))


def _check(n: int, k: int) -> None:
    if not 1 <= k <= n:
        raise ValueError(f"k must be in 1..{n}, the number of samples, not {k}")


@dataclass(frozen=True, slots=True)
class Diversity:
    """How different the answers to one problem are.

    Attributes:
        distinct: different programs, as a share of the answers.
        distance: mean L1 distance of two answers' score vectors, divided by k, in [0, 1].
        coverage: objectives that some answer reaches, mean over objectives of the best score.
        pareto: different score vectors that no other answer's dominates, as a share of the different score vectors.
    """

    distinct: float
    distance: float
    coverage: float
    pareto: float


def diversity(keys: Sequence[int], scores: Array) -> Diversity:
    """Describe the answers to one problem.

    Args:
        keys: (n,) the same for the same program.
        scores: (n, k) in [0, 1].
    """
    n = len(scores)
    if n < 2:
        return Diversity(float(n > 0), 0.0, float(scores.max(axis=0).mean()) if n else 0.0, float(n > 0))
    sorted_scores = np.sort(scores, axis=0)
    # sum over pairs of |x - y| per objective: each sorted value counts (places below - places above)
    pairs = (2 * np.arange(n) - n + 1) @ sorted_scores
    distance = float(pairs.mean() / (n * (n - 1) / 2))
    rows = np.unique(scores, axis=0)
    covers = np.all(rows[:, None, :] >= rows[None, :, :], axis=2)
    dominated = (covers & ~covers.T).any(axis=0)
    return Diversity(len(set(keys)) / n, distance, float(scores.max(axis=0).mean()), float((~dominated).sum() / len(rows)))


@dataclass(frozen=True, slots=True)
class Difference:
    """A paired difference of two arms in one measure.

    Attributes:
        mean: of first minus second.
        low, high: of the 95 % interval.
        seeds, problems: over which the mean is.
        better, worse: problems on which the first arm is ahead, or behind, on average over seeds.
        sign_p: two-sided sign test over these problems.
        claimed: whether the interval leaves 0 out, with at least two seeds.
    """

    mean: float
    low: float
    high: float
    seeds: int
    problems: int
    better: int
    worse: int
    sign_p: float
    claimed: bool


def difference(first: Array, second: Array, rng_seed: int = 0, draws: int = DRAWS) -> Difference:
    """Compare two arms.

    Args:
        first, second: (seeds, problems) of one measure, paired.
        rng_seed: of the bootstrap; the same for every comparison, so that swapping the arms mirrors everything.
        draws: of the bootstrap.

    Raises:
        ValueError: the shapes differ, or there is nothing to compare.
    """
    if first.shape != second.shape or first.ndim != 2 or not first.size:
        raise ValueError(f"expected two (seeds, problems) arrays of one shape, got {first.shape} and {second.shape}")
    found = first - second
    seeds, problems = found.shape
    mean = float(found.mean())
    low, high = np.quantile(_deviations(found, rng_seed, draws), [(1 - LEVEL) / 2, (1 + LEVEL) / 2]) + mean
    per_problem = found.mean(axis=0)
    better, worse = int((per_problem > ROUND).sum()), int((per_problem < -ROUND).sum())
    sign = float(stats.binomtest(better, better + worse).pvalue) if better + worse else 1.0
    claimed = bool(seeds > 1 and (low > ROUND or high < -ROUND))
    return Difference(mean, float(low), float(high), seeds, problems, better, worse, sign, claimed)


def simultaneous(pairs: Sequence[tuple[Array, Array]], rng_seed: int = 0, draws: int = DRAWS) -> list[tuple[float, float]]:
    """Return low and high of 95 % intervals that hold together, none shorter than its own (`difference`).

    Args:
        pairs: of two arms' (seeds, problems) values each; the shapes may differ from pair to pair.
        rng_seed, draws: of the bootstrap.
    """
    greatest = np.zeros(draws)
    spreads = []
    for first, second in pairs:
        deviations = _deviations(first - second, rng_seed, draws)
        spread = float(deviations.std())
        spreads.append(spread)
        if spread > ROUND:
            greatest = np.maximum(greatest, np.abs(deviations) / spread)
    width = float(np.quantile(greatest, LEVEL))
    found = []
    for (first, second), spread in zip(pairs, spreads, strict=True):
        own = difference(first, second, rng_seed, draws)
        found.append((min(own.low, own.mean - width * spread), max(own.high, own.mean + width * spread)))
    return found


def _deviations(found: Array, rng_seed: int, draws: int) -> Array:
    """Return by how much the (draws,) resampled means of (seeds, problems) differences deviate, stretched."""
    by_seed, by_problem = _resampled(*found.shape, rng_seed, draws)
    deviations: Array = (((by_seed @ found) * by_problem).sum(axis=1) - found.mean()) * _stretch(found)
    return deviations


@lru_cache(maxsize=8)
def _resampled(seeds: int, problems: int, rng_seed: int, draws: int) -> tuple[Array, Array]:
    """Return the weights (draws, seeds) and (draws, problems) of a bootstrap."""
    rng = np.random.default_rng(rng_seed)
    by_seed = rng.multinomial(seeds, np.full(seeds, 1 / seeds), draws) / seeds
    return by_seed, rng.multinomial(problems, np.full(problems, 1 / problems), draws) / problems


def _stretch(found: Array) -> float:
    """Return by how much few seeds and few problems make the bootstrap's interval too short."""
    parts = [(found.mean(axis=1).var(), found.shape[0]), (found.mean(axis=0).var(), found.shape[1])]
    biased = sum(variance / n for variance, n in parts)
    right = sum(variance / (n - 1) * stats.t.ppf((1 + LEVEL) / 2, n - 1) ** 2 for variance, n in parts if n > 1)
    if biased <= 0 or right <= 0:
        return 1.0
    return float(np.sqrt(right / biased) / stats.norm.ppf((1 + LEVEL) / 2))


def interval(values: Array, rng_seed: int = 0, draws: int = DRAWS) -> tuple[float, float, float]:
    """Return mean, low and high (95 %) of one arm's (seeds, problems) values, for the bands of plots."""
    same = difference(values, np.zeros_like(values), rng_seed, draws)
    return same.mean, same.low, same.high
