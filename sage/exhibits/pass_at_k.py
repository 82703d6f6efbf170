"""Shared by tables and curves of pass@k: measuring it, and rows pooled over training seeds."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from typing import Annotated, Any, ClassVar

import pandas as pd
from pydantic import Field

from sage.evaluation.curves import POOLED
from sage.exhibits.kind import Kind, Measuring
from sage.exhibits.rows import require
from sage.fields import about
from sage.study import BASE, ResolvedStudy
from sage.study.exhibit import Exhibit, ExhibitOfRows, Rows, Surroundings

COLUMNS = ["model", "algorithm", "train_seed", "benchmark", "metric", "k", "value", "low", "high"]


class MeasuredPassAtK(Kind):
    """A kind that measures pass@k of its rows on its benchmarks."""

    frames: ClassVar[tuple[str, ...]] = ("pass_at_k",)
    """Tables of `sage.evaluation.metrics` that it needs."""

    measured_by: ClassVar[tuple[str, ...]] = ("sage.evaluation.metrics",)

    def settings(self, study: ResolvedStudy, name: str) -> dict[str, Any]:
        """See `Kind`."""
        return {"bootstrap": study.study.evaluation.bootstrap}

    def measure(self, job: Measuring) -> None:
        """Write `frames`."""
        from sage.evaluation.metrics import write_metrics

        tables = {name: job.folder / f"{name}.parquet" for name in self.frames}
        write_metrics(job.files["samples"], job.settings["bootstrap"], tables)


class OnBenchmarks(ExhibitOfRows):
    """An exhibit that may name its benchmarks."""

    benchmarks: Annotated[
        Rows | None, about("problem sets, in order; left out, those of its model")
    ] = None

    def benchmarks_of(self, study: ResolvedStudy) -> list[str]:
        """See `Exhibit`."""
        return list(self.benchmarks or study.model(self.model).benchmarks)


class WithCoverage(Exhibit):
    """An exhibit of pass@1 and of pass@k at one k."""

    k: Annotated[
        Annotated[int, Field(ge=2)] | None,
        about(
            "k of the coverage, a power of two; left out, the largest that one evaluation seed "
            "samples",
            unit="samples",
        ),
    ] = None

    def faults(self, around: Surroundings) -> Iterator[tuple[str, str]]:
        """A k that is no power of two, or above what is drawn."""
        if self.k and self.k & (self.k - 1):
            yield "k", f"{self.k} is not a power of two, for which pass@k is measured"
        drawn = (around.drawn or 0) * (around.eval_seeds or 0)
        if self.k and drawn and self.k > drawn:
            yield (
                "k",
                f"{self.k}, but only {drawn} samples of a problem are drawn; lower it, or raise "
                "evaluation.samples",
            )


def pooled_pass_at_k(pass_at_k: pd.DataFrame, study: ResolvedStudy, exhibit: str) -> pd.DataFrame:
    """The rows of `metrics/pass_at_k.parquet` that an exhibit shows.

    These are the rows of its model, algorithms and benchmarks with train_seed POOLED. Raises
    ValueError if a column is missing or if an algorithm has seeds but no pooled row.
    """
    require(pass_at_k, COLUMNS, "pass@k metrics")
    rows = pass_at_k[pass_at_k["metric"] == "pass@k"]
    return of_exhibit(rows, study, exhibit, "pass@k metrics")


def of_exhibit(
    metrics: pd.DataFrame, study: ResolvedStudy, exhibit: str, what: str
) -> pd.DataFrame:
    """Pooled rows of an exhibit from metrics of runs; `what` names the metrics in an error.

    `base` has no training seed: if it has no pooled row, the row of seed 0 is used.
    """
    rows = metrics[
        (metrics["model"] == study.study.exhibits[exhibit].model)
        & metrics["algorithm"].isin(study.rows_of(exhibit))
        & metrics["benchmark"].isin(study.benchmarks_of(exhibit))
    ]
    pooled = rows["train_seed"] == POOLED
    if not (rows[pooled]["algorithm"] == BASE).any():
        pooled |= (rows["algorithm"] == BASE) & (rows["train_seed"] == 0)
    lacking = sorted(set(rows["algorithm"]) - set(rows[pooled]["algorithm"]))
    if lacking:
        raise ValueError(
            f"{what} for {exhibit}: no pooled rows (train_seed {POOLED}) for "
            f"{', '.join(lacking)}; the evaluation writes them beside the rows of each seed"
        )
    return rows[pooled].reset_index(drop=True)


def shown_ks(rows: pd.DataFrame, samples: int) -> list[int]:
    """1 and the largest k up to `samples` that all of `rows` share, by algorithm and benchmark.

    `samples` is the number that one evaluation seed draws of a problem, the paper's k. With
    several evaluation seeds the estimate uses all of their samples, so at this k it has far more
    than k samples.
    """
    groups = rows.groupby(["algorithm", "benchmark"])["k"]
    of_each = [set(group.astype(int)) for _, group in groups]
    shared = set.intersection(*of_each) if of_each else set()
    return sorted({1, max((k for k in shared if k <= samples), default=1)})


def estimates(
    rows: pd.DataFrame, benchmark: str, k: int, algorithms: Sequence[str], parts: Collection[str]
) -> pd.DataFrame:
    """Columns `parts` of pooled rows, one row for each algorithm; NaN if there is none."""
    chosen = rows[(rows["benchmark"] == benchmark) & (rows["k"] == k)].set_index("algorithm")
    if not chosen.index.is_unique:
        raise ValueError(f"pass@k metrics: several pooled rows for {benchmark!r}, k = {k}")
    return chosen[list(parts)].astype(float).reindex(list(algorithms))
