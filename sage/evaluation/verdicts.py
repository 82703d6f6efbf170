"""pass@k with intervals from verdicts alone: what a script has that keeps no study's files."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd

from sage.evaluation.intervals import interval_of_share
from sage.evaluation.pass_at_k import pass_at_k, powers_of_two


def pass_at_k_with_intervals(correct: Any, ks: Any = None, draws: int = 10_000) -> pd.DataFrame:
    """Unbiased pass@k, averaged over problems, with 95 % intervals (`sage.evaluation.intervals`).

    `correct` holds 0 and 1: `[P, n]` for n completions of each of P problems, or `[S, P, n]` for
    S training runs, and then the interval is about further runs as well. `ks` are by default 1,
    2, 4, ... and n. `draws` are those of the bootstrap. Columns: k, value, low, high, n_runs,
    n_problems, n_samples. Raises ValueError for another shape, for other values and for k above n.
    """
    try:
        verdicts = np.asarray(correct, dtype=float)
    except ValueError as error:
        raise ValueError("correct must hold equally many completions of every problem") from error
    if verdicts.ndim == 2:
        verdicts = verdicts[None]
    if verdicts.ndim != 3 or 0 in verdicts.shape:
        raise ValueError(
            f"correct has the shape {verdicts.shape}; it must be [problems, completions] or "
            "[runs, problems, completions]"
        )
    if not np.isin(verdicts, (0.0, 1.0)).all():
        raise ValueError("correct must hold 0 and 1 only: whether each completion is correct")
    runs, problems, n = verdicts.shape
    chosen = powers_of_two(n) if ks is None else np.asarray(ks)
    counts = verdicts.sum(axis=2).astype(int)
    values = np.stack([pass_at_k(n, row, chosen) for row in counts])
    low, high = interval_of_share(values, draws)
    sizes = {"n_runs": runs, "n_problems": problems, "n_samples": n}
    value = values.mean(axis=(0, 1))
    return pd.DataFrame({"k": chosen, "value": value, "low": low, "high": high, **sizes})
