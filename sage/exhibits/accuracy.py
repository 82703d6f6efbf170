"""Accuracy tables (Tables 1, 3, 4, 9): pass@1 and pass@K of every row on every benchmark.

They are built from pass@k metrics and from paired comparisons. Only the comparisons decide what is
bold. The frame and the CSV file hold shares in [0, 1]; text for readers is in percent. A second
table compares the unbiased estimate with the paper's way of computing pass@k from the same
samples.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any, ClassVar, Literal

import pandas as pd

from sage.exhibits.kind import Shown, TableMaker
from sage.exhibits.paper_reading import reading_document, reading_table
from sage.exhibits.pass_at_k import (
    MeasuredPassAtK,
    OnBenchmarks,
    estimates,
    pooled_pass_at_k,
    shown_ks,
)
from sage.exhibits.rows import require
from sage.rendering.labels import (
    AVERAGE,
    benchmark_titles,
    exhibit_heading,
    interval_name,
    problems_worth,
    row_title,
    seeds_said,
)
from sage.rendering.lines import line_styles
from sage.rendering.numbers import listing
from sage.rendering.table import (
    Group,
    Head,
    Row,
    Table,
    TableDocument,
    share_cell,
)
from sage.study import BASE, ResolvedStudy

LEVEL = 0.05
"""A row is best only if the p of each comparison, adjusted after Holm, is below this."""

BEST, TIE = "best", "tie"
"""Marks: significantly above every other row; not significantly different from the highest row."""

_PARTS = ("value", "low", "high")
_COMPARED = ["model", "benchmark", "algorithm", "other", "metric", "k", "value", "p_holm"]


class AccuracyTable(OnBenchmarks, MeasuredPassAtK):
    """pass@1 and pass@k of every row on every benchmark, with their average (Tables 1, 3, 4, 9)."""

    kind: Literal["accuracy"]

    frames: ClassVar[tuple[str, ...]] = ("pass_at_k", "comparisons", "paper_reading")
    contents: ClassVar[str] = (
        "Pass@1 and pass@K of every method: the unbiased estimate, pooled over training seeds, "
        "as shares between 0 and 1. `low` and `high` bound the 95 % interval over problems (and "
        "over training runs, if there are several). K is the largest k that all methods of a "
        "benchmark share and that one evaluation seed samples. `mark` is `best` if paired "
        "comparisons, adjusted after Holm, put a method above every other; otherwise it is `tie` "
        "for the highest method and for those not significantly different from it. In the table "
        "`…_reading`, `reading` is the paper's estimator: pass@1 from the first sample, and "
        "pass@n from all n samples of a seed. It is the mean over evaluation seeds, with "
        "standard deviation `std`."
    )

    def tables(self) -> Mapping[str, TableMaker]:
        """The accuracies, and the paper's estimator on the same samples."""
        return {"": accuracy_document, "_reading": reading_document}

    def as_in_paper(self, shown: Shown) -> pd.DataFrame:
        """pass@k by the paper's estimator, by benchmark, with its standard deviation over
        evaluation seeds."""
        table = reading_table(
            shown.frame("pass_at_k"), shown.frame("paper_reading"), shown.study, shown.name
        )
        names = {"reading": "value", "std": "measured_std", "n_eval_seeds": "measured_seeds"}
        named = table.drop(columns="value").rename(columns=names)
        named = named.assign(quantity=[f"pass@{k}" for k in named["k"]])
        return named[["benchmark", "algorithm", "quantity", *names.values()]]


def accuracy_document(shown: Shown) -> TableDocument:
    """The table of accuracies."""
    study, name = shown.study, shown.name
    pass_at_k = shown.frame("pass_at_k")
    frame = accuracy_table(pass_at_k, shown.frame("comparisons"), study, name)
    return TableDocument(
        frame,
        accuracy_view(frame, study),
        accuracy_caption(pass_at_k, study, name),
        flat=flat_cells(frame, study, study.study.exhibits[name].title),
    )


