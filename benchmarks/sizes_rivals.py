"""A forward KL and PKPO beside GRPO in larger models (docs/sizes-study.md).

    python -m benchmarks.sizes_rivals reports/kept/sizes_rivals

Prints the levels of each method at two sizes, means over three bases and two runs, what each base
became, and the rivals' differences from GRPO and from a mixture of the base and of GRPO that is as
accurate where RL trains: of each size and of all six bases, with intervals over bases. All count
correct working. A folder of results will do as well as a kept run.
"""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
import pandas as pd

from benchmarks.chance import markdown
from benchmarks.kept_tables import K, points_of
from benchmarks.path_tables import mean_over
from benchmarks.sizes import counts_of, levels, mixtures
from sage.rendering.numbers import percent, points
from sage.study import BASE

SIZES = {
    "0.6 M": ("middle_first", "middle_second", "middle_third"),
    "2.3 M": ("sums", "large_second", "large_third"),
}
"""The bases of each size."""

PLAIN, RIVALS = "grpo", ("grpo_forward_kl_exact", "pkpo_kl")


def tables(counts: pd.DataFrame) -> list[str]:
    """Levels, differences and single bases, as Markdown."""
    lines, of_bases = [], []
    found: dict[tuple[str, str], list[np.ndarray]] = {}
    for size, bases in SIZES.items():
        by_row = {row: levels(counts, bases, row) for row in (BASE, PLAIN, *RIVALS)}
        for row, level in by_row.items():
            lines.append([size, f"`{row}`", *(percent(each.mean()) for each in level.values())])
        lost = by_row[PLAIN]["coverage"] - by_row[BASE]["coverage"]
        apart = {PLAIN: lost}
        for row in RIVALS:
            apart[row] = by_row[row]["coverage"] - by_row[PLAIN]["coverage"]
            right = by_row[row]["working"] - by_row[PLAIN]["working"]
            mixed = by_row[row]["coverage"] - mixtures(counts, bases, by_row, row, PLAIN)
            for where in (size, "both"):
                parts = [right, apart[row], mixed]
                before = found.get((row, where), [np.array([])] * 3)
                found[row, where] = [np.append(*pair) for pair in zip(before, parts, strict=True)]
        for n, each in enumerate(zip(*apart.values(), strict=True), 1):
            accuracy = percent(by_row[PLAIN]["working"][n - 1])
            of_bases.append([size, str(n), accuracy, *map(points, each)])
    differences = [
        [f"`{row}`", where, *(points_of(mean_over(each)) for each in parts)]
        for (row, where), parts in sorted(found.items())
    ]
    return [
        markdown(
            f"size | method | pass@1 where RL trains | with correct working | pass@{K} with it",
            lines,
        ),
        markdown(
            "method minus GRPO | size | pass@1 where RL trains, correct working | "
            f"pass@{K} with it | pass@{K} minus a mixture",
            differences,
        ),
        markdown(
            "size | base | GRPO, pass@1 where RL trains, correct working | GRPO minus base, "
            f"pass@{K} | " + " | ".join(f"`{row}` minus GRPO" for row in RIVALS),
            of_bases,
        ),
    ]


if __name__ == "__main__":
    print("\n".join(tables(counts_of(Path(sys.argv[1])))))
