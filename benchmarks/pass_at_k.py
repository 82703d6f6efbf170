"""Statistics at full size: a million counts to pass@k curves, and a bootstrap over 500 problems."""

from __future__ import annotations

import statistics
from collections.abc import Iterator
from math import comb

import numpy as np

from benchmarks.paired import Comparison, compared, in_turn
from sage.evaluation import bootstrap, intervals
from sage.evaluation.pass_at_k import pass_at_k, powers_of_two

PAIRS, DRAWS, PROBLEMS, SECONDS, ROUNDS = 1_000_000, 10_000, 500, 5.0, 5
_NAIVE_PAIRS = 2_000


def comparisons() -> Iterator[Comparison]:
    """The time of both as a share of five seconds; and the time per pair, compared with a loop."""
    rng = np.random.default_rng(0)
    n = rng.choice([16, 64, 256], PAIRS)
    correct = rng.integers(0, n + 1)
    ks = powers_of_two(256)
    values = pass_at_k(256, rng.integers(0, 257, (PROBLEMS, 3)).ravel(), ks)
    values = values.reshape(PROBLEMS, 3, len(ks)).transpose(1, 0, 2)

    def whole() -> None:
        pass_at_k(n, correct, ks)
        # Like the first interval of a study: later ones reuse the resamples.
        bootstrap._weights.cache_clear()
        intervals.interval_of_share(values, DRAWS)

    def naive() -> None:
        for size, c in zip(n[:_NAIVE_PAIRS].tolist(), correct[:_NAIVE_PAIRS].tolist(), strict=True):
            [1.0 - comb(size - c, k) / comb(size, k) if k <= size else np.nan for k in ks.tolist()]

    seconds = statistics.median(own for own, _ in in_turn(whole, lambda: None, ROUNDS))
    name = "a million pass@k curves and 10,000 draws over 500 problems, against 5 s"
    yield Comparison(name, seconds / SECONDS, "at most 1", seconds, SECONDS, ROUNDS)
    times = in_turn(lambda: pass_at_k(n, correct, ks), naive, ROUNDS)
    pairs = [(own / PAIRS * 1e6, other / _NAIVE_PAIRS * 1e6) for own, other in times]
    ratios = [other / own for own, other in pairs]
    name = "pass@k curves, against a loop over pairs"
    yield compared(name, ratios, "at least 20", pairs, "µs a pair")
