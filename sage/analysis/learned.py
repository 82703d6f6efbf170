"""What a learned guide has learned: q over a grid of each signal, from the network of each run."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np
import pandas as pd

from sage.method.learned_guide import LEARNED, SIGNALS
from sage.results import run_at
from sage.runtime.faults import Damaged

COLUMNS = ["algorithm", "seed", "signal", "place", "value", "q"]
"""A point a row: `place` counts along the grid; `value` in nats, or a share for the position."""

POINTS = 41


def learned_curves(policies: Sequence[Path], clamps: Mapping[str, Sequence[float]]) -> pd.DataFrame:
    """q of the guide of each policy against each of SIGNALS, with COLUMNS.

    `policies` are folders `{algorithm}/seed{seed}`, `clamps` the limits of q by algorithm. Entropy
    and surprisal go from 0 to three standard deviations above their mean over the tokens of
    training, in log(1 + nats), and position from 0 to 1; the other signals are at their mean.
    Raises FileNotFoundError for a policy without a learned guide, and Damaged.
    """
    parts = [
        guide_curves(policy / LEARNED, clamps[algorithm]).assign(algorithm=algorithm, seed=seed)
        for policy in policies
        for _, algorithm, seed in (run_at(policy),)
    ]
    return pd.concat(parts, ignore_index=True)[COLUMNS]


def guide_curves(path: Path, clamp: Sequence[float]) -> pd.DataFrame:
    """The curves of one guide. Raises Damaged for a file that holds no network."""
    text = path.read_text(encoding="utf-8")
    try:
        learned = json.loads(text)
        weights = [np.array(weight, dtype=float) for weight in learned["weights"]]
        means = np.array([float(learned["mean"][signal]) for signal in SIGNALS])
        spreads = np.array([float(learned["deviation"][signal]) for signal in SIGNALS])
        frames = []
        for column, signal in enumerate(SIGNALS):
            share = signal == "position"
            end = 1.0 if share else means[column] + 3 * spreads[column]
            inputs = np.tile(means, (POINTS, 1))
            inputs[:, column] = np.linspace(0.0, end, POINTS)
            q = np.exp(log_q(weights, inputs)).clip(*clamp)
            values = inputs[:, column] if share else np.expm1(inputs[:, column])
            frame = pd.DataFrame({"place": range(POINTS), "value": values, "q": q})
            frames.append(frame.assign(signal=signal))
    except (KeyError, TypeError, ValueError) as error:
        raise Damaged(path, f"holds no learned guide ({error})") from error
    return pd.concat(frames, ignore_index=True)


def log_q(weights: Sequence[np.ndarray], inputs: np.ndarray) -> np.ndarray:
    """What `sage.method.learned_guide.Network` computes, without torch: `[N, inputs]` to `[N]`."""
    hidden, shifts, output, shift = weights
    values: np.ndarray = np.tanh(inputs @ hidden.T + shifts) @ output + shift
    return values
