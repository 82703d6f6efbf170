"""Shared by tables and curves of pass@k: pooled rows, comparisons, estimates and their marks."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from typing import Annotated, ClassVar

import pandas as pd
from pydantic import Field

from sage.evaluation.curves import ANSWERS, LEVEL, POOLED
from sage.exhibits.kind import Display, Kind
from sage.fields import Positive
from sage.rendering.table import Cell, Record, share_cell
from sage.study import BASE, ResolvedStudy
from sage.study.exhibit import Exhibit, ExhibitOfRows, Rows, Surroundings

BEST, TIE = "best", "tie"
"""Marks: significantly above every other method; not significantly different from the highest."""

PARTS = ["value", "low", "high"]


class ShowsPassAtK(Kind):
    """A kind that shows pass@k of its methods on its benchmarks."""

    needs: ClassVar[tuple[str, ...]] = ()

    def evaluated(self, study: ResolvedStudy) -> list[tuple[str, str]]:
        return [(self.model, benchmark) for benchmark in self.benchmarks_of(study)]


class OnBenchmarks(ExhibitOfRows):
    """An exhibit that may name its benchmarks."""

    benchmarks: Rows | None = None
    """problem sets, in order; left out, those of its model"""

    def benchmarks_of(self, study: ResolvedStudy) -> list[str]:
        return list(self.benchmarks or study.model(self.model).benchmarks)


class WithCoverage(Exhibit):
    """An exhibit of pass@1 and of pass@k at one k."""

    k: Annotated[Positive, Field(ge=2)] | None = None
    """k of the coverage, a power of two; left out, the study's primary k [samples]"""

    def faults(self, around: Surroundings) -> Iterator[tuple[str, str]]:
        """A k that is no power of two, or above what is drawn."""
        if self.k and self.k & (self.k - 1):
            yield "k", f"{self.k} is not a power of two, for which pass@k is measured"
        yield from around.too_many("k", self.k, around.eval_seeds)


def pooled(metrics: pd.DataFrame, display: Display) -> pd.DataFrame:
    """The rows of pass@k metrics that an exhibit shows, pooled over training seeds.

    `base` has no training seed: if it has no pooled row, the row of seed 0 is used. Raises
    ValueError if a method has seeds but no pooled row.
    """
    rows = metrics[
        (metrics["metric"] == "pass@k")
        & (metrics["model"] == display.exhibit.model)
        & metrics["algorithm"].isin(display.rows)
        & metrics["benchmark"].isin(display.benchmarks)
    ]
    chosen = rows["train_seed"] == POOLED
    if not (rows[chosen]["algorithm"] == BASE).any():
        chosen |= (rows["algorithm"] == BASE) & (rows["train_seed"] == 0)
    lacking = sorted(set(rows["algorithm"]) - set(rows[chosen]["algorithm"]))
    if lacking:
        raise ValueError(
            f"pass@k metrics for {display.name}: no pooled rows (train_seed {POOLED}) for "
            f"{', '.join(lacking)}; the evaluation writes them beside the rows of each seed"
        )
    return rows[chosen].reset_index(drop=True)


def compared(comparisons: pd.DataFrame, display: Display) -> pd.DataFrame:
    """Comparisons of an exhibit's methods on its benchmarks, adjusted as families of their own."""
    from sage.evaluation.comparisons import adjusted  # with scipy, which a study is read without

    rows = comparisons[
        (comparisons["metric"] == ANSWERS)
        & (comparisons["model"] == display.exhibit.model)
        & comparisons["algorithm"].isin(display.rows)
        & comparisons["other"].isin(display.rows)
        & comparisons["benchmark"].isin(display.benchmarks)
    ]
    return adjusted(rows)


