"""Two curves of pass@k compared at all k at once: a band, and where one falls below the other.

At one k the interval of `sage.evaluation.intervals` holds the difference in 95 % of studies; at
some of many k it misses more often. The band is as much wider as it needs to be to hold the whole
curve (sup-t; Montiel Olea and Plagborg-Moller 2019). Differences at neighbouring k are nearly the
same number, so this is much less than Bonferroni's correction.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import combinations

import numpy as np
import pandas as pd
from scipy.special import stdtr

from sage.evaluation.bootstrap import MANY, in_blocks
from sage.evaluation.curves import curves_of, paired_runs
from sage.evaluation.intervals import Groups, mean_of, parts_of
from sage.evaluation.pass_at_k import pass_at_k, powers_of_two

Counts = tuple[np.ndarray, int]
"""Correct samples `[S, P]` of each run and problem, out of how many."""

LEVEL = 0.95

_MULTIPLIERS = 4_000
"""Draws of the largest deviation: the standard error of its 95 % quantile is about 1 %."""


@dataclass(frozen=True)
class CurveBand:
    """pass@k of one method minus that of another: `value`, `low` and `high` `[K]` at `ks` `[K]`.

    In 95 % of studies the band holds the difference at all `ks` together. `first` is the smallest k
    with a value below 0. That of the true curve is from `first_low` (the first k where
    the band reaches below 0) to `first_high` (the first where all of it is); None: at no k.
    """

    ks: np.ndarray
    value: np.ndarray
    low: np.ndarray
    high: np.ndarray
    first: int | None
    first_low: int | None
    first_high: int | None

    @classmethod
    def around(
        cls, ks: np.ndarray, value: np.ndarray, low: np.ndarray, high: np.ndarray
    ) -> CurveBand:
        """The band with these ends."""
        first = (int(ks[end < 0].min()) if (end < 0).any() else None for end in (value, low, high))
        return cls(ks, value, low, high, *first)

    def turned(self) -> CurveBand:
        """The band of the other method minus the one."""
        return self.around(self.ks, -self.value, -self.high, -self.low)


def curve_band(
    one: Counts, other: Counts, ks: np.ndarray, draws: int, groups: Groups | None = None
) -> CurveBand:
    """The band of pass@k of `one` minus `other`, over further problems and runs.

    Problems are paired, and so are runs. With one run of both the band is about these runs alone.
    `draws` are those of the bootstrap over problems; `groups` are clusters or strata of them.
    Raises ValueError for counts that are not within the samples, and for a k above them.
    """
    values, others = (pass_at_k(n, correct, ks) for correct, n in (one, other))
    differences = values - others
    estimate = mean_of([parts_of(differences, draws, groups=groups)])
    low, high = estimate.interval(_pointwise(differences, estimate.df, groups))
    ends = np.maximum(low, -1.0), np.minimum(high, 1.0)
    return CurveBand.around(ks, estimate.value, *ends)


def bands_of(counts: pd.DataFrame, draws: int) -> dict[tuple[str, str, str, str], CurveBand]:
    """The band of every pair of methods by model, benchmark, method and other method.

    `counts` are those of `sage.evaluation.counts`, pairs and their order those of the comparisons;
    runs are paired by training seed. The ks go up to the fewer samples of the two: every power of
    two, and a hundred at equal ratios, rounded.
    """
    bands = {}
    for (one, of_one), (two, of_two) in combinations(curves_of(counts).items(), 2):
        if one[::2] == two[::2]:
            _, *places = paired_runs((two[1], of_two.seeds), (one[1], of_one.seeds))
            pair = ((of_two.correct[places[0]], of_two.n), (of_one.correct[places[1]], of_one.n))
            ks = ks_up_to(min(of_one.n, of_two.n))
            band = curve_band(*pair, ks, draws, of_one.groups)
            bands[one[0], one[2], two[1], one[1]] = band
    return bands


def ks_up_to(n: int) -> np.ndarray:
    """Powers of two, and a hundred k from 1 to n at equal ratios, rounded."""
    even = np.rint(np.geomspace(1, n, 100)).astype(int)
    return np.union1d(even, powers_of_two(n))


def _pointwise(differences: np.ndarray, df: np.ndarray, groups: Groups | None) -> float:
    """The level at each k that gives all of them together LEVEL.

    The deviations of problems and of runs are drawn with normal multipliers, and their sum is
    divided by its own deviation at each k, and by one chi for all k (Student's t, fewest degrees
    of freedom). A few runs seem to move all k alike whatever they do, so what problems alone ask
    for is the least.
    """
    rng, draws = np.random.default_rng(0), _MULTIPLIERS
    units = differences if groups is None else groups.applied(differences)[0]
    total = np.zeros((draws, differences.shape[2]))
    freedom = max(float(np.nanmin(df)), 1.0)
    chi = np.sqrt(rng.chisquare(freedom, (draws, 1)) / freedom)
    reach = 0.0
    for means in (units.mean(axis=0), differences.mean(axis=1)):  # of problems, of runs
        size = len(means)
        if size > 1:
            own = (means - means.mean(axis=0)) / np.sqrt(size * (size - 1))
            total = total + (
                rng.standard_normal((draws, size)) @ own
                if size <= MANY
                else in_blocks(
                    lambda rng, n, d: rng.standard_normal((d, len(n))) * np.sqrt(n), own, draws
                )
            )
        spread = total.std(axis=0)
        moving = spread > 1e-12
        if moving.any():
            largest = np.max(np.abs(total[:, moving]) / spread[moving] / chi, axis=1)
            reach = max(reach, float(np.quantile(largest, LEVEL)))
    return max(1.0 - 2.0 * float(stdtr(freedom, -reach)), LEVEL)
