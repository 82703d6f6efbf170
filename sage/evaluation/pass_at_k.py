"""pass@k from counts: the unbiased estimator (Chen et al. 2021, arXiv 2107.03374).

With c of n samples correct, pass@k is one minus the chance that k samples drawn without
replacement are all wrong. The chance is a product of k factors, which neither overflows
nor cancels. Equal counts are worked out once.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd


def pass_at_k(n: int | np.ndarray, correct: np.ndarray, ks: np.ndarray) -> np.ndarray:
    """pass@k of each problem: `[..., P]` counts out of `n` and `[K]` values of k to `[..., P, K]`.

    `n` is one number or `[P]`, then with NaN where k exceeds a problem's n. Raises ValueError
    unless counts are whole numbers with 0 <= correct <= n, and k one from 1 to the largest n.
    """
    correct, ks = whole(correct, "correct"), np.atleast_1d(ks)
    sizes = np.broadcast_to(whole(n, "samples"), correct.shape)
    if correct.size and (correct.min() < 0 or (correct > sizes).any()):
        raise ValueError(f"counts must be from 0 to {sizes.max()}, the number of samples")
    largest = int(np.max(n, initial=0))
    if ks.size and (ks.min() < 1 or ks.max() > largest or (ks % 1 != 0).any()):
        raise ValueError(f"k must be a whole number from 1 to n = {largest}, not {ks.tolist()}")
    pairs, place = np.unique(sizes * (largest + 1) + correct, return_inverse=True)
    samples, counts = pairs // (largest + 1), pairs % (largest + 1)
    all_wrong = np.ones(len(pairs))
    table = np.empty((len(pairs), len(ks)))
    for j in range(int(ks.max(initial=0))):
        left = np.maximum(samples - j, 1)
        all_wrong *= np.maximum(left - counts, 0) / left
        table[:, ks == j + 1] = np.where(samples > j, 1.0 - all_wrong, np.nan)[:, None]
    return table[place.reshape(correct.shape)]


def whole(counts: int | np.ndarray, what: str = "correct") -> np.ndarray:
    """Counts as integers. Raises ValueError for NaN and for parts of a sample."""
    counts = np.asarray(counts)
    if (
        counts.dtype.kind == "f"
        and (odd := ~(np.isfinite(counts) & (counts == np.floor(counts)))).any()
    ):
        raise ValueError(f"counts must be whole numbers, not {counts[odd].flat[0]} {what}")
    return counts.astype(np.int64)


def powers_of_two(n: int) -> np.ndarray:
    """k = 1, 2, 4, … up to n, and n itself."""
    ks = 2 ** np.arange(n.bit_length())
    return np.unique(np.append(ks[ks <= n], n))


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
    from sage.evaluation.intervals import interval_of_share  # with scipy, which imports slowly

    runs, problems, n = verdicts.shape
    chosen = powers_of_two(n) if ks is None else np.atleast_1d(ks)
    counts = verdicts.sum(axis=2).astype(int)
    values = pass_at_k(n, counts, chosen)
    low, high = interval_of_share(values, draws)
    sizes = {"n_runs": runs, "n_problems": problems, "n_samples": n}
    value = values.mean(axis=(0, 1))
    return pd.DataFrame({"k": chosen, "value": value, "low": low, "high": high, **sizes})
