"""Test accuracy at moments of training, from the snapshots a run has kept (Figure 2)."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pandas as pd

from sage.evaluation.counts import counts_table
from sage.evaluation.curves import curves_of
from sage.evaluation.intervals import interval_of_share
from sage.evaluation.snapshots import SnapshotSampler, snapshots_of
from sage.results import run_at
from sage.runtime.tables import read_frame
from sage.study import BASE

COLUMNS = ["algorithm", "train_seed", "step", "value", "low", "high"]


def trajectory_table(
    sampler: SnapshotSampler, policies: Sequence[Path], count: int, bootstrap: int
) -> tuple[pd.DataFrame, int]:
    """Sample the parent and `count` snapshots of each of `policies`.

    `policies` are folders .../{algorithm}/seed{seed}. Returns pass@1 with its interval over
    problems, from `bootstrap` resamples (COLUMNS), and how many tokens were drawn; step 0 is the
    parent. Of snapshots kept for a finer figure, those at `count` even shares of the run are taken.
    Raises FileNotFoundError for too few snapshots.
    """
    rows, tokens = [], 0

    def accuracy(
        policy: Path | None, algorithm: str, seed: int, step: int
    ) -> tuple[float, float, float]:
        nonlocal tokens
        frame = read_frame(sampler.samples(policy, algorithm, seed, step))
        tokens += int(frame["n_tokens"].sum())
        run = sampler.model, algorithm, seed, sampler.benchmark
        (curves,) = curves_of(counts_table({run: frame})).values()
        at_one = curves.values[:, :, :1]
        low, high = interval_of_share(at_one, bootstrap)
        return float(at_one.mean()), float(low[0]), float(high[0])

    start = accuracy(None, BASE, 0, 0)
    for policy in policies:
        _, algorithm, seed = run_at(policy)
        rows.append((algorithm, seed, 0, *start))
        for step, folder in snapshots_of(policy, count):
            rows.append((algorithm, seed, step, *accuracy(folder, algorithm, seed, step)))
    return pd.DataFrame(rows, columns=COLUMNS), tokens
