"""The set reward of VPO: R(S) = E_{w ~ Dir(alpha 1_k)} [ max_{i in S} w . r_i ] (arXiv 2605.22817), as exactly as can be.

Rewards are (m, k) arrays in [0, 1]: m answers, k objectives. Sets of equal worth give equal numbers, to the bit where there
is a closed form or rewards are binary, so that a group of equals has no spread for a z-norm to blow up:

- duplicate and dominated answers are dropped first; they don't change R;
- one answer: the mean. Two answers with alpha = 1: the divided difference of x_+^k (Hermite-Genocchi), by a recursion of
  convex combinations, which is stable for any k. Two binary answers, any alpha: incomplete beta functions;
- binary answers otherwise: R depends only on how many tests have which pattern of passing answers, and the weights of these
  patterns are a Dirichlet vector of that size. Fixed quasi-random points, cached by the sorted counts;
- real answers otherwise: Sobol points through the gamma quantile, balanced so that every weight has exactly the mean 1 / k.

Where the reference implementation (ryanboldi/vpo, Apache-2.0) samples K weights anew for each group, equal sets differ by
noise, and a tied group gets advantages of about .8 instead of 0.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from functools import lru_cache
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray
from scipy.special import betainc, gammaincinv
from scipy.stats import qmc

Array = NDArray[np.float64]
Concentration = float | Literal["auto"]

MANY_TESTS = 16
"""Up to this many objectives, `auto` means alpha = 1."""

AUTO_TOTAL = 4.0
"""Beyond, `auto` means alpha = 4 / k, so that R keeps its pressure to diversify: two disjoint halves stay near .69."""

BLOCKS = 8
"""Parts of the points, each a net of its own, whose spread gives the estimate's standard error, on the safe side."""

POINTS = 1024
"""K, the weights where there is no closed form. With 256 and more than 16 real objectives estimates correlate with the truth
by .73 at worst, and the dead band takes 2 to 5 of 40 informative groups."""

PATTERN_POINTS = 1 << 11
ALL_ORDERS = 5
"""Up to this many answers, every order is tried for the canonical one; beyond, the estimate has an error."""

DECIMALS = 12
"""Estimates are rounded to this, because a product's last bits depend on where in a batch a row stands."""


def alpha(concentration: Concentration, k: int) -> float:
    """Return the Dirichlet parameter for `k` objectives.

    Raises:
        ValueError: it is neither `auto` nor positive.
    """
    if concentration == "auto":
        return 1.0 if k <= MANY_TESTS else AUTO_TOTAL / k
    value = float(concentration)
    if not 0 < value < math.inf:
        raise ValueError(f"concentration must be positive or 'auto', not {concentration!r}")
    return value


def set_reward(rewards: Array, concentration: Concentration = 1.0, points: int = POINTS) -> float:
    """Return R of one set of answers; see `set_rewards`."""
    return float(set_rewards([rewards], concentration, points)[0][0])


