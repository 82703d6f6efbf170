"""What the tests of claims find: a difference with its interval and p, place by place.

Takes frames and histories as they were measured; what follows from a finding is decided in
`sage.claims.verdicts`. A place is a benchmark, a problem or a training run.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd
from scipy.stats import fisher_exact, norm, t

from sage.analysis.dynamics import STAGES
from sage.analysis.step_times import time_ratio
from sage.study import BASE

History = Sequence[Mapping[str, Any]]


@dataclass(frozen=True)
class Finding:
    """`effect` is that of a row minus that of another; `p` is NaN where no test was made.

    `n` counts what the interval is over, named by `over`; `runs` the training runs of a row that
    it rests on, None where it is not about trained policies.
    """

    place: str
    effect: float
    low: float
    high: float
    p: float
    n: int
    over: str
    runs: int | None = None


def of_pass_at_k(
    comparisons: pd.DataFrame,
    model: str,
    benchmarks: Sequence[str],
    row: str,
    other: str,
    k: int | None,
    most: int,
) -> list[Finding]:
    """Differences of pass@k from `metrics/comparisons.parquet`, one per benchmark that has it.

    `k` None is the largest up to `most`. The p is the larger of that over problems and that over
    training runs.
    """
    found = []
    for benchmark in benchmarks:
        here = comparisons[
            (comparisons["model"] == model)
            & (comparisons["benchmark"] == benchmark)
            & (comparisons["metric"] == "pass@k")
        ]
        forward = here[(here["algorithm"] == row) & (here["other"] == other)]
        backward = here[(here["algorithm"] == other) & (here["other"] == row)]
        rows, sign = (forward, 1) if len(forward) else (backward, -1)
        ks = [int(value) for value in rows["k"] if value <= most]
        wanted = k if k is not None else max(ks, default=0)
        for one in rows[rows["k"] == wanted].to_dict("records"):
            low, high = sorted((sign * one["low"], sign * one["high"]))
            effect, p = sign * float(one["value"]), float(one["p"])
            size = int(one["n_problems"])
            over = "problems" if k is not None else f"problems, k = {wanted}"
            runs = int(one["n_seeds"])
            found.append(Finding(benchmark, effect, low, high, p, size, over, runs))
    return found


def of_patterns(table: pd.DataFrame, pattern: str, row: str, other: str) -> list[Finding]:
    """The difference of a pattern's pooled shares, from the exhibit's metrics.

    The interval joins those of the two shares (method of variance estimates recovery), as if
    rows were independent; on the same problems that is too wide rather than too narrow. A share
    of 0 or 1, which has no interval, gets the exact binomial one over problems. No p.
    """
    rows = table[table["pattern"] == pattern].to_dict("records")
    shares = {str(found["algorithm"]): found for found in rows}
    if not {row, other} <= set(shares):
        return []
    one, two = (_share(shares[name]) for name in (row, other))
    if math.isnan(one[0] + two[0]):
        return []
    low, high = _joined(one, two)
    size = min(int(shares[name]["n_problems"]) for name in (row, other))
    benchmark, effect = str(shares[row]["benchmark"]), one[0] - two[0]
    runs = min(int(shares[name]["n_runs"]) for name in {row, other} - {BASE})
    return [Finding(benchmark, effect, low, high, math.nan, size, "problems", runs)]


def of_tails(perplexities: pd.DataFrame, row: str, other: str, level: float) -> list[Finding]:
    """Responses above the base's `level` quantile of perplexity: a finding per problem.

    Each speaks of that problem and of one training run alone: Fisher's exact test and Newcombe's
    interval over responses.
    """
    found = []
    for problem, frame in perplexities.groupby("problem_id", sort=False):
        by_row = dict(tuple(frame.groupby("algorithm")["perplexity"]))
        if not {row, other, BASE} <= set(by_row):
            continue
        bound = by_row[BASE].quantile(level)
        counts = [(int((by_row[name] > bound).sum()), len(by_row[name])) for name in (row, other)]
        one, two = (_wilson(*count) for count in counts)
        low, high = _joined(one, two)
        p = float(fisher_exact([[above, size - above] for above, size in counts]).pvalue)
        size = min(size for _, size in counts)
        effect = one[0] - two[0]
        found.append(Finding(str(problem), effect, low, high, p, size, "responses", 1))
    return found


def of_histories(
    ours: Mapping[int, History],
    theirs: Mapping[int, History],
    key: str,
    stage: str | None = None,
    relative: bool = False,
) -> list[Finding]:
    """A recorded quantity of two rows' runs by training seed, paired by seed, means over steps.

    The interval is Student's t over runs. The steps of one run depend on each other and on its
    seed, so a single run has an effect and neither interval nor p. `relative` gives the ratio
    minus one, over runs the geometric mean; nothing is found where a mean is 0, for then there is
    none. `stage` takes a third of training, one of STAGES.
    """
    contrasts = []
    for seed in sorted(set(ours) & set(theirs)):
        one, two = (_series(runs[seed], key) for runs in (ours, theirs))
        steps = min(len(one), len(two))
        part = np.arange(steps)
        if stage is not None and steps >= len(STAGES):
            part = np.array_split(part, len(STAGES))[STAGES.index(stage)]
        if steps:
            means = one[part].mean(), two[part].mean()
            if relative and min(means) <= 0:
                return []
            ends = np.log(means) if relative else means
            contrasts.append(float(ends[0] - ends[1]))
    if not contrasts:
        return []
    effect, (low, high, p) = float(np.mean(contrasts)), _student(np.array(contrasts))
    if relative:
        effect, low, high = (math.expm1(value) for value in (effect, low, high))
    runs = len(contrasts)
    over = "training runs" if runs > 1 else "training run"
    return [Finding("", effect, low, high, p, runs, over, runs)]


def of_step_times(times: pd.DataFrame, row: str, other: str) -> list[Finding]:
    """What a row's guide costs over another row, as a ratio minus one; nothing if not timed."""
    if not {row, other} <= set(times["algorithm"]):
        return []
    cost = time_ratio(times, row, other)
    over = "rounds on one machine"
    return [Finding("", cost.excess, cost.low, cost.high, cost.p, cost.rounds, over)]


