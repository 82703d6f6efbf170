"""Whether effects change with the size of the model (docs/sizes-study.md).

    python -m benchmarks.sizes results/sizes

Prints pass@1 and pass@16 with correct working of each method at each size, means over the bases
that were run, and how the guide's effect differs between sizes. A folder of a kept run will do too.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pandas as pd
from scipy.stats import ttest_ind

from benchmarks.chance import markdown
from benchmarks.kept_tables import SEEN, K, points_of
from benchmarks.path_tables import mean_over
from sage.evaluation.pass_at_k import pass_at_k
from sage.rendering.numbers import percent
from sage.results import Results
from sage.runtime.tables import read_frame

SIZES = {
    "0.17 M": ("sums", "small_second", "small_third"),
    "0.6 M": ("middle_first", "middle_second", "middle_third"),
    "2.3 M": ("large_first", "large_second", "large_third"),
}
"""The bases of each size; of the largest, one was run."""

GUIDED, PLAIN = "grpo_branch_stronger_k1_reward", "grpo_k1_reward"


def counts_of(folder: Path) -> pd.DataFrame:
    """Counts of a study's results, or of a kept run."""
    kept = folder / "counts.parquet"
    return read_frame(kept if kept.exists() else Results(folder).metrics("counts"))


def levels(counts: pd.DataFrame, bases: Sequence[str], row: str) -> dict[str, np.ndarray]:
    """Of a method pass@1 where RL trains by answers and working, and pass@16 by working.

    Each is an array of shares, `[bases]`.
    """
    found: dict[str, list[float]] = {"answers": [], "working": [], "coverage": []}
    for base in bases:
        own = counts[(counts["model"] == base) & (counts["algorithm"] == row)]
        n, seen = int(own["n_samples"].iloc[0]), own[own["stratum"].isin(SEEN)]
        found["answers"].append(float((seen["correct"] / n).mean()))
        found["working"].append(float((seen["worked"] / n).mean()))
        solved = pass_at_k(n, own["worked"].to_numpy(int), np.array([K]))
        found["coverage"].append(float(solved.mean()))
    return {name: np.array(values) for name, values in found.items()}


def tables(counts: pd.DataFrame) -> list[str]:
    """The levels of each method at each size, and the guide's effect beside the smallest size's."""
    lines, effects = [], {}
    run = set(counts["model"])
    for size, named in SIZES.items():
        if not (bases := [base for base in named if base in run]):
            continue
        rows = counts.loc[counts["model"] == bases[0], "algorithm"].unique()
        by_row = {row: levels(counts, bases, row) for row in rows}
        for row, found in by_row.items():
            lines.append([size, f"`{row}`", *(percent(each.mean()) for each in found.values())])
        effects[size] = by_row[GUIDED]["coverage"] - by_row[PLAIN]["coverage"]
    first = next(iter(effects))
    apart = []
    for size, effect in effects.items():
        if len(effect) == 1:
            apart.append([size, f"{100 * effect[0]:+.1f}, one base", ""])
            continue
        welch = ttest_ind(effect, effects[first], equal_var=False).confidence_interval()
        value = effect.mean() - effects[first].mean()
        told = "" if size == first else points_of((value, welch.low, welch.high))
        apart.append([size, points_of(mean_over(effect)), told])
    return [
        markdown(
            f"size | method | pass@1 where RL trains | with correct working | pass@{K} with it",
            lines,
        ),
        markdown(f"size | guide minus none, pass@{K} | minus that at {first}", apart),
    ]


if __name__ == "__main__":
    print("\n".join(tables(counts_of(Path(sys.argv[1])))))
