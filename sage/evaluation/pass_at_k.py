"""pass@k from counts: the unbiased estimator (Chen et al. 2021, arXiv 2107.03374).

With c of n samples correct, pass@k is one minus the chance that k samples drawn without
replacement are all wrong. The chance is a product of k factors, which neither overflows
nor cancels. Equal counts are worked out once.
"""

from __future__ import annotations

import numpy as np


def pass_at_k(n: int | np.ndarray, correct: np.ndarray, ks: np.ndarray) -> np.ndarray:
    """pass@k of each problem: `[P]` counts out of `n` and `[K]` values of k to `[P, K]`.

    `n` is one number or `[P]`, then with NaN where k exceeds a problem's n. Raises ValueError
    unless 0 <= correct <= n, and k is a whole number from 1 to the largest n.
    """
    correct, ks = np.asarray(correct), np.atleast_1d(ks)
    sizes = np.broadcast_to(np.asarray(n), correct.shape)
    if correct.size and (correct.min() < 0 or (correct > sizes).any()):
        raise ValueError(f"counts must be from 0 to {sizes.max()}, the number of samples")
    largest = int(np.max(n, initial=0))
    if ks.size and (ks.min() < 1 or ks.max() > largest or (ks % 1 != 0).any()):
        raise ValueError(f"k must be a whole number from 1 to n = {largest}, not {ks.tolist()}")
    pairs, place = np.unique(sizes.astype(np.int64) * (largest + 1) + correct, return_inverse=True)
    samples, counts = pairs // (largest + 1), pairs % (largest + 1)
    all_wrong = np.ones(len(pairs))
    table = np.empty((len(pairs), len(ks)))
    for j in range(int(ks.max(initial=0))):
        left = np.maximum(samples - j, 1)
        all_wrong *= np.maximum(left - counts, 0) / left
        table[:, ks == j + 1] = np.where(samples > j, 1.0 - all_wrong, np.nan)[:, None]
    return table[place]


def powers_of_two(n: int) -> np.ndarray:
    """k = 1, 2, 4, … up to n, and n itself."""
    ks = 2 ** np.arange(n.bit_length())
    return np.unique(np.append(ks[ks <= n], n))
