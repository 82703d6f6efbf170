"""What a comparison of samples rests on, in words: files, runs, pairs of runs, and k."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import pandas as pd

from sage.evaluation.curves import NO_SEED
from sage.evaluation.foreign_samples import Method

NAMED = 3
"""Files that are named; of more the number is told."""


def numbers_text(numbers: Sequence[int]) -> str:
    return ", ".join(map(str, numbers))


def basis(method: Method, benchmark: str) -> str:
    """What a method's numbers on a benchmark rest on: samples, runs, files, verdicts lacking."""
    own = method.counts[method.counts["benchmark"] == benchmark]
    runs = sorted({*map(int, own["train_seed"])})
    if runs == [NO_SEED]:
        trained = "1 run without a seed"
    elif method.seeds:
        trained = (
            f"{count_text(len(runs), 'run')} (seed{'s' * (len(runs) > 1)} {numbers_text(runs)})"
        )
    else:
        trained = f"{len(runs)} runs without seeds, numbered in the order of their files"
    files = [file.name for file in method.files]
    where = ", ".join(files) if len(files) <= NAMED else f"{len(files)} files"
    least, most = int(own["n_samples"].min()), int(own["n_samples"].max())
    each = f"{least}" if least == most else f"{least} to {most}"
    parts = [f"{count_text(each, 'sample')} of each problem", trained, f"from {where}"]
    lacking = sum(n for (name, _), n in method.unscored.items() if name == benchmark)
    if lacking:
        total = int(own["n_samples"].sum())
        parts.append(f"{lacking} of {total} samples have no verdict and count as wrong")
    if not {method.columns[0]} <= {"problem", "problem_id"} or method.columns[1] != "correct":
        parts.append("by its columns {} and {}".format(*method.columns))
    return "; ".join([", ".join(parts), *method.notes])


def count_text(number: int | str, thing: str) -> str:
    return f"{number} {thing}{'s' * (str(number) != '1')}"


def pairing(row: Mapping[Any, Any], curves: pd.DataFrame) -> str:
    """Which runs a difference is of, where it is not of all runs of both; "" if it is.

    `row` is a row of the differences, `curves` those of its benchmark and k.
    """
    runs = zip(curves["algorithm"], curves["train_seeds"], strict=True)
    seeds = {name: list(map(int, own)) for name, own in runs}
    one, two = (seeds[row[name]] for name in ("algorithm", "other"))
    common = [*map(int, row["train_seeds"])]
    for name, own, other in ((row["algorithm"], one, two), (row["other"], two, one)):
        if own == [NO_SEED] and len(other) > 1:
            return f", of {name}'s one run and each run of the other"
    if one == two == common or NO_SEED in (*one, *two):
        return ""
    alone = [
        f"{row[name]} also has {numbers_text(left)}"
        for name, own in (("algorithm", one), ("other", two))
        if (left := sorted(set(own) - set(common)))
    ]
    return f", of run{'s' * (len(common) > 1)} {numbers_text(common)} of both ({'; '.join(alone)})"


def shown_k(curves: pd.DataFrame, k: int | None) -> list[int]:
    """1 and `k`; if it is None, the largest power of two with 2k samples of each problem.

    `curves` are those of one benchmark. Raises ValueError for a k that a method does not have.
    """
    n = int(curves["n_samples"].min())
    ks = sorted({1, 2 ** max((n // 2).bit_length() - 1, 0) if k is None else k})
    known = {one for one in curves["k"] if one <= n}
    if missing := set(ks) - known:
        raise ValueError(
            f"--k {missing.pop()}: with {n} samples of a problem it can be "
            f"{numbers_text(sorted(known))}"
        )
    return ks
