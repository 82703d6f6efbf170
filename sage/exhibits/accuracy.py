"""Accuracy tables (Tables 1, 3, 4, 9): pass@1 and pass@K of every method on every benchmark.

They are built from pass@k metrics and from paired comparisons. Only the comparisons decide what is
bold. The frame and the CSV file hold shares in [0, 1]; text for readers is in percent. A second
table compares the unbiased estimate with the paper's way of computing pass@k from the same
samples.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any, ClassVar, Literal

import pandas as pd

from sage.exhibits.kind import Display
from sage.exhibits.paper_reading import reading_table
from sage.exhibits.pass_at_k import (
    PARTS,
    OnBenchmarks,
    ShowsPassAtK,
    compared,
    differences,
    estimate_cell,
    estimate_columns,
    estimates,
    marks_of,
    marks_said,
    numbers_of_runs,
    pooled,
    shown_ks,
    sizes,
)
from sage.rendering.labels import AVERAGE, interval_name, problems_worth, seeds_said
from sage.rendering.numbers import interval_of_points, listing, points
from sage.rendering.table import (
    Cell,
    Head,
    Record,
    Table,
    TableDocument,
    algorithm_row,
    algorithm_table,
)


class AccuracyTable(OnBenchmarks, ShowsPassAtK):
    """pass@1 and pass@k of every method on every benchmark, and their mean (Tables 1, 3, 4, 9)."""

    kind: Literal["accuracy"]

    contents: ClassVar[str] = (
        "Pass@1 and pass@K of every method: the unbiased estimate, pooled over training seeds, "
        "as shares between 0 and 1. `low` and `high` bound the 95 % interval over problems (and "
        "over training runs, if there are several). K is the study's primary k. `mark` is `best` "
        "if paired comparisons, adjusted after Holm, put a method above every other; otherwise it "
        "is `tie` for the highest method and for those not significantly different from it. "
        "`delta` is the paired difference from the first method (from the base if there is one "
        "method), with its interval. In the table `…_reading`, `reading` is the paper's estimator: "
        "pass@1 from the first sample, and pass@n from all n samples of a seed. It is the mean "
        "over evaluation seeds, with standard deviation `std`."
    )

    def tables(self) -> Mapping[str, Callable[[Display], TableDocument]]:
        """The accuracies, and the paper's estimator on the same samples."""
        return {"": self.table, "_reading": reading_table}

    def table(self, display: Display) -> TableDocument:
        """A row for each method: its accuracies with their marks."""
        rows = pooled(display.frame("pass_at_k"), display)
        comparisons = display.frame("comparisons")
        frame = accuracy_frame(rows, comparisons, display)
        caption = _caption(rows, compared(comparisons, display)["n_tests"], display)
        return TableDocument(
            frame, _view(frame, display), caption, flat=_flat_cells(frame, display)
        )

    def as_in_paper(self, display: Display) -> pd.DataFrame:
        """pass@k by the paper's estimator, by benchmark, with its standard deviation over
        evaluation seeds."""
        names = {"reading": "value", "std": "measured_std", "n_eval_seeds": "measured_seeds"}
        named = reading_table(display).frame.drop(columns="value").rename(columns=names)
        runs = named["measured_seeds"] / len(display.evaluation.seeds)
        return named.assign(quantity=[f"pass@{k}" for k in named["k"]], measured_runs=runs)


def accuracy_frame(rows: pd.DataFrame, comparisons: pd.DataFrame, display: Display) -> pd.DataFrame:
    """The frame of an accuracy exhibit: a row for each method, in the exhibit's order.

    `rows` are pooled. Columns: `algorithm`, `title`, then for each benchmark and k (1 and the
    primary k, see `shown_ks`) ``{benchmark} pass@{k} value``, ``… low``, ``… high`` (shares in
    [0, 1]; NaN if a run is missing), ``… mark`` (BEST, TIE or empty), and ``… delta``, ``… delta
    low``, ``… delta high``: the paired difference from `display.baseline` with its interval.

    With several benchmarks the group `average` follows, up to the k that all share. Its interval
    is computed as a claim's contrast over the same benchmarks (`sage.evaluation.averages`). The
    ledger of claims compares averages, so here they have no marks.

    Raises ValueError for faulty metrics and for a benchmark called `average`.
    """
    if AVERAGE in display.benchmarks:
        raise ValueError(
            f"{display.name}: the benchmark name {AVERAGE!r} is reserved for the average; rename "
            "the problem set"
        )
    most = display.evaluation.primary_k
    adjusted = compared(comparisons, display)
    apart = differences(comparisons, display, display.baseline)
    columns: dict[str, list[Any]] = {
        "algorithm": display.rows,
        "title": [display.title(row) for row in display.rows],
    }
    for benchmark in display.benchmarks:
        for k in shown_ks(rows[rows["benchmark"] == benchmark], most):
            measured = estimates(rows, benchmark, k, display.rows)
            here, own = (
                frame[(frame["benchmark"] == benchmark) & (frame["k"] == k)]
                for frame in (adjusted, apart)
            )
            marks = marks_of(measured["value"], here)
            columns |= estimate_columns(f"{benchmark} pass@{k}", measured, marks)
            columns |= _delta_columns(f"{benchmark} pass@{k}", own, 1, display.rows)
    if len(display.benchmarks) > 1:
        for k in shown_ks(rows, most):
            averages = _averages(rows[rows["k"] == k], display.benchmarks, display.rows)
            columns |= estimate_columns(f"{AVERAGE} pass@{k}", averages, [""] * len(display.rows))
            places, own = len(display.benchmarks), apart[apart["k"] == k]
            columns |= _delta_columns(f"{AVERAGE} pass@{k}", own, places, display.rows)
    return pd.DataFrame(columns)