def set_rewards(matrices: Sequence[Array], concentration: Concentration, points: int = POINTS) -> tuple[Array, float]:
    """Return R of each set of a group, (G,), and the standard error of their differences from the group's mean.

    Args:
        matrices: (m_i, k) in [0, 1] each; m_i = 0 is a completion without a usable answer, worth 0.
        concentration: alpha, or `auto`.
        points: K, the weights for real rewards of three and more answers; a power of two, at least 16. They are the same for
            all sets, so that their error cancels in differences; it is 0 where R is exact or canonical, which it is not for
            more than `ALL_ORDERS` binary answers.
    """
    k = matrices[0].shape[1]
    a = alpha(concentration, k)
    rows = max(1, max(len(matrix) for matrix in matrices))
    padded = np.stack([_padded(matrix, rows) for matrix in matrices])
    kept = essential(padded)
    counts = kept.sum(axis=1)
    binary = (((padded == 0) | (padded == 1)).all(axis=2) | ~kept).all(axis=1)
    estimated = (counts > 2) & ~binary if a == 1 else (counts > 1) & ~binary
    blocks = np.empty((len(padded), BLOCKS))
    if estimated.any():
        products = padded[estimated].reshape(-1, k) @ dirichlet(k, a, points)
        best = products.reshape(-1, rows, BLOCKS, points // BLOCKS).max(axis=1)
        blocks[estimated] = np.round(best.mean(axis=2), DECIMALS)
    for index in np.flatnonzero(~estimated):
        answers = padded[index][kept[index]]
        if len(answers) == 1:
            blocks[index] = _sum(answers[0]) / k
        elif binary[index]:
            blocks[index] = _binary(answers.astype(bool), a)
        else:
            blocks[index] = _pair(answers[0], answers[1])
    centred = blocks - blocks.mean(axis=0)
    return blocks.mean(axis=1), float(np.sqrt(centred.var(axis=1, ddof=1).mean() / BLOCKS))


def _padded(matrix: Array, rows: int) -> Array:
    """Repeat a row, which doesn't change R, until there are `rows`; no row stands for zeros."""
    if len(matrix) == 0:
        return np.zeros((rows, matrix.shape[1]))
    return np.concatenate([matrix, np.repeat(matrix[:1], rows - len(matrix), axis=0)])


def essential(rewards: Array) -> NDArray[np.bool_]:
    """Return, for (G, m, k) rewards, which answers (G, m) no other one dominates, one of each kind."""
    covers: NDArray[np.bool_] = np.all(rewards[:, :, None, :] >= rewards[:, None, :, :], axis=3)  # [g, i, j]: i >= j
    earlier = np.triu(np.ones(covers.shape[1:], dtype=bool), 1)
    beaten: NDArray[np.bool_] = np.any(covers & (~np.swapaxes(covers, 1, 2) | earlier), axis=1)
    return ~beaten


def _sum(values: Array) -> float:
    """Add without an error that depends on the order."""
    return math.fsum(values)


def _pair(first: Array, second: Array) -> float:
    """Return R of two real answers at alpha = 1: mean(r2) + T(r1 - r2) / k, T the divided difference of x_+^k."""
    difference = np.sort(first - second)
    if tuple(difference) > tuple(np.sort(second - first)):
        second, difference = first, np.sort(second - first)
    positive = [value for value in difference if value > 0]
    negative = [-value for value in difference[::-1] if value < 0]
    row = [math.fsum(positive[:i]) for i in range(len(positive) + 1)]
    for below in negative:
        previous = 0.0
        for i, above in enumerate(positive, start=1):
            previous = row[i] = (above * row[i] + below * previous) / (above + below)
        row[0] = 0.0
    return (_sum(second) + row[-1]) / len(first)


def _binary(passes: NDArray[np.bool_], a: float) -> Any:
    """Return R of binary answers from how many tests have which pattern of passing answers.

    Of more answers than `ALL_ORDERS`, whose order may not be canonical, the `BLOCKS` estimates, which tell its error.
    """
    m = len(passes)
    patterns = np.bincount((1 << np.arange(m)) @ passes, minlength=1 << m)
    if m <= ALL_ORDERS:
        orders = patterns[_relabelled(m)]
    else:
        key = [sorted((int(code).bit_count(), int(patterns[code])) for code in np.flatnonzero(patterns) if code >> i & 1)
               for i in range(m)]  # fmt: skip
        orders = patterns[[_relabel(m, tuple(sorted(range(m), key=key.__getitem__)))]]
    blocks = _patterns(min(map(tuple, orders.tolist())), a)
    return blocks.mean() if m <= ALL_ORDERS else blocks


@lru_cache(maxsize=16)
def _relabelled(m: int) -> NDArray[np.int64]:
    """Return (m!, 2^m): where each pattern's count stands when the answers are put into another order."""
    return np.array([_relabel(m, order) for order in itertools.permutations(range(m))])


def _relabel(m: int, order: tuple[int, ...]) -> list[int]:
    return [sum(1 << place for position, place in enumerate(order) if code >> position & 1) for code in range(1 << m)]


@lru_cache(maxsize=1 << 16)
def _patterns(counts: tuple[int, ...], a: float) -> Array:
    """Return (BLOCKS,) estimates of E max_i of the weight that answer i passes; equal ones where it is exact.

    Args:
        counts: tests by pattern; bit i of the index tells whether answer i passes.
        a: Dirichlet parameter of each test.
    """
    m, k = len(counts).bit_length() - 1, sum(counts)
    always = counts[-1]
    codes = [code for code in range(1, len(counts) - 1) if counts[code]]
    if m == 2:
        p, q = max(counts[1], counts[2]), min(counts[1], counts[2])
        best = p * (1 - betainc(a * p + 1, a * q, 0.5)) + q * betainc(a * p, a * q + 1, 0.5)
        return np.full(BLOCKS, float((always + best) / k))
    weights = np.stack([_gammas(a * counts[code], place) for place, code in enumerate(codes)])
    passing = np.array([[code >> i & 1 for code in codes] for i in range(m)], dtype=float)
    part = sum(counts[code] for code in codes)
    shares = (passing @ weights).max(axis=0) / weights.sum(axis=0)
    best = shares.reshape(BLOCKS, -1).mean(axis=1) * part
    least = max(float(row @ [counts[code] for code in codes]) for row in passing)
    bounded = best + (min(max(float(best.mean()), least), part) - best.mean())
    blocks: Array = (always + bounded) / k
    return blocks


@lru_cache(maxsize=4096)
def _gammas(shape: float, dimension: int) -> Array:
    """Return (PATTERN_POINTS,) quasi-random Gamma(shape) numbers, the quantiles of one dimension's Sobol points."""
    uniform = (np.argsort(np.argsort(_sobol(dimension + 1, PATTERN_POINTS)[:, dimension])) + 0.5) / PATTERN_POINTS
    quantiles: Array = gammaincinv(shape, uniform)
    return np.maximum(quantiles, 1e-300)


@lru_cache(maxsize=64)
def dirichlet(k: int, a: float, points: int) -> Array:
    """Return (k, points) Dir(a 1_k) weights: columns add up to 1, rows have the mean 1 / k, so that one answer is its mean.

    Raises:
        ValueError: points is no power of two, or less than 2 `BLOCKS`.
    """
    if points < 2 * BLOCKS or points & (points - 1):
        raise ValueError(f"points must be a power of two of at least {2 * BLOCKS}, not {points}")
    uniform = _sobol(k, points)
    weights = -np.log1p(-uniform) if a == 1 else gammaincinv(a, uniform)
    return np.ascontiguousarray(_balanced(weights, np.full(k, 1 / k)).T)


@lru_cache(maxsize=64)
def _sobol(dimensions: int, points: int) -> Array:
    """Return fixed scrambled Sobol points strictly inside the unit cube."""
    uniform: Array = qmc.Sobol(dimensions, scramble=True, rng=np.random.default_rng(0)).random(points)
    return np.clip(uniform, 1e-12, 1 - 1e-12)


def _balanced(weights: Array, means: Array, rounds: int = 500) -> Array:
    """Scale rows to the sum 1 and columns to their means, in turn (Sinkhorn), until both hold to 1e-13."""
    weights = np.maximum(weights, 1e-300)
    for _ in range(rounds):
        weights = weights / weights.sum(axis=1, keepdims=True)
        have = weights.mean(axis=0)
        if np.abs(have - means).max() < 1e-13:
            break
        weights = weights * (means / have)
    balanced: Array = weights / weights.sum(axis=1, keepdims=True)
    return balanced
