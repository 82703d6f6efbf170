"""What the tests of claims find: a difference with its interval and p, place by place.

Takes frames and histories as they were measured; what follows from a finding is decided in
`sage.claims.verdicts`. A place is a benchmark, or the average over several.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

import numpy as np
import pandas as pd

from sage.evaluation.comparisons import average
from sage.evaluation.curves import ANSWERS, WORKING
from sage.evaluation.histories import STAGES, History
from sage.evaluation.intervals import (
    Estimate,
    detectable,
    mean_of,
    p_of_distance,
    parts_of,
    student,
)
from sage.exhibits.distinct import Quantity, estimated
from sage.exhibits.patterns import shares_compared
from sage.exhibits.perplexity_of_responses import tail_shares
from sage.rendering.labels import AVERAGE
from sage.study import BASE

Pair = tuple[Any, ...]


@dataclass(frozen=True)
class Finding:
    """`effect` is that of a row minus that of another; `p` is NaN where no test was made.

    `low` and `high` are its 95 % interval, `low_90` and `high_90` its 90 % one; `detectable` is
    the smallest difference that such a study finds in 80 % of cases. `n` counts what the
    interval is over, named by `over`; `runs` the training runs of a row that it rests on, None
    where it is not about trained policies, and `bases` the base models that they start from.
    `by_run` are the effects of single runs, or of bases if there are several.
    """

    place: str
    effect: float
    low: float
    high: float
    p: float
    n: int
    over: str
    runs: int | None = None
    low_90: float = math.nan
    high_90: float = math.nan
    detectable: float = math.nan
    bases: int = 1
    by_run: tuple[float, ...] = ()


@dataclass(frozen=True)
class Measured:
    """What tests are run on: comparisons, metrics by exhibit, histories by model, row and seed.

    Comparisons are a frame, or its rows as `by_pair` has them; `chance` are the controls of pass@k.
    """

    comparisons: pd.DataFrame | Mapping[Pair, Mapping[Any, Any]] | None = None
    exhibits: Mapping[str, pd.DataFrame] = field(default_factory=dict)
    histories: Mapping[tuple[str, str, int], History] = field(default_factory=dict)
    chance: pd.DataFrame | None = None

    @cached_property
    def pairs(self) -> Mapping[Pair, Mapping[Any, Any]]:
        """Rows of the comparisons by model, benchmark, algorithm, other and k."""
        compared = self.comparisons
        return by_pair(compared) if isinstance(compared, pd.DataFrame) else compared or {}

    @cached_property
    def worked_pairs(self) -> Mapping[Pair, Mapping[Any, Any]]:
        """As `pairs`, of right answers with correct working; empty where nobody can check it."""
        compared = self.comparisons
        return by_pair(compared, WORKING) if isinstance(compared, pd.DataFrame) else {}

    def histories_of(self, model: str, algorithm: str) -> dict[int, History]:
        """The histories of a method by training seed."""
        runs = self.histories.items()
        return {seed: history for (*run, seed), history in runs if run == [model, algorithm]}


def by_pair(comparisons: pd.DataFrame, metric: str = ANSWERS) -> dict[Pair, dict[Any, Any]]:
    """Rows of `metrics/comparisons.parquet` by model, benchmark, algorithm, other and k."""
    keys = ("model", "benchmark", "algorithm", "other", "k")
    rows = comparisons[comparisons["metric"] == metric].to_dict("records")
    return {tuple(row[key] for key in keys): row for row in rows}


def of_pass_at_k(
    comparisons: Mapping[Pair, Mapping[Any, Any]],
    model: str,
    benchmarks: Sequence[str],
    row: str,
    other: str,
    k: int,
    null: float = 0.0,
) -> list[Finding]:
    """Differences of pass@k from the comparisons (`by_pair`): their mean, then each benchmark.

    Only training seeds (or bases) that every benchmark has count in the mean; where they have none
    in common, or a benchmark lacks the comparison, there is no finding. With one benchmark it is
    the only one.
    """
    rows, signs = [], []
    for benchmark in benchmarks:
        forward, backward = (
            comparisons.get((model, benchmark, *pair, k)) for pair in ((row, other), (other, row))
        )
        one = forward or backward
        if one is None:
            return []
        rows.append(one)
        signs.append(1 if forward else -1)
    if not set.intersection(*(set(row["train_seeds"]) for row in rows)):
        return []
    places = []
    for one, sign in zip(rows, signs, strict=True):
        size, runs = int(one["n_problems"]), int(one["n_seeds"])
        place = of_estimate(one["benchmark"], average([one], [sign]), size, "problems", runs, null)
        if not null:  # no smaller than the permutation's
            place = replace(place, p=float(one["p"]))
        places.append(replace(place, bases=int(one["n_bases"])))
    if len(places) == 1:
        return places
    mean = average(rows, signs)
    size, runs = sum(place.n for place in places), min(place.runs or 0 for place in places)
    if places[0].bases == 1:
        runs = len(mean.by_run)  # of training seeds that all have
    whole = of_estimate(AVERAGE, mean, size, "problems", runs, null)
    return [replace(whole, bases=places[0].bases), *places]


def of_patterns(
    table: pd.DataFrame, pattern: str, row: str, other: str, draws: int, null: float = 0.0
) -> list[Finding]:
    """How much more often solutions show a pattern, on problems that both rows solve."""
    rows = table[table["pattern"] == pattern].to_dict("records")
    shares = {str(one["algorithm"]): one for one in rows}
    if not {row, other} <= set(shares):
        return []
    compared = shares_compared(shares[row], shares[other], draws)
    if compared is None:
        return []
    estimate, problems, runs = compared
    benchmark = str(shares[row]["benchmark"])
    return [of_estimate(benchmark, estimate, problems, "problems both solve", runs, null)]


def of_distinct(
    table: pd.DataFrame, quantity: Quantity, row: str, other: str, draws: int, null: float = 0.0
) -> list[Finding]:
    """How many more different right completions a row has, or how much more often two differ."""
    if not {row, other} <= set(table["algorithm"]):
        return []
    found = estimated(table, row, other, quantity, draws)
    return [of_estimate("", found[0], found[1], "problems", found[2], null)] if found else []


def of_tails(
    perplexities: pd.DataFrame, row: str, other: str, level: float, draws: int, null: float = 0.0
) -> list[Finding]:
    """Responses above the base's `level` quantile of perplexity: over problems and runs.

    The quantile is of each problem by itself; runs are paired by training seed. The base is not
    compared: its share is of the responses that set the quantile, which makes it too small.
    """
    if not {row, other, BASE} <= set(perplexities["algorithm"].unique()) or BASE in (row, other):
        return []
    shares = tail_shares(perplexities, level)
    by_run = shares.pivot(index=["algorithm", "train_seed"], columns="problem_id", values="share")
    ours, theirs = (by_run.loc[[name]].droplevel("algorithm") for name in (row, other))
    values = (ours - theirs).dropna(how="all").dropna(axis="columns")  # runs and problems of both
    runs, problems = values.shape
    if values.empty:
        return []
    estimate = mean_of([parts_of(values.to_numpy()[..., None], draws)])
    benchmark = str(perplexities["benchmark"].iloc[0])
    return [of_estimate(benchmark, estimate, problems, "problems", runs, null)]


def of_histories(
    ours: Mapping[int, History],
    theirs: Mapping[int, History],
    key: str,
    stage: str | None = None,
    relative: bool = False,
    null: float = 0.0,
) -> list[Finding]:
    """A recorded quantity of two rows' runs by training seed, paired by seed, means over steps.

    Only steps in which both have a value count. The interval is Student's t over runs. The steps of
    one run depend on each other and on its seed, so a single run has an effect and neither interval
    nor p. `relative` gives the ratio minus one, over runs the geometric mean; nothing is found
    where a mean is 0, for then there is none. `stage` takes a third of training, one of STAGES.
    """
    contrasts = []
    for seed in sorted(set(ours) & set(theirs)):
        one, two = (_series(runs[seed], key) for runs in (ours, theirs))
        steps = min(len(one), len(two))
        part = np.arange(steps)
        if stage is not None and steps >= len(STAGES):
            part = np.array_split(part, len(STAGES))[STAGES.index(stage)]
        part = part[~np.isnan(one[part] + two[part])]  # steps in which nothing was scored
        if part.size:
            means = one[part].mean(), two[part].mean()
            if relative and min(means) <= 0:
                return []
            ends = np.log(means) if relative else means
            contrasts.append(float(ends[0] - ends[1]))
    if not contrasts:
        return []
    finding = _over_runs(np.array(contrasts), math.log1p(null) if relative else null)
    return [_as_ratio(finding) if relative else finding]


def of_estimate(
    place: str, estimate: Estimate, n: int, over: str, runs: int, null: float = 0.0
) -> Finding:
    """A finding from an estimate `[1]`."""
    value = float(estimate.value[0])
    (low, high), (low_90, high_90) = (
        (float(end[0]) for end in estimate.interval(level)) for level in (0.95, 0.90)
    )
    least = detectable(low, high, value, float(estimate.df[0])) if runs > 1 else math.nan
    p, by_run = float(estimate.p(null)[0]), tuple(estimate.by_run[:, 0].tolist())
    ends = low_90, high_90, least
    return Finding(place, value, low, high, p, n, over, runs, *ends, by_run=by_run)


def _series(history: History, key: str) -> np.ndarray:
    """The quantity by step; empty if a step lacks it."""
    if not all(key in row for row in history):
        return np.empty(0)
    return np.array([row[key] for row in history], dtype=float)  # None: nothing was scored


def _as_ratio(finding: Finding) -> Finding:
    """A finding about logarithms as one about the ratio minus one."""
    names = ("effect", "low", "high", "low_90", "high_90", "detectable")
    ratios: dict[str, Any] = {name: math.expm1(getattr(finding, name)) for name in names}
    return replace(finding, **ratios, by_run=tuple(map(math.expm1, finding.by_run)))


def _over_runs(values: np.ndarray, null: float) -> Finding:
    """Student's t over the runs' values; a single one has neither interval nor p."""
    runs, mean, by_run = len(values), float(values.mean()), tuple(values.tolist())
    if runs < 2:
        unknown = (math.nan,) * 3
        return Finding("", mean, *unknown, runs, "training run", runs, by_run=by_run)
    error = float(values.std(ddof=1)) / math.sqrt(runs)
    p = p_of_distance(mean - null, error, runs - 1)
    half, half_90 = (student(runs - 1, place) * error for place in (0.975, 0.95))
    least = detectable(mean - half, mean + half, mean, runs - 1)
    ends = runs, mean - half_90, mean + half_90, least
    measured = "", mean, mean - half, mean + half, p, runs, "training runs"
    return Finding(*measured, *ends, by_run=by_run)
