"""Intervals and p-values of means over problems and training runs, for 40 to 500 problems.

Problems and training runs are both a sample of those there could be, and their variances add.
With s_p^2 the variance over problems (of means over runs), s_r^2 over runs (of means over
problems) and s_e^2 that of what neither explains, the mean over P problems and S runs has

    SE^2 = s_p^2 / P + s_r^2 / S - s_e^2 / (S P),  at least the larger of the first two,
    df = SE^2 / (s_p^2 / (P (P - 1)) + s_r^2 / (S (S - 1))),

at least the smaller of P - 1 and S - 1: without s_e the harmonic mean of both, weighted by the
variances. Satterthwaite's degrees of freedom weigh by their squares. Estimated from few runs these
are too many: where runs spread two or three times as much as problems, 5.6 % of intervals miss a
difference of 0 with five runs, 5.4 % with four or seven; with those above at most 5.0 % do.

A single run has the first term alone, and its interval is about that very run on other problems.
The part of the problems is a bootstrap (`sage.evaluation.bootstrap`).

Problems may come in groups (`Groups`). Clusters were drawn, and others could have been: all of the
above is then over clusters, and never narrower than over problems. Strata are fixed, and each has
the problems that it would have again: what differs between them is no uncertainty.
`python -m benchmarks calibration` measures coverage and false verdicts.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import lru_cache

import numpy as np
from scipy.special import expit, logit, nctdtrinc, ndtri, stdtr, stdtrit

from sage.evaluation.bootstrap import MANY, Ends, Interval, arms_over_problems, in_blocks

POWER = 0.8
"""The smallest detectable difference is found by this share of such studies."""

_COLUMNS = 64  # of values at a time, which bounds memory

SHARES: Ends = (0.0, 1.0)
DIFFERENCES: Ends = (-1.0, 1.0)
ANY_DIFFERENCES: Ends = (-math.inf, math.inf)


@dataclass(frozen=True)
class Groups:
    """Labels `[P]` of problems: of clusters, which were `drawn`, or of strata, which are fixed."""

    labels: tuple[str, ...]
    drawn: bool

    def applied(self, values: np.ndarray) -> tuple[np.ndarray, int]:
        """Values `[S, U, K]` whose variance is that of the mean of `values` `[S, P, K]`, and U'.

        The U units behave as independent problems, with U' - 1 degrees of freedom. A cluster is a
        unit: the mean plus (G / P) times the sum of its problems' deviations, of G clusters (the
        sandwich of a mean; with clusters of one size their means). Within H strata problems deviate
        from their stratum's mean, times sqrt((P - 1) / P * P_h / (P_h - 1)), P_h those of the
        stratum. A run's mean stays as it is.
        """
        _, place, sizes = np.unique(self.labels, return_inverse=True, return_counts=True)
        problems, groups = len(place), len(sizes)
        mean = values.mean(axis=1, keepdims=True)
        member = (place == np.arange(groups)[:, None]).astype(float)
        sums = np.einsum("gp,spk->sgk", member, values - mean)
        if self.drawn:
            return mean + sums * groups / problems, groups
        within = values - mean - (sums / sizes[:, None])[:, place]
        scale = np.sqrt((problems - 1) / problems * sizes / (sizes - 1))[place]
        return mean + within * scale[:, None], problems - groups + 1


def groups_of(clusters: Sequence[str], strata: Sequence[str]) -> Groups | None:
    """The groups of problems: clusters where there are any, else strata of two problems or more.

    A problem without a cluster is one of its own.
    """
    if any(clusters):
        return Groups(tuple(name or f" {i}" for i, name in enumerate(clusters)), drawn=True)
    sizes = Counter(strata)
    if "" in sizes or len(sizes) < 2 or min(sizes.values()) < 2:
        return None
    return Groups(tuple(strata), drawn=False)


@dataclass(frozen=True)
class Parts:
    """Where the variance of a mean over `[S, P, K]` comes from; arrays `[K]` but for `by_run`.

    `by_run` `[S, K]` are the runs' means. `problems` is s_p^2 / P and `interaction`
    s_e^2 / (S P). `below` and `above` stand for `problems` on the two sides of the mean: the
    squared arms of the interval over problems in units of Student's quantile. `units` are the
    problems, clusters or what strata leave, one more than the degrees of freedom.
    """

    by_run: np.ndarray
    problems: np.ndarray
    interaction: np.ndarray
    below: np.ndarray
    above: np.ndarray
    units: int


Spread = tuple[np.ndarray, np.ndarray, np.ndarray | float]
"""Variances `[K]` below and above a mean, and their degrees of freedom."""


@dataclass(frozen=True)
class Estimate:
    """A mean `[K]` with its variance, in all and by problems and runs alone; `by_run` `[S, K]`.

    Few runs may agree by chance, so an interval is never narrower, and a p never smaller, than
    problems or runs alone would have it.
    """

    value: np.ndarray
    by_run: np.ndarray
    total: Spread
    problems: Spread
    runs: Spread

    @property
    def df(self) -> np.ndarray:
        """The degrees of freedom of the total variance, `[K]`."""
        return np.asarray(self.total[2])

    def interval(self, level: float = 0.95) -> Interval:
        """Ends of the interval at `level`, `[K]` each."""
        place = 0.5 + level / 2.0
        arms = [
            [stdtrit(df, place) * np.sqrt(side) for side in sides]
            for *sides, df in (self.total, self.problems, self.runs)
        ]
        below, above = np.max(arms, axis=0)
        return self.value - below, self.value + above

    def p(self, null: float = 0.0) -> np.ndarray:
        """Two-sided p of mean `null` by Student's t, `[K]`; NaN where the mean is NaN."""
        distance, values = self.value - null, []
        for below, above, df in (self.total, self.problems, self.runs):
            with np.errstate(divide="ignore", invalid="ignore"):  # the arm that reaches to `null`
                ratio = np.abs(distance) / np.sqrt(np.where(distance < 0, above, below))
            values.append(2.0 * stdtr(df, -np.where(distance == 0, 0.0, ratio)))
        return np.where(np.isnan(distance), np.nan, np.max(values, axis=0))


