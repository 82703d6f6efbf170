"""Training dynamics: gradient norms by stage, curves, reward against test accuracy.

Reads rows of `history.jsonl`, one per optimizer step, and accuracies measured at checkpoints.
Other modules train and measure. The rollouts of step s + 1 are drawn after s updates, so the
training reward of the checkpoint of step s is estimated by the mean around s.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from sage.results import run_at
from sage.runtime.faults import Damaged

History = Sequence[Mapping[str, Any]]
"""Rows of one run. Each has `step`, counted from 1, and the values recorded in that step."""

Histories = Mapping[tuple[str, int], History]
"""Histories by (algorithm, training seed)."""

STAGES = ("early", "mid", "late")

STAGE_COLUMNS = ["algorithm", "stage", "value", "low", "high", "coverage", "n_seeds", "steps"]


def stage_means(values: np.ndarray) -> np.ndarray:
    """Means of the first, second and last third of `values` `[T]`; `[3]`.

    If the steps do not divide by three, the earlier thirds get one more. Raises ValueError below 3
    steps.
    """
    if len(values) < len(STAGES):
        raise ValueError(
            f"{len(values)} steps cannot be divided into {len(STAGES)} stages; train at least "
            f"{len(STAGES)} steps"
        )
    return np.array([part.mean() for part in np.array_split(values, len(STAGES))])


def gradient_norm_table(histories: Histories) -> pd.DataFrame:
    """Table 5: the mean of `grad_norm` for each method and third of training, with STAGE_COLUMNS.

    It is the norm before clipping. `value` averages the runs' means over training seeds.
    The steps of a run depend on each other, so only seeds can give an interval. `low` and `high`
    are the smallest and largest run. This range contains the median run with probability
    `coverage` = 1 - 2^(1 - n_seeds), for any distribution (0.75 with three seeds); a single run
    has NaN and 0. Raises ValueError if a run lacks it or runs differ in length.
    """
    runs: dict[str, list[np.ndarray]] = {}
    for (algorithm, seed), history in sorted(histories.items()):
        runs.setdefault(algorithm, []).append(
            _column(history, "grad_norm", f"{algorithm}, seed {seed}")
        )
    rows: list[tuple[object, ...]] = []
    for algorithm, of_seeds in runs.items():
        steps = {len(values) for values in of_seeds}
        if len(steps) > 1:
            raise ValueError(
                f"{algorithm}: runs of different lengths, {sorted(steps)} steps; all seeds "
                "need the same `steps`"
            )
        means = np.stack([stage_means(values) for values in of_seeds])
        several = len(of_seeds) > 1
        for place, stage in enumerate(STAGES):
            low = float(means[:, place].min()) if several else np.nan
            high = float(means[:, place].max()) if several else np.nan
            value, coverage = float(means[:, place].mean()), 1.0 - 2.0 ** (1 - len(of_seeds))
            size = len(of_seeds), len(of_seeds[0])
            rows.append((algorithm, stage, value, low, high, coverage, *size))
    return pd.DataFrame(rows, columns=STAGE_COLUMNS)


def read_histories(policies: Sequence[Path]) -> dict[tuple[str, int], list[dict[str, Any]]]:
    """Histories of trained policies, from folders …/{algorithm}/seed{seed}.

    Raises Damaged that names a faulty file and line.
    """
    histories = {}
    for folder in policies:
        path, rows = folder / "history.jsonl", []
        for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), start=1):
            try:
                rows.append(json.loads(line))
            except json.JSONDecodeError as error:
                raise Damaged(
                    folder, f"line {number} of {path.name} is not JSON ({error})"
                ) from error
        histories[run_at(folder)[1:]] = rows
    return histories


def history_frame(histories: Histories) -> pd.DataFrame:
    """Histories as one frame: columns algorithm, seed, step and the recorded values.

    Empty histories are left out.
    """
    frames = [
        pd.DataFrame([dict(row) for row in rows]).assign(algorithm=algorithm, seed=seed)
        for (algorithm, seed), rows in sorted(histories.items())
        if rows
    ]
    if not frames:
        return pd.DataFrame(columns=["algorithm", "seed", "step"])
    return pd.concat(frames, ignore_index=True)


def reward_and_accuracy(
    histories: Histories, accuracies: pd.DataFrame, window: int
) -> pd.DataFrame:
    """Figure 2: training reward and test accuracy, a row for each checkpoint.

    `accuracies` has columns algorithm, train_seed, step and value (a share; step 0 is the parent
    checkpoint, repeated for every run of a model) and may have low and high. The `reward` of step
    s is the mean over the `window` steps around it, s + 1 - window // 2 to s + (window + 1) // 2,
    cut off at the ends: the first rollouts for step 0, the last ones for the last step. Returns
    algorithm, train_seed, step, reward, accuracy and, if given, low and high. Raises ValueError
    for a checkpoint without a history or outside of it.
    """
    kept = [name for name in ("low", "high") if name in accuracies]
    frames = []
    for (algorithm, seed), rows in accuracies.groupby(["algorithm", "train_seed"], sort=False):
        run = f"{algorithm}, seed {seed}"
        history = histories.get((str(algorithm), int(str(seed))))
        if not history:
            raise ValueError(f"{run}: accuracies at checkpoints, but no history")
        rewards = _column(history, "reward", run)
        if [int(row["step"]) for row in history] != list(range(1, len(history) + 1)):
            raise ValueError(f"{run}: the history does not hold every step from 1 on")
        steps = rows["step"].to_numpy(dtype=int)
        if steps.min() < 0 or steps.max() > len(rewards):
            raise ValueError(
                f"{run}: checkpoints from step {steps.min()} to {steps.max()}, "
                f"but a history of {len(rewards)} steps"
            )
        known = pd.Series(rewards).where(np.isfinite(rewards)).reindex(range(len(rewards) + 1))
        means = known.rolling(window, center=True, min_periods=1).mean().ffill()
        frames.append(
            rows[["algorithm", "train_seed", "step"]]
            .assign(reward=means[steps].to_numpy(), accuracy=rows["value"])
            .join(rows[kept])
            .sort_values("step")
        )
    if not frames:
        columns = ["algorithm", "train_seed", "step", "reward", "accuracy", *kept]
        return pd.DataFrame(columns=columns)
    return pd.concat(frames, ignore_index=True)


def _column(history: History, key: str, run: str) -> np.ndarray:
    lacking = [int(row["step"]) for row in history if key not in row]
    if lacking:
        raise ValueError(f"{run}: no {key} in the history of {len(lacking)} steps ({lacking[:3]}…)")
    return np.array([float(row[key]) for row in history])
