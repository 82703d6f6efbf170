"""The paper's pass@k beside the unbiased estimate, for an accuracy exhibit.

The paper's pass@1 is the share of problems with a correct first sample. Its pass@n is the share of
problems with any correct sample among n. Both are given as mean and standard deviation over
evaluation seeds.
"""

from __future__ import annotations

import pandas as pd

from sage.exhibits.kind import Shown
from sage.exhibits.pass_at_k import estimates, of_exhibit, pooled_pass_at_k, shown_ks
from sage.exhibits.rows import require
from sage.rendering.labels import benchmark_titles, exhibit_heading, row_title
from sage.rendering.numbers import NONE, percent
from sage.rendering.table import (
    Cell,
    Group,
    Head,
    Table,
    TableDocument,
    algorithm_row,
    share_cell,
)
from sage.study import ResolvedStudy

COLUMNS = [
    "algorithm",
    "title",
    "benchmark",
    "k",
    "value",
    "low",
    "high",
    "reading",
    "std",
    "n_eval_seeds",
]

_READ = [
    "model",
    "algorithm",
    "train_seed",
    "benchmark",
    "metric",
    "k",
    "value",
    "std",
    "n_eval_seeds",
]


def reading_document(shown: Shown) -> TableDocument:
    """The paper's estimator on the same samples."""
    frame = reading_table(
        shown.frame("pass_at_k"), shown.frame("paper_reading"), shown.study, shown.name
    )
    return TableDocument(
        frame,
        reading_view(frame, shown.study),
        reading_caption(shown.study, shown.name),
        summary="The paper’s estimator on the same samples",
    )


def reading_table(
    pass_at_k: pd.DataFrame, paper_reading: pd.DataFrame, study: ResolvedStudy, exhibit: str
) -> pd.DataFrame:
    """COLUMNS, a row for each benchmark, algorithm and k of the accuracy table.

    `value`, `low` and `high` are the unbiased estimate with its interval. `reading` and `std` are
    the paper's estimate over `n_eval_seeds` evaluation seeds of all training runs (`std` is NaN
    for one seed). Shares are in [0, 1], NaN if a run is missing. Raises ValueError for faulty
    metrics.
    """
    require(paper_reading, _READ, "the paper's reading")
    rows = pooled_pass_at_k(pass_at_k, study, exhibit)
    read = of_exhibit(
        paper_reading[paper_reading["metric"] == "pass@k"], study, exhibit, "the paper's reading"
    )
    algorithms = study.rows_of(exhibit)
    samples = study.evaluation(study.study.exhibits[exhibit].model).samples
    frames = []
    for benchmark in study.benchmarks_of(exhibit):
        for k in shown_ks(rows[rows["benchmark"] == benchmark], samples):
            unbiased = estimates(rows, benchmark, k, algorithms, ("value", "low", "high"))
            theirs = estimates(read, benchmark, k, algorithms, ("value", "std", "n_eval_seeds"))
            joined = unbiased.join(theirs.rename(columns={"value": "reading"}))
            joined = joined.rename_axis("algorithm").reset_index()
            frames.append(joined.assign(benchmark=benchmark, k=k))
    table = pd.concat(frames, ignore_index=True)
    table["title"] = [row_title(study, name) for name in table["algorithm"]]
    table["n_eval_seeds"] = table["n_eval_seeds"].fillna(0).astype(int)
    return table[COLUMNS]


def reading_caption(study: ResolvedStudy, exhibit: str) -> str:
    """The caption: what the two estimators are."""
    evaluation = study.evaluation(study.study.exhibits[exhibit].model)
    several = len(evaluation.seeds) * study.numbers_of_runs()[-1] > 1
    spread = (
        "as mean ± standard deviation over evaluation seeds (not a standard error, and not an "
        "interval over problems)"
        if several
        else "from the only evaluation seed, so without a standard deviation"
    )
    return (
        f"{exhibit_heading(study, exhibit)}: two estimators on the same samples, in percent. "
        "Unbiased: expected value over all samples of a problem. As in the paper: pass@1 from "
        f"the first sample only, pass@{evaluation.samples} from all {evaluation.samples} samples "
        f"of a seed, {spread}."
    )


def reading_view(table: pd.DataFrame, study: ResolvedStudy) -> Table:
    """Two estimators on the same samples, a block of rows for each benchmark."""
    titles, ks = benchmark_titles(study), sorted({int(k) for k in table["k"]})
    groups = []
    for benchmark, of in table.groupby("benchmark", sort=False):
        rows = []
        for algorithm, found in of.groupby("algorithm", sort=False):
            by_k = found.set_index("k").to_dict("index")
            cells = []
            for k in ks:
                row = by_k.get(k)
                if row is None or pd.isna(row["value"]):
                    cells += [Cell(NONE, mark="nil")] * 2
                    continue
                cells.append(share_cell(row["value"], row["low"], row["high"]))
                if pd.isna(row["reading"]):
                    cells.append(Cell(NONE, mark="nil"))
                    continue
                spread = "" if pd.isna(row["std"]) else f"± {percent(row['std'])}"
                cells.append(Cell(percent(row["reading"]), spread))
            rows.append(algorithm_row(study, str(algorithm), cells))
        groups.append(Group(titles[str(benchmark)], tuple(rows)))
    heads = tuple(Head(f"pass@{k}", ("unbiased", "as in the paper")) for k in ks)
    return Table("Algorithm", heads, tuple(groups))
