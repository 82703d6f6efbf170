"""Cover@tau: the share of problems that a policy solves at a rate of at least tau.

After arXiv 2510.08325. pass@k rises with guessing, for one right answer among many is enough;
Cover@tau asks for reliability, and tau says how much of it.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pandas as pd

from sage.evaluation.curves import Curves, run_table
from sage.evaluation.intervals import interval_of_share

TAUS = (0.1, 0.25, 0.5, 0.75, 0.9)


def cover_table(counts: pd.DataFrame, draws: int) -> pd.DataFrame:
    """Cover@tau for TAUS, per run and pooled over training seeds, with 95 % intervals.

    Columns: model, algorithm, train_seed (POOLED for all), benchmark, metric (``cover``), tau,
    value, low, high, n_problems, n_samples. A problem's rate is its share of correct samples, so
    a problem within 1 / sqrt(n_samples) of tau may fall on either side.
    """

    def measure(curves: Curves, runs: slice) -> Iterator[dict[str, Any]]:
        values = cover(curves.correct[runs], curves.n)
        low, high = interval_of_share(values, draws, groups=curves.groups)
        value = values.mean(axis=(0, 1))
        yield {"metric": "cover", "tau": TAUS, "value": value, "low": low, "high": high}

    return run_table(counts, measure)


def cover(correct: np.ndarray, n: int) -> np.ndarray:
    """Whether counts `[S, P]` out of `n` reach each of TAUS: 0 or 1, `[S, P, len(TAUS)]`."""
    return (np.asarray(correct)[..., None] >= np.array(TAUS) * n - 1e-9).astype(float)
