"""Training histories as one frame: what training curves are made from."""

from __future__ import annotations

from collections.abc import Sequence

import pandas as pd

from sage.analysis.dynamics import Histories


def history_frame(histories: Histories, algorithms: Sequence[str]) -> pd.DataFrame:
    """Histories of some algorithms: columns algorithm, seed, step and whatever was recorded.

    Rows follow `algorithms`, then seeds, then steps; empty histories are left out.
    """
    frames = [
        pd.DataFrame([dict(row) for row in rows]).assign(algorithm=algorithm, seed=seed)
        for (algorithm, seed), rows in sorted(histories.items())
        if rows and algorithm in algorithms
    ]
    if not frames:
        return pd.DataFrame(columns=["algorithm", "seed", "step"])
    joined = pd.concat(frames, ignore_index=True)
    order = {name: place for place, name in enumerate(algorithms)}
    joined["place"] = joined["algorithm"].map(order)
    return joined.sort_values(["place", "seed", "step"], ignore_index=True).drop(columns="place")