def differences(comparisons: pd.DataFrame, display: Display, other: str) -> pd.DataFrame:
    """Comparisons of an exhibit's methods with `other`, as `compared` has them: method minus other.

    Where that is the other way round than in the file, `sign` is -1; PART_COLUMNS
    (`sage.evaluation.comparisons`) stay as they are.
    """
    rows = compared(comparisons, display)
    turned = rows[rows["algorithm"] == other].assign(sign=-1)
    names = {"algorithm": "other", "other": "algorithm", "low": "high", "high": "low"}
    turned = turned.rename(columns=names)
    turned[["value", "low", "high"]] *= -1
    return pd.concat([rows[rows["other"] == other].assign(sign=1), turned], ignore_index=True)


def numbers_of_runs(rows: pd.DataFrame) -> list[int]:
    """How many training runs the methods of pooled rows have, each number once, ascending.

    0 if nothing was trained.
    """
    trained = rows.loc[rows["algorithm"] != BASE, "train_seeds"]
    return sorted({len(seeds) for seeds in trained}) or [0]


def shown_ks(rows: pd.DataFrame, most: int) -> list[int]:
    """1 and the largest k up to `most` that all of `rows` share, by method and benchmark."""
    groups = rows.groupby(["algorithm", "benchmark"])["k"]
    of_each = [set(group.astype(int)) for _, group in groups]
    shared = set.intersection(*of_each) if of_each else set()
    return sorted({1, max((k for k in shared if k <= most), default=1)})


def estimates(
    rows: pd.DataFrame,
    benchmark: str,
    k: int,
    algorithms: Sequence[str],
    parts: Collection[str] = PARTS,
) -> pd.DataFrame:
    """Columns `parts` of pooled rows, one row for each algorithm; NaN if there is none."""
    chosen = rows[(rows["benchmark"] == benchmark) & (rows["k"] == k)].set_index("algorithm")
    if not chosen.index.is_unique:
        raise ValueError(f"pass@k metrics: several pooled rows for {benchmark!r}, k = {k}")
    return chosen[list(parts)].astype(float).reindex(list(algorithms))


def marks_of(values: pd.Series, compared: pd.DataFrame) -> list[str]:
    """BEST, TIE or empty for the rows of `values` (by method), from their comparisons."""
    present = values.dropna()
    if len(present) < 2:
        return [""] * len(values)
    leader = str(present.idxmax())
    clear = compared[compared["p_holm"] < LEVEL]
    below = {
        *clear.loc[(clear["algorithm"] == leader) & (clear["value"] > 0), "other"],
        *clear.loc[(clear["other"] == leader) & ~(clear["value"] > 0), "algorithm"],
    }
    rivals = {*present.index} - {leader} - below
    tied = {leader, *rivals} if rivals else set()
    return [TIE if name in tied else BEST if name == leader else "" for name in values.index]


def estimate_columns(start: str, measured: pd.DataFrame, marks: Sequence[str]) -> pd.DataFrame:
    """Columns ``{start} value``, ``… low``, ``… high`` and ``… mark`` of estimates."""
    return measured.add_prefix(f"{start} ").assign(**{f"{start} mark": marks})


def estimate_cell(start: str, record: Record) -> Cell:
    """The cell of such columns."""
    return share_cell(*(record[f"{start} {part}"] for part in (*PARTS, "mark")))


def sizes(rows: pd.DataFrame, display: Display) -> dict[str, int]:
    """Numbers of problems of the exhibit's benchmarks that `rows` has, by title."""
    first = rows.drop_duplicates("benchmark").set_index("benchmark")["n_problems"]
    return {display.titles[name]: int(first[name]) for name in display.benchmarks if name in first}


def samples_said(display: Display) -> str:
    """How many samples of a problem estimates are from."""
    samples, seeds = display.evaluation.samples, len(display.evaluation.seeds)
    said = f"{samples} samples per problem"
    return f"{said} and evaluation seed ({seeds} seeds)" if seeds > 1 else said


def marks_said(over: str, among: str) -> str:
    """What bold and ≈ mean, as sentences: what comparisons are over, and adjusted among."""
    return (
        f"Bold: above every other method in a paired comparison{over} (p < {LEVEL:g}, adjusted "
        f"after Holm for {among}). ≈: no method is bold, and this one is the "
        "highest or not significantly different from it."
    )
