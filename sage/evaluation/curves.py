"""Correct counts and pass@k curves of graded runs, by problem: what the tables are made from.

A run is a policy on a benchmark; runs that differ in their training seed alone stand together.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd

from sage.evaluation.pass_at_k import pass_at_k, powers_of_two, whole
from sage.fields import BASE
from sage.results import run_at

if TYPE_CHECKING:
    from sage.evaluation.intervals import Groups

POOLED = -1
"""The `train_seed` of a row that pools all training seeds."""

NO_SEED = -2
"""The `train_seed` of a single policy of which no training seed is known: it is compared with each
run of another."""
LEVEL = 0.05
"""A difference is significant where its p, adjusted where there are several, is below this."""

ANSWERS, WORKING = "pass@k", "worked@k"
"""The `metric` of a comparison: what counts is a right answer, or one with correct working."""

Run = tuple[str, str, int, str]
"""model, algorithm, training seed, benchmark."""

Samples = Mapping[Run, pd.DataFrame]
"""Graded samples of each run, as `sage.evaluation.samples` writes them."""


@dataclass(frozen=True)
class Curves:
    """pass@k of a method on a benchmark: `values` `[S, P, K]` by run, problem and `ks`.

    `correct` `[S, P]` are the counts out of `n`, `worked` those with correct working, and `chance`
    `[S, P, K]` pass@k against other problems' answers, NaN where unknown; `problems` are in sorted
    order, `groups` their clusters or strata.
    """

    seeds: tuple[int, ...]
    problems: tuple[str, ...]
    n: int
    ks: np.ndarray
    correct: np.ndarray
    worked: np.ndarray
    values: np.ndarray
    chance: np.ndarray
    groups: Groups | None = None

    def of_working(self) -> Curves | None:
        """The curves of right answers with correct working; None where it is not known."""
        if np.isnan(self.worked).any():
            return None
        worked = whole(self.worked)
        values = pass_at_k(self.n, worked, self.ks)
        return replace(self, correct=worked, values=values)

    def same_as(self, other: Curves) -> bool:
        """Whether every run has the same correct counts in both."""
        sizes = (self.n, self.seeds) == (other.n, other.seeds)
        return sizes and np.array_equal(self.correct, other.correct)


def right_counts(curves: Mapping[str, Curves]) -> tuple[dict[str, np.ndarray], bool]:
    """What counts as right in all of `curves`, `[S, P]` by name, and whether it is correct working.

    That is so where it is known for all of them; else answers count.
    """
    worked = all(not np.isnan(each.worked).any() for each in curves.values())
    return {
        name: whole(each.worked if worked else each.correct) for name, each in curves.items()
    }, worked


def paired_runs(
    one: tuple[str, Sequence[int]], other: tuple[str, Sequence[int]]
) -> tuple[list[int], list[int], list[int]]:
    """Training seeds of two methods, each a name and its seeds, and their places in both.

    These are the seeds in common; every run meets the base and a policy of NO_SEED, which have one
    run and no training seed. Raises ValueError if there are none.
    """
    (name, seeds), (other_name, others) = one, other
    if tuple(others) == (NO_SEED,) or (other_name == BASE and len(others) == 1):
        return list(seeds), list(range(len(seeds))), [0] * len(seeds)
    if tuple(seeds) == (NO_SEED,) or (name == BASE and len(seeds) == 1):
        return list(others), [0] * len(others), list(range(len(others)))
    common = [seed for seed in seeds if seed in others]
    if not common:
        raise ValueError(
            f"{name} and {other_name}: no training seed in common; one has "
            f"{', '.join(map(str, seeds))}, the other {', '.join(map(str, others))}"
        )
    places = [[list(known).index(seed) for seed in common] for known in (seeds, others)]
    return common, places[0], places[1]


def run_of(path: Path) -> Run:
    """The run a file of samples belongs to: …/{model}/{algorithm}/seed{seed}/{benchmark}.parquet.

    Raises ValueError for another kind of path.
    """
    return *run_at(path.parent), path.stem


def curves_of(counts: pd.DataFrame) -> dict[tuple[str, str, str], Curves]:
    """Curves by (model, algorithm, benchmark), in the order of `counts` (`counts_table`).

    Raises ValueError unless all problems of a benchmark were sampled equally often, and the
    same ones in every run of a method.
    """
    groups = counts.groupby(["model", "algorithm", "benchmark"], sort=False)
    return {(str(m), str(a), str(b)): _curves((m, a, b), rows) for (m, a, b), rows in groups}


def run_table(
    counts: pd.DataFrame, measure: Callable[[Curves, slice], Iterable[Mapping[str, Any]]]
) -> pd.DataFrame:
    """What `measure` gives for each run and for all training seeds (POOLED), as a frame.

    It is given the curves of a method and which of their runs, and yields columns. These are
    preceded by model, algorithm, train_seed, benchmark, n_problems and n_samples.
    """
    frames = []
    for (model, algorithm, benchmark), curves in curves_of(counts).items():
        parts = {seed: slice(i, i + 1) for i, seed in enumerate(curves.seeds)}
        for seed, runs in {**parts, POOLED: slice(None)}.items():
            head = {"model": model, "algorithm": algorithm, "train_seed": seed}
            head |= {"benchmark": benchmark, "n_problems": len(curves.problems)}
            head |= {"n_samples": curves.n}
            frames += [pd.DataFrame(head | dict(columns)) for columns in measure(curves, runs)]
    return pd.concat(frames, ignore_index=True)


def samples_each(sizes: pd.Series, run: Sequence[object]) -> int:
    """The number of samples of each problem; `sizes` are by its id.

    Raises ValueError if it is not the same for all.
    """
    n = int(sizes.iloc[0])
    if (sizes != n).any():
        what = ", ".join(str(part) for part in run if part)
        raise ValueError(
            f"{what}: problems have {sizes.min()} to {sizes.max()} samples, but need equally many; "
            f"{str(sizes.idxmin())[:60]!r} has the fewest. Draw those that are missing, or keep "
            "the same number of each"
        )
    return n


def _curves(key: tuple[object, ...], rows: pd.DataFrame) -> Curves:
    from sage.evaluation.intervals import groups_of  # with scipy, which a study is read without

    n = samples_each(rows.set_index("problem_id")["n_samples"], key)
    runs = {int(str(seed)): run for seed, run in rows.groupby("train_seed", sort=False)}
    first = next(iter(runs.values()))
    problems = tuple(first["problem_id"])
    for train_seed, run in runs.items():
        if tuple(run["problem_id"]) != problems:
            raise ValueError(f"{key}, seed {train_seed}: other problems than in the first run")
    ks = powers_of_two(n)
    correct, worked = (
        np.stack([run[name].to_numpy() for run in runs.values()]) for name in ("correct", "worked")
    )
    chance = np.array([[*map(np.asarray, run["chance"])] for run in runs.values()])
    values = pass_at_k(n, correct, ks)
    groups = groups_of(list(first["cluster"]), list(first["stratum"]))
    return Curves(tuple(runs), problems, n, ks, correct, worked, values, chance, groups)
