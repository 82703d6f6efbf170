"""The mean over several benchmarks, from rows of metrics: the same for tables and for claims.

Rows of `metrics/pass_at_k.parquet` and `metrics/comparisons.parquet` keep where their variance
comes from, so that no samples are read again.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from sage.evaluation.intervals import Estimate, Parts, ends_of_share, mean_of

PART_COLUMNS = ["train_seeds", "by_run", "var_problems", "var_interaction", "var_below"]
PART_COLUMNS += ["var_above", "units"]
"""`by_run` lists values by `train_seeds`; var_* and `units` are the fields of `Parts`."""


def part_columns(parts: Parts, seeds: Sequence[int]) -> dict[str, list[Any]]:
    """PART_COLUMNS of `parts` `[K]`, whose runs are `seeds`: lists of K entries."""
    size = len(parts.problems)
    return {
        "train_seeds": [list(seeds)] * size,
        "by_run": parts.by_run.T.tolist(),
        "var_problems": parts.problems.tolist(),
        "var_interaction": parts.interaction.tolist(),
        "var_below": parts.below.tolist(),
        "var_above": parts.above.tolist(),
        "units": [parts.units] * size,
    }


def average(
    rows: Sequence[Mapping[Any, Any]], signs: Sequence[int] | None = None, bounded: bool = False
) -> Estimate:
    """The mean difference over some rows of the comparisons, one for each benchmark; `[1]`.

    A row with sign -1 was taken the other way round. Only training seeds that all rows have
    count. `bounded` is for shares (`mean_of`). Raises ValueError if there are none.
    """
    seeds = set.intersection(*(set(map(int, row["train_seeds"])) for row in rows))
    if not seeds:
        raise ValueError("benchmarks without a training seed in common")
    signs = signs or [1] * len(rows)
    return mean_of(
        [_parts(row, sign, seeds) for row, sign in zip(rows, signs, strict=True)], bounded
    )


def average_share(rows: Sequence[Mapping[Any, Any]]) -> tuple[float, float, float]:
    """As `average`, of shares (rows of pass@k): the mean and its 95 % interval."""
    estimate = average(rows, bounded=True)
    low, high = ends_of_share(estimate)
    return float(estimate.value[0]), float(low[0]), float(high[0])


def _parts(row: Mapping[Any, Any], sign: int, seeds: set[int]) -> Parts:
    by_seed = dict(zip(map(int, row["train_seeds"]), row["by_run"], strict=True))
    below, above = (np.array([row[f"var_{side}"]]) for side in ("below", "above")[::sign])
    return Parts(
        by_run=sign * np.array([[by_seed[seed]] for seed in sorted(seeds)]),
        problems=np.array([row["var_problems"]]),
        interaction=np.array([row["var_interaction"]]),
        below=below,
        above=above,
        units=int(row["units"]),
    )
