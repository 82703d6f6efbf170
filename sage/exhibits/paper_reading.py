"""The paper's pass@k beside the unbiased estimate, for an accuracy exhibit.

The paper's pass@1 is the share of problems with a correct first sample. Its pass@n is the share of
problems with any correct sample among n. Both are given as mean and standard deviation over
evaluation seeds.
"""

from __future__ import annotations

import pandas as pd

from sage.exhibits.kind import Display
from sage.exhibits.pass_at_k import estimates, pooled, shown_ks
from sage.rendering.numbers import NONE, percent
from sage.rendering.table import (
    Cell,
    Group,
    Head,
    Record,
    Table,
    TableDocument,
    algorithm_row,
    share_cell,
)

COLUMNS = ["algorithm", "title", "benchmark", "k", "value", "low", "high"]
COLUMNS += ["reading", "std", "n_eval_seeds"]


def reading_table(display: Display) -> TableDocument:
    """The paper's estimator on the same samples."""
    frame = _frame(display)
    return TableDocument(
        frame,
        _view(frame, display),
        _caption(display),
        summary="The paper’s estimator on the same samples",
    )


def _frame(display: Display) -> pd.DataFrame:
    """COLUMNS, a row for each benchmark, algorithm and k of the accuracy table.

    `value`, `low` and `high` are the unbiased estimate with its interval. `reading` and `std` are
    the paper's estimate over `n_eval_seeds` evaluation seeds of all training runs (`std` is that
    within a run, NaN if a run has one evaluation seed). Shares are in [0, 1], NaN if a run is
    missing.
    """
    rows = pooled(display.frame("pass_at_k"), display)
    read = pooled(display.frame("paper_reading"), display)
    frames = []
    for benchmark in display.benchmarks:
        for k in shown_ks(rows[rows["benchmark"] == benchmark], display.evaluation.samples):
            unbiased = estimates(rows, benchmark, k, display.rows)
            parts = ("value", "std", "n_eval_seeds")
            theirs = estimates(read, benchmark, k, display.rows, parts)
            joined = unbiased.join(theirs.rename(columns={"value": "reading"}))
            joined = joined.rename_axis("algorithm").reset_index()
            frames.append(joined.assign(benchmark=benchmark, k=k))
    table = pd.concat(frames, ignore_index=True)
    table["title"] = [display.title(row) for row in table["algorithm"]]
    table["n_eval_seeds"] = table["n_eval_seeds"].fillna(0).astype(int)
    return table[COLUMNS]


def _caption(display: Display) -> str:
    """What the two estimators are."""
    samples = display.evaluation.samples
    spread = (
        "as mean ± standard deviation over the evaluation seeds of a training run (not a standard "
        "error, and not an interval over problems)"
        if len(display.evaluation.seeds) > 1
        else "from one evaluation seed, so without a standard deviation"
    )
    return (
        f"{display.heading}: two estimators on the same samples, in percent. "
        "Unbiased: expected value over all samples of a problem. As in the paper: pass@1 from "
        f"the first sample only, pass@{samples} from all {samples} samples of a seed, {spread}."
    )


def _view(frame: pd.DataFrame, display: Display) -> Table:
    """A group of rows for each benchmark, both estimators for each k."""
    ks, groups = sorted({int(k) for k in frame["k"]}), []
    for benchmark, of_benchmark in frame.groupby("benchmark", sort=False):
        rows = []
        for algorithm, estimates_of_row in of_benchmark.groupby("algorithm", sort=False):
            by_k = estimates_of_row.set_index("k").to_dict("index")
            cells = [cell for k in ks for cell in _cells(by_k.get(k))]
            rows.append(algorithm_row(display.study, str(algorithm), cells))
        groups.append(Group(display.titles[str(benchmark)], tuple(rows)))
    heads = tuple(Head(f"pass@{k}", ("unbiased", "as in the paper")) for k in ks)
    return Table("Method", heads, tuple(groups))


def _cells(row: Record | None) -> tuple[Cell, Cell]:
    """The unbiased estimate and the paper's."""
    nothing = Cell(NONE, mark="nil")
    if row is None or pd.isna(row["value"]):
        return nothing, nothing
    unbiased = share_cell(row["value"], row["low"], row["high"])
    if pd.isna(row["reading"]):
        return unbiased, nothing
    spread = "" if pd.isna(row["std"]) else f"± {percent(row['std'])}"
    return unbiased, Cell(percent(row["reading"]), spread)
