"""Whether RL solves what its base practically cannot (docs/support-study.md).

    python -m benchmarks.out_of_support results/support

Problems are chosen by many draws of the base; every policy is then held against other draws of it.
A folder of a kept run will do as well. From results, whose samples are there, it also writes
`benchmarks/out_of_support.json`: how often each method uses the strategy that a sheet needs, and
how often that is then right.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pandas as pd

from benchmarks.chance import difference, markdown
from benchmarks.kept_tables import points_of
from benchmarks.use_and_execution import samples_of, sheets_of, uses
from sage.evaluation.pass_at_k import pass_at_k
from sage.rendering.numbers import percent
from sage.results import Results
from sage.runtime.files import write_json_atomic
from sage.runtime.tables import read_frame
from sage.study import BASE

MODEL, CHOOSING = "sums", "drawn_again"
FILE = Path(__file__).with_suffix(".json")
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
    base, twice = (coverage(counts, BASE, chosen, draws) for draws in (k, 2 * k))
    lines = [
        ["base, second draw", "", _rate(counts, BASE, chosen), percent(base.mean()), ""],
        [f"the same, pass@{2 * k}", "", "", percent(twice.mean()), ""],
    ]
    for row in counts.loc[counts["model"] == MODEL, "algorithm"].unique():
        if row != BASE:
            own = coverage(counts, row, chosen, k)
            apart = points_of(difference(own, base))
            rate = _rate(counts, row, chosen)
            lines.append([f"`{row}`", str(len(own)), rate, percent(own.mean()), apart])
    head = f"method | runs | right of 10,000 draws | pass@{k} | minus the base's second draw"
    return markdown(head, lines)


def _rate(counts: pd.DataFrame, row: str, chosen: Sequence[str]) -> str:
    """How many of 10,000 draws of a method are right with correct working."""
    own = counts[(counts["model"] == MODEL) & (counts["algorithm"] == row)]
    own = own[own["problem_id"].isin(chosen)]
    return f"{1e4 * own['worked'].sum() / own['n_samples'].sum():.1f}"


def strategies(results: Results, chosen: Sequence[str]) -> dict[str, dict[str, float]]:
    """By method: draws on the chosen problems that use their problem's strategy, of 10,000, and the
    share of these that is right with correct working."""
    found = {}
    for row, samples in samples_of(results, MODEL).items():
        drawn = uses(samples[samples["problem_id"].isin(chosen)], sheets_of(results))
        used, right = drawn["used"].sum(), drawn["right"].sum()
        if used:
            found[row] = {
                "used": round(float(1e4 * used / len(drawn)), 1),
                "right": round(float(right / used), 3),
            }
    return found


def main(results: Path) -> None:
    """Print how many problems are outside, and the table."""
    kept = results / "counts.parquet"
    counts = read_frame(kept if kept.exists() else Results(results).metrics("counts"))
    drawn = counts[counts["model"] == CHOOSING]
    print(f"{len(outside(counts))} of {drawn['problem_id'].nunique()} problems are outside\n")
    print(table(counts))
    if not kept.exists():
        write_json_atomic(FILE, strategies(Results(results), outside(counts)))


if __name__ == "__main__":
    main(Path(sys.argv[1]))
