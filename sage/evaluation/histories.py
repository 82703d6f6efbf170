"""What runs of training recorded, step by step: rows of their `history.jsonl`.

Exhibits and claims read them here. What is made of them stands with the exhibit that shows it.
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

IN_REWARD = "k1_reward"
"""The estimator whose KL term is in the reward."""

LEAST_DOSE = 0.05
"""In standard deviations of the advantages, for a guide in the reward. Below it a guide was not
tested: no difference is then seen whatever guides do."""

LEAST_DOSE_IN_LOSS = 0.05
"""As LEAST_DOSE, for the dose in the loss: a guide then makes less than 0.05^2, a quarter of a
percent, of the variance of what tokens of a state are weighed by."""


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


def by_step(history: History, key: str, run: str) -> np.ndarray:
    """A quantity by step, `[T]`. Raises ValueError that names the `run` if a step lacks it."""
    lacking = [int(row["step"]) for row in history if key not in row]
    if lacking:
        raise ValueError(f"{run}: no {key} in the history of {len(lacking)} steps ({lacking[:3]}…)")
    return np.array([row[key] for row in history], dtype=float)  # None: nothing was scored