def parts_of(
    values: np.ndarray, draws: int, ends: Ends | None = DIFFERENCES, groups: Groups | None = None
) -> Parts:
    """The parts of the variance of the mean of `values` `[S, P, K]` (runs, problems).

    `ends` is the range that values can have, None where there is none (ANY_DIFFERENCES for
    differences). All is NaN with one problem or cluster. Raises ValueError for values of another
    shape.
    """
    values = np.asarray(values, dtype=float)
    if values.ndim != 3 or 0 in values.shape:
        raise ValueError(f"values of shape {values.shape}, not [runs, problems, K]")
    if groups is not None:
        units, count = groups.applied(values)
        parts = replace(parts_of(units, draws, ends), units=count)
        return _wider(parts, parts_of(values, draws, ends)) if groups.drawn else parts
    runs, problems, columns = values.shape
    by_run, by_problem = values.mean(axis=1), values.mean(axis=0)
    if problems < 2:
        unknown = np.full(columns, np.nan)
        return Parts(by_run, unknown, unknown, unknown, unknown, problems)
    variance = by_problem.var(axis=0, ddof=1) / problems
    interaction = np.zeros(columns)
    if runs > 1:
        rest = values - by_run[:, None] - by_problem + by_problem.mean(axis=0)
        interaction = (rest**2).sum(axis=(0, 1)) / ((runs - 1) * (problems - 1) * runs * problems)
    sides = [
        arms_over_problems(by_problem[:, start : start + _COLUMNS], draws, ends)
        for start in range(0, columns, _COLUMNS)
    ]
    below, above = np.concatenate(sides, axis=1)
    return Parts(by_run, variance, interaction, below, above, problems)


