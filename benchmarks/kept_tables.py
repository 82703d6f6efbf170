"""The tables and numbers of kept studies, as the tables of docs/measurements.md read them."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from pathlib import Path

import pandas as pd

from sage.evaluation.curves import ANSWERS
from sage.exhibits import kept_study
from sage.rendering.numbers import interval_of_points, points
from sage.study import BASE, ResolvedStudy

KEPT = Path(__file__).parents[1] / "reports/kept"
K = 16
SEEN = ("plain", "turn")
"""The strata that RL trains on."""


@cache
def study_of(name: str) -> ResolvedStudy:
    """A kept study."""
    return kept_study(KEPT / name)


@cache
def frame(study: str, name: str) -> pd.DataFrame:
    """A kept table."""
    (file,) = (KEPT / study).glob(f"{name}.csv*")
    return pd.read_csv(file)


def difference(
    study: str, model: str, benchmark: str, row: str, other: str, k: int, metric: str = ANSWERS
) -> tuple[float, float, float] | None:
    """`row` minus `other` in pass@k, or in another `metric`, with its 95 % interval, shares.

    None where it was not kept.
    """
    table = frame(study, "comparisons")
    here = table[(table["model"] == model) & (table["benchmark"] == benchmark) & (table["k"] == k)]
    here = here[here["metric"] == metric]
    for one, two, sign in ((row, other, 1), (other, row, -1)):
        match = here[(here["algorithm"] == one) & (here["other"] == two)]
        if len(match):
            value, low, high = match.iloc[0][["value", "low", "high"]]
            return sign * value, *sorted((sign * low, sign * high))
    return None


def points_of(values: Sequence[float] | None) -> str:
    """A difference with its interval, in points."""
    if values is None:
        return "–"
    return f"{points(values[0])} ({interval_of_points(values[1], values[2])})"


def runs(study: str, model: str, benchmark: str, row: str) -> int:
    """How many training runs of a method were kept; 0 for the base."""
    if row == BASE:
        return 0
    table = frame(study, "pass_at_k")
    here = table[(table["model"] == model) & (table["benchmark"] == benchmark)]
    return int((here[here["algorithm"] == row]["train_seed"].unique() >= 0).sum())