def _series(history: History, key: str) -> np.ndarray:
    """The quantity by step; empty if a step lacks it."""
    if not all(key in row for row in history):
        return np.empty(0)
    return np.array([float(row[key]) for row in history])


def _student(values: np.ndarray) -> tuple[float, float, float]:
    """95 % interval of the mean and p of mean 0; NaN below two values."""
    if len(values) < 2:
        return math.nan, math.nan, math.nan
    mean, error = values.mean(), values.std(ddof=1) / math.sqrt(len(values))
    if error == 0:
        return float(mean), float(mean), 1.0 if mean == 0 else 0.0
    half = float(t.ppf(0.975, len(values) - 1)) * error
    p = 2 * float(t.sf(abs(mean / error), len(values) - 1))
    return float(mean - half), float(mean + half), p


def _share(row: Mapping[Any, Any]) -> tuple[float, float, float]:
    value, low, high = (float(row[name]) for name in ("pooled", "low", "high"))
    size = max(int(row["n_problems"]), 1)
    slack = 1.0 - 0.025 ** (1.0 / size)
    if value == 0.0:
        return 0.0, 0.0, slack
    return (1.0, 1.0 - slack, 1.0) if value == 1.0 else (value, low, high)


def _wilson(count: int, size: int) -> tuple[float, float, float]:
    z = float(norm.ppf(0.975))
    share = count / size
    middle = (share + z**2 / (2 * size)) / (1 + z**2 / size)
    half = z / (1 + z**2 / size) * math.sqrt(share * (1 - share) / size + z**2 / (4 * size**2))
    return share, max(0.0, middle - half), min(1.0, middle + half)


def _joined(
    one: tuple[float, float, float], two: tuple[float, float, float]
) -> tuple[float, float]:
    """Interval of a difference from those of its two parts (Newcombe 1998)."""
    effect = one[0] - two[0]
    below = math.hypot(one[0] - one[1], two[2] - two[0])
    above = math.hypot(one[2] - one[0], two[0] - two[1])
    return effect - below, effect + above