def _wider(parts: Parts, other: Parts) -> Parts:
    """`parts`, with no less variance over problems than `other`."""
    larger = {
        name: np.maximum(getattr(parts, name), getattr(other, name))
        for name in ("problems", "below", "above")
    }
    return replace(parts, **larger, interaction=np.minimum(parts.interaction, other.interaction))


def mean_of(parts: Sequence[Parts], bounded: bool = False) -> Estimate:
    """The estimate of the mean over some benchmarks, each of which counts the same.

    The runs are those of the same policies on every benchmark, so their means are averaged run by
    run; problems are others, so their variances add. `bounded` takes runs on the logit scale, for
    shares. Raises ValueError if benchmarks have different numbers of runs.
    """
    if len({part.by_run.shape for part in parts}) != 1:
        raise ValueError(f"benchmarks with {[len(part.by_run) for part in parts]} runs")
    by_run = np.mean([part.by_run for part in parts], axis=0)
    value, count = by_run.mean(axis=0), len(by_run)
    problems, interaction, below, above = (
        np.sum([getattr(part, name) for part in parts], axis=0) / len(parts) ** 2
        for name in ("problems", "interaction", "below", "above")
    )
    runs = by_run.var(axis=0, ddof=1) / count if count > 1 else np.zeros_like(value)
    df_problems = float(max(min(part.units for part in parts) - 1, 1))
    df_runs = float(max(count - 1, 1))

    def total(problems: np.ndarray, runs: np.ndarray) -> np.ndarray:
        least: np.ndarray = np.maximum(problems, runs)
        return np.maximum(problems + runs - interaction, least)

    loss = problems / df_problems + runs / df_runs
    with np.errstate(divide="ignore", invalid="ignore"):
        df = np.where(loss > 0, total(problems, runs) / loss, df_problems)
    df = np.maximum(df, min(df_problems, df_runs) if count > 1 else df_problems)
    down, up = _runs_on_logit_scale(value, runs, df) if bounded else (runs, runs)
    return Estimate(
        value,
        by_run,
        total=(total(below, down), total(above, up), df),
        problems=(below, above, df_problems),
        runs=(down, up, df_runs),
    )


def parts_of_share(values: np.ndarray, draws: int, groups: Groups | None = None) -> Parts:
    """`parts_of` shares, which strata do not narrow: one of all 0 or all 1 has no spread to see."""
    return parts_of(values, draws, SHARES, groups if groups and groups.drawn else None)


def interval_of_share(values: np.ndarray, draws: int, groups: Groups | None = None) -> Interval:
    """95 % interval of the mean of `values` `[S, P, K]` in [0, 1] over runs and problems.

    Returns its lower and upper ends, `[K]` each, which stay within [0, 1]: runs are compared
    on the logit scale. With a single problem it is NaN.
    """
    return ends_of_share(mean_of([parts_of_share(values, draws, groups)], bounded=True))


def ends_of_share(estimate: Estimate) -> Interval:
    """Ends of the 95 % interval of a share, within [0, 1]."""
    low, high = estimate.interval()
    # Means of equal numbers differ in their last digit; an interval holds its own mean.
    return np.clip(low, 0.0, estimate.value), np.clip(high, estimate.value, 1.0)


def interval_of_difference(
    values: np.ndarray, draws: int, groups: Groups | None = None
) -> Interval:
    """As `interval_of_share`, for paired differences `[S, P, K]` in [-1, 1]."""
    low, high = mean_of([parts_of(values, draws, groups=groups)]).interval()
    return np.maximum(low, -1.0), np.minimum(high, 1.0)


def interval_of_mean(values: np.ndarray, draws: int) -> Interval:
    """As `interval_of_share`, for values `[S, P, K]` without a range of their own."""
    return mean_of([parts_of(values, draws, None)]).interval()


def detectable(low: float, high: float, value: float, df: float) -> float:
    """The smallest difference that a study of this precision finds in 80 % of cases.

    In standard errors, after the longer arm of the 95 % interval [low, high], it is where the
    noncentral t is above t_{0.975} with probability POWER; infinite degrees of freedom are the
    normal distribution.
    """
    reach = student(df, 0.975)
    away = reach + student(df, POWER) if math.isinf(df) else float(nctdtrinc(df, 1 - POWER, reach))
    return max(high - value, value - low) * away / reach