def accuracy_table(
    pass_at_k: pd.DataFrame, comparisons: pd.DataFrame, study: ResolvedStudy, exhibit: str
) -> pd.DataFrame:
    """The frame of an accuracy exhibit: a row for each algorithm, in the exhibit's order.

    `pass_at_k` and `comparisons` have the columns of their Parquet files in metrics/. Columns:
    `algorithm`, `title`, then for each benchmark and k (1 and the largest k that its rows share,
    see `shown_ks`) four columns: ``{benchmark} pass@{k} value``, ``… low``, ``… high`` (shares in
    [0, 1]; NaN if a run is missing) and ``… mark`` (BEST, TIE or empty).

    With several benchmarks the group `average` follows, up to the k that all share. Its interval
    is computed as a claim's contrast over the same benchmarks (`sage.evaluation.averages`). The
    ledger of claims compares averages, so here they have no marks.

    Raises ValueError for faulty metrics and for a benchmark called `average`.
    """
    from sage.evaluation.averages import PART_COLUMNS

    require(comparisons, _COMPARED, "comparisons")
    model, benchmarks = study.study.exhibits[exhibit].model, study.benchmarks_of(exhibit)
    if AVERAGE in benchmarks:
        raise ValueError(
            f"{exhibit}: the benchmark name {AVERAGE!r} is reserved for the average; rename "
            "the problem set"
        )
    rows = pooled_pass_at_k(pass_at_k, study, exhibit)
    require(rows, PART_COLUMNS, "pass@k metrics")
    samples = study.evaluation(model).samples
    compared = comparisons[(comparisons["model"] == model) & (comparisons["metric"] == "pass@k")]
    algorithms = study.rows_of(exhibit)
    columns: dict[str, list[Any]] = {
        "algorithm": algorithms,
        "title": [row_title(study, name) for name in algorithms],
    }
    for benchmark in benchmarks:
        for k in shown_ks(rows[rows["benchmark"] == benchmark], samples):
            found = estimates(rows, benchmark, k, algorithms, _PARTS)
            here = compared[(compared["benchmark"] == benchmark) & (compared["k"] == k)]
            columns |= _column_group(benchmark, k, found, marks_of(found["value"], here))
    if len(benchmarks) > 1:
        for k in shown_ks(rows, samples):
            averages = _averages(rows[rows["k"] == k], benchmarks, algorithms)
            columns |= _column_group(AVERAGE, k, averages, [""] * len(algorithms))
    return pd.DataFrame(columns)


def column_groups(table: pd.DataFrame) -> dict[str, list[int]]:
    """Benchmarks of an accuracy frame with their k, in the order of the columns."""
    groups: dict[str, list[int]] = {}
    for column in table.columns:
        if column.endswith(" value"):
            benchmark, metric, _ = column.split(" ")
            groups.setdefault(benchmark, []).append(int(metric.removeprefix("pass@")))
    return groups


def estimate(table: pd.DataFrame, row: int, benchmark: str, k: int) -> tuple[float, float, float]:
    """(value, low, high) of a row of an accuracy frame; NaN if the run is missing."""
    columns = [f"{benchmark} pass@{k} {part}" for part in _PARTS]
    value, low, high = table.iloc[row][columns].astype(float).tolist()
    return value, low, high


def accuracy_caption(pass_at_k: pd.DataFrame, study: ResolvedStudy, exhibit: str) -> str:
    """The caption of an accuracy table: intervals, marks, the weight of one problem."""
    rows = pooled_pass_at_k(pass_at_k, study, exhibit)
    titles = benchmark_titles(study)
    sizes = {
        titles[name]: int(rows.loc[rows["benchmark"] == name, "n_problems"].iloc[0])
        for name in study.benchmarks_of(exhibit)
        if (rows["benchmark"] == name).any()
    }
    evaluation = study.evaluation(study.study.exhibits[exhibit].model)
    samples = f"{evaluation.samples} samples per problem"
    if len(evaluation.seeds) > 1:
        samples += f" and evaluation seed ({len(evaluation.seeds)} seeds)"
    sentences = [
        f"{exhibit_heading(study, exhibit)}: pass@k in percent, the unbiased estimate from "
        f"{samples}.",
        f"Below each value: {interval_name(study)}.",
        seeds_said(study),
        problems_worth(sizes),
        f"Bold: above every other method in a paired comparison {_compared_over(study)} (p < "
        f"{LEVEL:g}, adjusted after Holm for all comparisons of this model at that k). ≈: no "
        "method is bold, and this one is the highest or not significantly different from it.",
        "Averages are compared in the ledger of claims." if len(sizes) > 1 else "",
    ]
    return " ".join(filter(None, sentences))