def column_groups(table: pd.DataFrame) -> dict[str, list[int]]:
    """Benchmarks of an accuracy frame with their k, in the order of the columns."""
    groups: dict[str, list[int]] = {}
    for column in table.columns:
        if column.endswith(" value"):
            benchmark, metric, _ = column.split(" ")
            groups.setdefault(benchmark, []).append(int(metric.removeprefix("pass@")))
    return groups


def _caption(rows: pd.DataFrame, tests: pd.Series, display: Display) -> str:
    """Intervals, marks after so many `tests` at each k, the weight of one problem."""
    evaluation, counts = display.evaluation, sizes(rows, display)
    samples = f"{evaluation.samples} samples per problem"
    if len(evaluation.seeds) > 1:
        samples += f" and evaluation seed ({len(evaluation.seeds)} seeds)"
    runs = numbers_of_runs(rows)
    over = " over problems and training runs, whose variances add"
    if runs == [1]:
        over = " over problems, which holds for these training runs only"
    elif runs[0] == 1:
        over += " (over problems alone where one of the two was trained once)"
    most = int(tests.max()) if len(tests) else 0
    sentences = [
        f"{display.heading}: pass@k in percent, the unbiased estimate from {samples}.",
        f"Below each value: {interval_name(runs)}. Δ: the difference from "
        f"{display.title(display.baseline)} in points, paired by problem, with its 95 % interval.",
        seeds_said(runs),
        problems_worth(counts),
        marks_said(over, f"all comparisons of this table at that k, of which there are {most}"),
        "Averages are compared in the ledger of claims." if len(counts) > 1 else "",
    ]
    return " ".join(filter(None, sentences))


def _view(frame: pd.DataFrame, display: Display) -> Table:
    """An accuracy frame as a table in percent, with its marks."""
    groups = column_groups(frame)
    starts = [f"{name} pass@{k}" for name, ks in groups.items() for k in ks]
    rows = []
    for row in frame.to_dict("records"):
        cells = [cell for at in starts for cell in (estimate_cell(row, at), _delta_cell(row, at))]
        rows.append(algorithm_row(display.study, row["algorithm"], cells))
    titles = display.titles
    heads = [
        Head(titles[name], tuple(column for k in ks for column in (f"pass@{k}", "Δ")))
        for name, ks in groups.items()
    ]
    return algorithm_table(heads, rows)


def _delta_columns(
    start: str, apart: pd.DataFrame, places: int, algorithms: Sequence[str]
) -> dict[str, list[float]]:
    """Differences of methods with their intervals: means over `places` benchmarks, else NaN."""
    from sage.evaluation.averages import average  # with scipy, which a study is read without

    ends: dict[str, tuple[float, ...]] = {}
    for algorithm, of_method in apart.groupby("algorithm"):
        if places == 1 == len(of_method):
            ends[str(algorithm)] = tuple(of_method[list(PARTS)].iloc[0])
        elif len(of_method) == places:
            mean = average(of_method.to_dict("records"), of_method["sign"].tolist())
            value, (low, high) = mean.value, mean.interval()
            ends[str(algorithm)] = float(value[0]), float(low[0]), float(high[0])
    nothing = (math.nan,) * len(PARTS)
    columns = zip(*(ends.get(name, nothing) for name in algorithms), strict=True)
    named = (f"{start} delta", f"{start} delta low", f"{start} delta high")
    return {name: list(column) for name, column in zip(named, columns, strict=True)}


def _delta_cell(record: Record, start: str) -> Cell:
    """The difference from the baseline; nothing for the baseline itself."""
    value, low, high = (record[f"{start} delta{end}"] for end in ("", " low", " high"))
    return Cell("" if math.isnan(value) else points(value), interval_of_points(low, high))


def _flat_cells(frame: pd.DataFrame, display: Display) -> str:
    """Cells with an interval of width zero, as one line; empty if there are none."""
    titles, places = display.titles, []
    for benchmark, ks in column_groups(frame).items():
        for k in ks:
            start = f"{benchmark} pass@{k}"
            flat = frame.loc[frame[f"{start} low"] == frame[f"{start} high"], "title"]
            if len(flat) and benchmark != AVERAGE:
                rows = "every method" if len(flat) == len(frame) else listing([*flat], most=4)
                places.append(f"{titles[benchmark]} at k = {k} ({rows})")
    return f"{display.exhibit.title}: {', '.join(places)}" if places else ""


def _averages(
    rows: pd.DataFrame, benchmarks: Sequence[str], algorithms: Sequence[str]
) -> pd.DataFrame:
    """Means over `benchmarks` of pooled rows of one k, by method; NaN if a run is missing."""
    from sage.evaluation.averages import average_share  # with scipy, which a study is read without

    by_place = {(row["algorithm"], row["benchmark"]): row for row in rows.to_dict("records")}
    averages: list[tuple[float, ...]] = []
    for algorithm in algorithms:
        ours = [by_place.get((algorithm, benchmark)) for benchmark in benchmarks]
        present = [row for row in ours if row is not None]
        complete = len(present) == len(benchmarks)
        averages.append(average_share(present) if complete else (math.nan,) * len(PARTS))
    return pd.DataFrame(averages, columns=list(PARTS), index=list(algorithms))