def student(df: float, place: float) -> float:
    """Student's quantile; the normal one for infinite degrees of freedom."""
    return float(ndtri(place) if math.isinf(df) else stdtrit(df, place))


def p_of_distance(distance: float, error: float, df: float) -> float:
    """Two-sided p of a `distance` with a standard error, by Student's t."""
    if error == 0:
        return 1.0 if distance == 0 else 0.0
    return 2.0 * float(stdtr(df, -abs(distance) / error))


def p_of_problems(differences: np.ndarray, draws: int) -> np.ndarray:
    """Two-sided sign-flip permutation p of mean difference 0, `[S, P, K]` to `[K]`.

    A problem's differences are averaged over runs and flip together. It takes these very runs
    as given; at least 1 / (draws + 1), and NaN where a difference is.
    """
    by_problem = np.asarray(differences).mean(axis=0)
    if len(by_problem) <= MANY:
        flipped = _signs(len(by_problem), draws) @ by_problem
    else:
        flipped = in_blocks(_flips, by_problem, draws)
    observed = np.abs(by_problem.sum(axis=0))
    # The same numbers summed in another order are no smaller than the observed sum.
    as_large = (np.abs(flipped) >= observed - 1e-9).sum(axis=0)
    return np.where(np.isnan(observed), np.nan, (as_large + 1) / (draws + 1))


def _flips(rng: np.random.Generator, sizes: np.ndarray, draws: int) -> np.ndarray:
    return 2 * rng.binomial(sizes, 0.5, (draws, len(sizes))) - sizes


def p_of_runs(differences: np.ndarray) -> np.ndarray:
    """Two-sided p of mean difference 0 by Student's t over the runs' means, `[S, P, K]` to `[K]`.

    NaN with a single run, and where a difference is. Flipping the signs of whole runs would be
    exact, but has only 2^S outcomes: with three runs no p below 0.25.
    """
    by_run = np.asarray(differences).mean(axis=1)
    runs = len(by_run)
    if runs < 2:
        return np.full(by_run.shape[1], np.nan)
    error = by_run.std(axis=0, ddof=1) / np.sqrt(runs)
    mean = np.abs(by_run.mean(axis=0))
    with np.errstate(divide="ignore", invalid="ignore"):
        p: np.ndarray = 2.0 * stdtr(runs - 1, -np.where(mean == 0, 0.0, mean / error))
    return p


def holm(p: np.ndarray) -> np.ndarray:
    """Holm's adjustment of a family of p-values `[N]`; a NaN stays one and counts as no test."""
    p = np.asarray(p, dtype=float)
    adjusted = np.full_like(p, np.nan)
    tested = np.flatnonzero(~np.isnan(p))
    order = tested[np.argsort(p[tested], kind="stable")]
    steps = p[order] * (len(order) - np.arange(len(order)))
    adjusted[order] = np.minimum(np.maximum.accumulate(steps), 1.0)
    return adjusted


def _runs_on_logit_scale(value: np.ndarray, runs: np.ndarray, df: np.ndarray) -> Interval:
    """Variances below and above that stand for `runs`, of a share `value`."""
    quantile = stdtrit(df, 0.975)
    inner = np.clip(value, 1e-12, 1.0 - 1e-12)
    reach = quantile * np.sqrt(runs) / (inner * (1.0 - inner))
    low, high = expit(logit(inner) - reach), expit(logit(inner) + reach)
    return ((inner - low) / quantile) ** 2, ((high - inner) / quantile) ** 2


@lru_cache(maxsize=4)
def _signs(problems: int, draws: int) -> np.ndarray:
    """Signs of each problem in each permutation, `[draws, P]`."""
    return np.random.default_rng(0).integers(0, 2, (draws, problems)) * 2.0 - 1.0
