"""How far off a mean over problems may be: a BCa bootstrap, and never less than is safe.

Problems are few and skewed, so their part is a BCa bootstrap; where the data lie near an end of
their range, few problems carry the variance or most have one value, it is at least as wide as
Gaffke's interval, which supposes nothing but the range and is Clopper and Pearson's for shares of
0 and 1. The samples of a problem are never resampled.

Of differences, with a range or without, each arm over problems is at least Student's as well:

    arm = max(BCa's arm, t_{P - 1} s_p / sqrt(P)).

Differences of two methods that differ by chance are symmetric, so Student's t holds. BCa corrects
for the skewness of the sample, and that goes with its mean: the covariance of a mean and a third
moment is (mu_4 - 3 sigma^4) / P (Cramer 1946, 27.4), positive for heavy tails. The correction
then shortens the arm towards 0. Where differences are skewed, its longer arm is needed and stays.
"""

from __future__ import annotations

from functools import lru_cache

import numpy as np
from scipy.special import ndtr, ndtri, stdtrit

FEW, ENOUGH = 3.0, 5.0
"""Where fewer problems than FEW carry the variance, the bootstrap does not know the tail, and
Gaffke's interval stands for it; from ENOUGH on it does. Between them the ends move from one
interval to the other in proportion, so that no end jumps when one sample changes."""

Interval = tuple[np.ndarray, np.ndarray]
Ends = tuple[float, float]


def arms_over_problems(by_problem: np.ndarray, draws: int, ends: Ends | None) -> np.ndarray:
    """Squared arms of the 95 % interval over problems `[P, K]`, in units of Student's quantile.

    Below and above the mean, `[2, K]`. A range on both sides of 0 is that of differences; without
    one it is infinite, or None for what is no difference.
    """
    mean = by_problem.mean(axis=0)
    low, high = _bca(by_problem, draws)
    if ends is not None and np.isfinite(ends).all():
        weight = np.clip((ENOUGH - _carriers(by_problem, ends)) / (ENOUGH - FEW), 0.0, 1.0)
        if (few := weight > 0).any():
            lowest, highest = _gaffke(by_problem[:, few], ends, draws)
            low[few] += weight[few] * np.minimum(lowest - low[few], 0.0)
            high[few] += weight[few] * np.maximum(highest - high[few], 0.0)
    arms = np.stack([mean - low, high - mean]) / stdtrit(len(by_problem) - 1, 0.975)
    if ends is not None and ends[0] < 0.0 < ends[1]:
        arms = np.maximum(arms, by_problem.std(axis=0, ddof=1) / np.sqrt(len(by_problem)))
    return np.maximum(arms, 0.0) ** 2


def _carriers(by_problem: np.ndarray, ends: Ends) -> np.ndarray:
    """How many problems carry the distance from 0, or from an end if that is nearer.

    (sum d^2)^2 / sum d^4: n where n of the distances d are equal and the others 0. Where most
    problems have one value, as half of two samples, no more than those that have another.
    """
    squares = (by_problem - np.array([0.0, *ends])[:, None, None]) ** 2
    counts = squares.sum(axis=1) ** 2 / np.maximum((squares**2).sum(axis=1), 1e-300)
    others = (np.abs(by_problem - np.median(by_problem, axis=0)) > 1e-12).sum(axis=0)
    fewest = np.where(2 * others < len(by_problem), others, np.inf)
    return np.minimum(np.min(counts, axis=0), fewest)


def _gaffke(by_problem: np.ndarray, ends: Ends, draws: int) -> Interval:
    """95 % interval of the mean of independent values within `ends` (Gaffke 2005).

    Weights of the problems and of one more at the far end are drawn from a flat Dirichlet
    distribution. For shares of 0 and 1 this is Clopper and Pearson's; of P values all at the
    upper end u it reaches down to u - (u - l) (1 - 0.025^(1 / P)), l the lower end.
    """
    weights = _dirichlet(len(by_problem), draws)
    means, rest = weights[:, :-1] @ by_problem, weights[:, -1:]
    low, high = (
        np.quantile(means + rest * end, place, axis=0)
        for end, place in zip(ends, (0.025, 0.975), strict=True)
    )
    return low, high


def _bca(by_problem: np.ndarray, draws: int) -> Interval:
    """95 % BCa interval (Efron 1987) of the mean of `[P, K]`, with Student's quantiles.

    The bootstrap's variance is (P - 1) / P of the sample's; both corrections vanish as P grows.
    """
    problems = len(by_problem)
    mean = by_problem.mean(axis=0)
    means = np.sort(_weights(problems, draws) @ by_problem, axis=0)
    below = (means < mean - 1e-12).mean(axis=0)
    within = (means <= mean + 1e-12).mean(axis=0)
    bias = ndtri(np.clip((below + within) / 2.0, 1.0 / draws, 1.0 - 1.0 / draws))
    deviations = by_problem - mean
    spread = (deviations**2).sum(axis=0)
    skew = (deviations**3).sum(axis=0) / np.maximum(6.0 * spread**1.5, 1e-300)
    reach = stdtrit(problems - 1, 0.975) * np.sqrt(problems / (problems - 1))
    shifted = bias + np.array([[-reach], [reach]])
    place = ndtr(bias + shifted / (1.0 - skew * shifted))
    rank = np.clip((np.nan_to_num(place) * draws).astype(int), 0, draws - 1)
    # Where problems do not differ, the last digits are all the bootstrap could order.
    low, high = np.where(spread <= 1e-24, mean, np.take_along_axis(means, rank, axis=0))
    return low, high


@lru_cache(maxsize=4)
def _weights(problems: int, draws: int) -> np.ndarray:
    """Shares of each problem in each resample, `[draws, P]`; the same for every mean."""
    drawn = np.random.default_rng(0).multinomial(problems, [1.0 / problems] * problems, draws)
    return drawn / problems


@lru_cache(maxsize=4)
def _dirichlet(problems: int, draws: int) -> np.ndarray:
    """Flat Dirichlet weights of the problems and one more, `[draws, P + 1]`."""
    return np.random.default_rng(0).dirichlet(np.ones(problems + 1), draws)
