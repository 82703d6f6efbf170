"""Correct counts and pass@k curves of graded runs, by problem: what the tables are made from.

A run is a policy on a benchmark; runs that differ in their training seed alone stand together.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pandas as pd

from sage.evaluation.pass_at_k import pass_at_k, powers_of_two
from sage.results import run_at

POOLED = -1
"""The `train_seed` of a row that pools all training seeds."""

Run = tuple[str, str, int, str]
"""model, algorithm, training seed, benchmark."""

Samples = Mapping[Run, pd.DataFrame]
"""Graded samples of each run, as `sage.evaluation.samples` writes them."""


@dataclass(frozen=True)
class Curves:
    """pass@k of an algorithm on a benchmark: `values` `[S, P, K]` by run, problem and `ks`.

    `correct` `[S, P]` are the counts out of `n`; `problems` are in sorted order.
    """

    seeds: tuple[int, ...]
    problems: tuple[str, ...]
    n: int
    ks: np.ndarray
    correct: np.ndarray
    values: np.ndarray


def run_of(path: Path) -> Run:
    """The run a file of samples belongs to: …/{model}/{algorithm}/seed{seed}/{benchmark}.parquet.

    Raises ValueError for another kind of path.
    """
    return *run_at(path.parent), path.stem


def curves_of(samples: Samples) -> dict[tuple[str, str, str], Curves]:
    """Curves by (model, algorithm, benchmark), in the order of `samples`.

    Raises ValueError unless all problems of a benchmark were sampled equally often, and the
    same ones in every run of an algorithm.
    """
    counts: dict[tuple[str, str, str], dict[int, pd.DataFrame]] = {}
    for (model, algorithm, train_seed, benchmark), frame in samples.items():
        correct = (frame["status"] == "correct").groupby(frame["problem_id"]).agg(["sum", "size"])
        runs = counts.setdefault((model, algorithm, benchmark), {})
        runs[train_seed] = correct.sort_index()
    return {key: _curves(key, runs) for key, runs in counts.items()}


def _curves(key: tuple[str, str, str], runs: Mapping[int, pd.DataFrame]) -> Curves:
    first = next(iter(runs.values()))
    n = int(first["size"].iloc[0])
    for train_seed, run in runs.items():
        if (run["size"] != n).any():
            raise ValueError(f"{key}, seed {train_seed}: problems sampled unequally often")
        if not run.index.equals(first.index):
            raise ValueError(f"{key}, seed {train_seed}: other problems than in the first run")
    ks = powers_of_two(n)
    correct = np.stack([run["sum"].to_numpy() for run in runs.values()])
    values = np.stack([pass_at_k(n, row, ks) for row in correct])
    return Curves(tuple(runs), tuple(first.index), n, ks, correct, values)
