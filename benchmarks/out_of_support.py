"""Whether RL solves what its base practically cannot (docs/support-study.md).

    python -m benchmarks.out_of_support results/support

Problems are chosen by many draws of the base; every policy is then held against other draws of it.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pandas as pd

from benchmarks.chance import difference, markdown
from benchmarks.kept_tables import points_of
from sage.evaluation.pass_at_k import pass_at_k
from sage.rendering.numbers import percent
from sage.results import Results
from sage.runtime.tables import read_frame
from sage.study import BASE

MODEL, CHOOSING = "sums", "drawn_again"
K = 512

MOST = 4
"""Right draws of the choosing 4,096 that a problem outside the support has at most."""


def outside(counts: pd.DataFrame, most: int = MOST) -> list[str]:
    """Problems with at most `most` right draws (correct working) of those that choose, in order."""
    drawn = counts[(counts["model"] == CHOOSING) & (counts["algorithm"] == BASE)]
    return sorted(drawn.loc[drawn["worked"] <= most, "problem_id"])


def coverage(counts: pd.DataFrame, row: str, chosen: Sequence[str], k: int = K) -> np.ndarray:
    """pass@k with correct working of each run of a method on the chosen problems, `[S, P]`."""
    own = counts[(counts["model"] == MODEL) & (counts["algorithm"] == row)]
    runs = [run.set_index("problem_id").loc[list(chosen)] for _, run in own.groupby("train_seed")]
    return np.stack(
        [
            pass_at_k(int(run["n_samples"].iloc[0]), run["worked"].to_numpy(int), np.array([k]))
            for run in runs
        ]
    )[..., 0]


def table(counts: pd.DataFrame, k: int = K) -> str:
    """Each method on the problems outside, and minus the base's second draw, as Markdown."""
    chosen = outside(counts)
    base = coverage(counts, BASE, chosen, k)
    lines = [["base, second draw", "", percent(base.mean()), ""]]
    for row in counts.loc[counts["model"] == MODEL, "algorithm"].unique():
        if row != BASE:
            own = coverage(counts, row, chosen, k)
            apart = points_of(difference(own, base))
            lines.append([f"`{row}`", str(len(own)), percent(own.mean()), apart])
    return markdown(f"method | runs | pass@{k} | minus the base's second draw", lines)


def main(results: Path) -> None:
    """Print how many problems are outside, and the table."""
    counts = read_frame(Results(results).metrics("counts"))
    drawn = counts[counts["model"] == CHOOSING]
    print(f"{len(outside(counts))} of {drawn['problem_id'].nunique()} problems are outside\n")
    print(table(counts))


if __name__ == "__main__":
    main(Path(sys.argv[1]))
