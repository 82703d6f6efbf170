"""The overhead of a guide, from times of the same work with and without it (section 4.3).

The times are measured in turn, round by round. So the result is the ratio of two in a round,
not their times, and the median over rounds, which one slow round does not change.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pandas as pd


@dataclass(frozen=True)
class Ratio:
    """Median of a method's time over another's by round, less one, between `low` and `high`.

    Interval and p are of the sign test: nothing is assumed of the times but that rounds do not
    depend on each other.
    """

    excess: float
    low: float
    high: float
    p: float
    rounds: int


def time_ratio(
    times: pd.DataFrame, row: str, other: str, level: float = 0.95, null: float = 0.0
) -> Ratio:
    """The overhead of `row` over `other`; `times` is what `sage.training.stopwatch` measured.

    The interval is at `level`, and p that of a median of `null`. Raises ValueError where one of
    the two was not timed.
    """
    by_round = times.pivot(index="round", columns="algorithm", values="seconds")
    if missing := [name for name in (row, other) if name not in by_round]:
        raise ValueError(
            f"{' and '.join(missing)} not timed; there are {', '.join(map(str, by_round))}"
        )
    ratios = (by_round[row] / by_round[other]).to_numpy()
    from scipy.stats import quantile_test  # slow to import

    test = quantile_test(ratios, q=1.0 + null, p=0.5)
    bounds = test.confidence_interval(level)
    excess = float(np.median(ratios)) - 1.0
    return Ratio(excess, bounds.low - 1.0, bounds.high - 1.0, float(test.pvalue), len(ratios))