def accuracy_view(table: pd.DataFrame, study: ResolvedStudy) -> Table:
    """An accuracy frame as a table in percent, with its marks."""
    titles, styles, groups = benchmark_titles(study), line_styles(study), column_groups(table)
    places = [(name, k) for name, ks in groups.items() for k in ks]
    rows = []
    for row in range(len(table)):
        algorithm = str(table.loc[row, "algorithm"])
        cells = [
            share_cell(*estimate(table, row, *place), _mark(table, row, *place)) for place in places
        ]
        title = str(table.loc[row, "title"])
        rows.append(Row(title, tuple(cells), styles[algorithm], algorithm == BASE))
    heads = [Head(titles[name], tuple(f"pass@{k}" for k in ks)) for name, ks in groups.items()]
    return Table("Algorithm", tuple(heads), (Group("", tuple(rows)),))


def flat_cells(table: pd.DataFrame, study: ResolvedStudy, title: str) -> str:
    """Cells of an accuracy frame with an interval of width zero, as one line; empty if there are
    none."""
    titles, places = benchmark_titles(study), []
    for benchmark, ks in column_groups(table).items():
        for k in ks:
            values = [estimate(table, row, benchmark, k) for row in range(len(table))]
            flat = [row for row, value in enumerate(values) if value[1] == value[2]]
            if flat and benchmark != AVERAGE:
                rows = (
                    "every row"
                    if len(flat) == len(table)
                    else listing([str(table["title"].iloc[row]) for row in flat], most=4)
                )
                places.append(f"{titles[benchmark]} at k = {k} ({rows})")
    return f"{title}: {', '.join(places)}" if places else ""


def _mark(table: pd.DataFrame, row: int, benchmark: str, k: int) -> str:
    return str(table[f"{benchmark} pass@{k} mark"].iloc[row])


def _compared_over(study: ResolvedStudy) -> str:
    if study.numbers_of_runs() == [1]:
        return "over problems, which holds for these training runs only"
    return "over problems and training runs, whose variances add"


def marks_of(values: pd.Series, compared: pd.DataFrame) -> list[str]:
    """BEST, TIE or empty for the rows of `values` (by algorithm), from their comparisons."""
    present = values.dropna()
    if len(present) < 2:
        return [""] * len(values)
    leader = str(present.idxmax())
    told = {
        str(row["other"] if ahead else row["algorithm"])
        for row in compared.to_dict("records")
        if row["p_holm"] < LEVEL
        for ahead in (row["algorithm"] == leader,)
        if leader in (row["algorithm"], row["other"]) and (row["value"] > 0) == ahead
    }
    rivals = set(present.index) - {leader} - told
    if not rivals:
        return [BEST if name == leader else "" for name in values.index]
    return [TIE if name == leader or name in rivals else "" for name in values.index]


def _averages(
    rows: pd.DataFrame, benchmarks: Sequence[str], algorithms: Sequence[str]
) -> pd.DataFrame:
    """Means over `benchmarks` of pooled rows of one k, by algorithm; NaN if a run is missing."""
    from sage.evaluation.averages import average_share  # with scipy, which a study is read without

    by_place = {(row["algorithm"], row["benchmark"]): row for row in rows.to_dict("records")}
    found: list[tuple[float, ...]] = []
    for algorithm in algorithms:
        ours = [by_place.get((algorithm, benchmark)) for benchmark in benchmarks]
        present = [row for row in ours if row is not None]
        complete = len(present) == len(benchmarks)
        found.append(average_share(present) if complete else (math.nan,) * len(_PARTS))
    return pd.DataFrame(found, columns=list(_PARTS), index=list(algorithms))


def _column_group(
    benchmark: str, k: int, found: pd.DataFrame, marks: Sequence[str]
) -> dict[str, list[Any]]:
    group: dict[str, list[Any]] = {
        f"{benchmark} pass@{k} {part}": found[part].tolist() for part in _PARTS
    }
    return group | {f"{benchmark} pass@{k} mark": list(marks)}
