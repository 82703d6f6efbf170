"""Test accuracy at moments of training, from the snapshots a run has kept (Figure 2)."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pandas as pd

from sage.evaluation.curves import curves_of
from sage.evaluation.intervals import interval_of_share
from sage.evaluation.samples import evaluate
from sage.problems.record import Problem
from sage.runtime.manifest import Manifest
from sage.runtime.tables import read_frame
from sage.study import Evaluation

COLUMNS = ["algorithm", "train_seed", "step", "value", "low", "high"]


def trajectory_table(
    base: Path,
    policies: Sequence[Path],
    problems: Sequence[Problem],
    settings: Evaluation,
    device: str,
    model: str,
    benchmark: str,
    count: int,
    shards: Path,
    manifest: Manifest,
) -> tuple[pd.DataFrame, int]:
    """Sample the parent `base` and the snapshots of each of `policies` on one benchmark.

    `policies` are folders .../{algorithm}/seed{seed}. Returns pass@1 with its interval over
    problems, COLUMNS, and how many tokens were drawn; step 0 is the parent. Of snapshots kept for
    a finer figure, those at `count` even shares of the run are taken. Samples go into `shards`,
    each with a copy of `manifest`, so a killed job goes on. Raises FileNotFoundError for too few
    snapshots.
    """
    rows, tokens = [], 0

    def accuracy(policy: Path | None, seed: int, name: str) -> tuple[float, float, float]:
        nonlocal tokens
        drawn = shards / name / f"seed{seed}" / f"{benchmark}.parquet"
        evaluate(
            base=base,
            policy=policy,
            problems=problems,
            settings=settings,
            device=device,
            model=model,
            benchmark=benchmark,
            train_seed=seed,
            shards=drawn.with_suffix(""),
            output=drawn,
            manifest=manifest,
        )
        frame = read_frame(drawn)
        tokens += int(frame["n_tokens"].sum())
        (curves,) = curves_of({(model, name, seed, benchmark): frame}).values()
        at_one = curves.values[:, :, :1]
        low, high = interval_of_share(at_one, settings.bootstrap)
        return float(at_one.mean()), float(low[0]), float(high[0])

    start = accuracy(None, 0, "parent")
    for policy in policies:
        algorithm, seed = policy.parent.name, int(policy.name.removeprefix("seed"))
        rows.append((algorithm, seed, 0, *start))
        for step, folder in snapshots_of(policy, count):
            rows.append((algorithm, seed, step, *accuracy(folder, seed, f"{algorithm}-{step}")))
    return pd.DataFrame(rows, columns=COLUMNS), tokens


def snapshots_of(policy: Path, count: int) -> list[tuple[int, Path]]:
    """(step, folder) of `count` evenly spaced snapshots of a policy, the end among them."""
    folders = (policy / "snapshots").glob("step*")
    kept = sorted((int(folder.name.removeprefix("step")), folder) for folder in folders)
    if len(kept) < count:
        raise FileNotFoundError(f"{policy}/snapshots: {len(kept)} of {count} snapshots")
    return [kept[round(len(kept) * (i + 1) / count) - 1] for i in range(count)]
