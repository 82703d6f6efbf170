"""Samples of made methods, a row for each completion, and how the comparison reads them."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pandas as pd

from sage.evaluation.foreign_samples import Method, read_methods


def rows(
    right: Sequence[int], n: int = 4, seeds: Sequence[int | None] = (None,), first: int = 0
) -> pd.DataFrame:
    """`right` of `n` numbered samples of each problem are correct, in each of `seeds`."""
    table = pd.DataFrame(
        [
            (f"p{problem}", seed, sample + first, sample < correct)
            for seed in seeds
            for problem, correct in enumerate(right)
            for sample in range(n)
        ],
        columns=["problem_id", "seed", "sample", "correct"],
    )
    return table.drop(columns="seed") if list(seeds) == [None] else table


def one(path: Path, only: Sequence[str] = (), **columns: str) -> Method:
    (method,) = read_methods([("a", path)], columns, only).values()
    return method
