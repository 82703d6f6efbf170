"""Halves of real runs, taken for two methods, which then differ by chance alone.

The samples of the runs in `reports/mini/first_world`, five of each of seven methods, are dealt in
two halves that are taken for two methods, and so are their runs, two against two.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pandas as pd

from benchmarks.paired import Comparison
from benchmarks.worlds import DRAWS, ROOT
from sage.evaluation.comparisons import differences_rows
from sage.evaluation.pass_at_k import pass_at_k
from sage.study import BASE

BENCHMARKS, K = ("harder", "knights", "longer"), 16
"""The benchmarks, and the k of contrasts beside 1."""


def comparisons() -> Iterator[Comparison]:
    """The share of contrasts with p below 0.05."""
    for what, p in halves().items():
        name = f"{what} of real runs, pass@1 and pass@{K}: p below 0.05"
        share = float((p < 0.05).mean())
        yield Comparison(name, share, "at most 0.06", share, 0.05, len(p), "of contrasts")


def halves(deals: int = 20, seed: int = 0) -> dict[str, np.ndarray]:
    """p of contrasts between halves of the same method's real runs, which differ by chance.

    `halves of samples`: each problem's samples in each of five runs, dealt at random. `halves of
    runs`: runs 1 and 2 against 3 and 4, and the two other ways to pair four runs. On harder sums
    and puzzles, at k = 1 and K.
    """
    kept = pd.read_parquet(ROOT / "reports/mini/first_world/counts.parquet")
    kept = kept[kept["benchmark"].isin(BENCHMARKS) & (kept["algorithm"] != BASE)]
    keys = ["algorithm", "benchmark", "train_seed", "problem_id"]
    solved = kept["count"].where(kept["correct"], 0).groupby([kept[key] for key in keys]).sum()
    sizes = kept.groupby(keys)["count"].sum()
    rng, ks = np.random.default_rng(seed), np.array([1, K])
    p: dict[str, list[float]] = {"halves of samples": [], "halves of runs": []}
    for method, right in solved.groupby(level=[0, 1]):
        correct = right.unstack().to_numpy(dtype=int)  # [runs, problems]
        n = int(sizes.loc[method].iloc[0])
        for _ in range(deals):
            first = rng.hypergeometric(correct, n - correct, n // 2)
            pair = [
                np.stack([pass_at_k(n // 2, run, ks) for run in half])
                for half in (first, correct - first)
            ]
            p["halves of samples"] += _p(pair[0] - pair[1])
        values = np.stack([pass_at_k(n, run, ks) for run in correct])
        for one, other in (((0, 1), (2, 3)), ((0, 2), (1, 3)), ((0, 3), (1, 2))):
            p["halves of runs"] += _p(values[[*one]] - values[[*other]])
    return {what: np.array(all_of) for what, all_of in p.items()}


def _p(differences: np.ndarray) -> list[float]:
    rows = differences_rows(differences, [1, K], range(len(differences)), DRAWS)
    return [float(str(row["p"])) for row in rows]
