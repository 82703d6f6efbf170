"""Accuracy tables (Tables 1, 3, 4, 9): pass@1 and pass@K of every method on every benchmark.

They are built from pass@k metrics and from paired comparisons. Only the comparisons decide what is
bold. The frame and the CSV file hold shares in [0, 1]; text for readers is in percent. A second
table compares the unbiased estimate with the paper's way of computing pass@k.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Literal

import pandas as pd

from sage.exhibits import pooled_pass_at_k
from sage.exhibits.kind import Display
from sage.exhibits.pooled_pass_at_k import PARTS, OnBenchmarks, ShowsPassAtK, estimates, pooled
from sage.rendering.labels import AVERAGE, interval_name, problems_worth, seeds_said
from sage.rendering.numbers import NONE, listing, percent
from sage.rendering.table import (
    Cell,
    Column,
    Record,
    TableDocument,
    cell_of,
    points_cell,
    share_cell,
    table_of,
    titled_by,
)
from sage.study import ResolvedStudy

_ENDS = ("", " low", " high")

READING = ["algorithm", "title", "benchmark", "k", "value", "low", "high"]
READING += ["reading", "std", "n_eval_seeds"]
"""Columns of the table of the paper's estimator."""

_NOTHING = Cell(NONE, mark="nil")


class AccuracyTable(OnBenchmarks, ShowsPassAtK):
    """pass@1 and pass@k of every method on every benchmark, and their mean (Tables 1, 3, 4, 9).

    Pass@1 and pass@K of every method: the unbiased estimate, pooled over training seeds, as shares
    between 0 and 1. `low` and `high` bound the 95 % interval over problems (and over training runs,
    if there are several). K is the study's primary k. `mark` is `best` if paired comparisons,
    adjusted after Holm, put a method above every other; otherwise it is `tie` for the highest
    method and for those not significantly different from it. `delta` is the paired difference from
    the first method (from the base if there is one method), with its interval. In the table
    `…_reading`, `reading` is the paper's estimator: pass@1 from the first sample, and pass@n from
    all n samples of a seed. It is the mean over evaluation seeds, with standard deviation `std`.
    """

    kind: Literal["accuracy"]

    def tables(self) -> Mapping[str, Callable[[Display], TableDocument]]:
        return {"": self.table, "_reading": reading_table}

    def left_out(self, study: ResolvedStudy) -> Collection[str]:
        return [] if study.study.paper else ["_reading"]

    def table(self, display: Display) -> TableDocument:
        """A row for each method: its accuracies with their marks."""
        rows = pooled(display.frame("pass_at_k"), display)
        comparisons = display.frame("comparisons")
        frame = accuracy_frame(rows, comparisons, display)
        columns: list[Column] = []
        for benchmark, ks in column_groups(frame).items():
            for k in ks:
                title, start = display.titles[benchmark], f"{benchmark} pass@{k}"
                columns.append((title, f"pass@{k}", partial(pooled_pass_at_k.estimate_cell, start)))
                ends = [f"{start} delta{end}" for end in _ENDS]
                columns.append((title, "Δ", cell_of(partial(points_cell, missing=""), ends=ends)))
        caption = _caption(
            rows, pooled_pass_at_k.compared(comparisons, display)["n_tests"], display
        )
        document = display.document(frame, columns, caption)
        return replace(document, flat=_flat_cells(frame, display))

    def as_in_paper(self, display: Display) -> pd.DataFrame:
        """pass@k by the paper's estimator, by benchmark, with its standard deviation over
        evaluation seeds."""
        names = {"reading": "value", "std": "measured_std", "n_eval_seeds": "measured_seeds"}
        named = reading_table(display).frame.drop(columns="value").rename(columns=names)
        runs = named["measured_seeds"] / len(display.evaluation.seeds)
        return named.assign(quantity=[f"pass@{k}" for k in named["k"]], measured_runs=runs)


def accuracy_frame(rows: pd.DataFrame, comparisons: pd.DataFrame, display: Display) -> pd.DataFrame:
    """A row for each method, from pooled `rows`: for each benchmark and k (`shown_ks`)
    ``{benchmark} pass@{k} value``, ``… low``, ``… high``, ``… mark`` (`estimate_columns`), and
    ``… delta``, ``… delta low``, ``… delta high``: the paired difference from `display.baseline`.

    With several benchmarks the group `average` follows, up to the k that all share. Its interval
    is computed as a claim's contrast over the same benchmarks (`sage.evaluation.comparisons`). The
    ledger of claims compares averages, so here they have no marks.

    Raises ValueError for faulty metrics and for a benchmark called `average`.
    """
    if AVERAGE in display.benchmarks:
        raise ValueError(
            f"{display.name}: the benchmark name {AVERAGE!r} is reserved for the average; rename "
            "the problem set"
        )
    most = display.evaluation.primary_k
    adjusted = pooled_pass_at_k.compared(comparisons, display)
    apart = pooled_pass_at_k.differences(comparisons, display, display.baseline)
    blocks: list[pd.DataFrame] = []
    for benchmark in display.benchmarks:
        for k in pooled_pass_at_k.shown_ks(rows[rows["benchmark"] == benchmark], most):
            start, measured = f"{benchmark} pass@{k}", estimates(rows, benchmark, k, display.rows)
            here, own = (
                frame[(frame["benchmark"] == benchmark) & (frame["k"] == k)]
                for frame in (adjusted, apart)
            )
            marks = pooled_pass_at_k.marks_of(measured["value"], here)
            blocks.append(pooled_pass_at_k.estimate_columns(start, measured, marks))
            blocks.append(_deltas(start, own, 1))
    if (places := len(display.benchmarks)) > 1:
        for k in pooled_pass_at_k.shown_ks(rows, most):
            start, averages = f"{AVERAGE} pass@{k}", _averages(rows[rows["k"] == k], places)
            averages = averages.reindex(display.rows)
            blocks.append(pooled_pass_at_k.estimate_columns(start, averages, [""] * len(averages)))
            blocks.append(_deltas(start, apart[apart["k"] == k], places))
    return display.by_method(blocks)


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
    counts, runs = pooled_pass_at_k.sizes(rows, display), pooled_pass_at_k.numbers_of_runs(rows)
    baseline = display.title(display.baseline)
    over = " over problems and training runs, whose variances add"
    if runs == [0]:
        over = " over problems"
    elif runs == [1]:
        over = " over problems, which holds for these training runs only"
    elif runs[0] == 1:
        over += " (over problems alone where one of the two was trained once)"
    most, several = int(tests.max()) if len(tests) else 0, len(display.rows) > 1
    among = f"all comparisons of this table at that k, of which there are {most}"
    start = f"{display.heading}: pass@k in percent, the unbiased estimate from"
    sentences = [
        f"{start} {pooled_pass_at_k.samples_said(display)}.",
        f"Below each value: {interval_name(runs)}."
        + f" Δ: the difference from {baseline} in points, paired by problem and seed, with its "
        "95 % interval." * several,
        f"A method with fewer runs is compared with the same seeds of {baseline} alone."
        * (len({*runs} - {0}) > 1),
        seeds_said(runs),
        problems_worth(counts),
        pooled_pass_at_k.marks_said(over, among) * several,
        "Averages are compared in the ledger of claims." if len(counts) > 1 else "",
    ]
    return " ".join(filter(None, sentences))


def _averages(rows: pd.DataFrame, places: int) -> pd.DataFrame:
    """Means over `places` benchmarks of pooled rows of one k, by method, if it has all of them."""
    from sage.evaluation.comparisons import average_share  # with scipy, slow to import

    means: dict[object, Sequence[float]] = {
        name: average_share(own.to_dict("records"))
        for name, own in rows.groupby("algorithm")
        if len(own) == places
    }
    return _of_methods(means)


def _deltas(start: str, apart: pd.DataFrame, places: int) -> pd.DataFrame:
    """Differences of methods with their intervals, by method: means over `places` benchmarks."""
    from sage.evaluation.comparisons import average  # with scipy, slow to import

    ends: dict[object, Sequence[float]] = {}
    for name, own in apart.groupby("algorithm"):
        if len(own) == places == 1:
            ends[name] = own[PARTS].iloc[0].tolist()
        elif len(own) == places:
            mean = average(own.to_dict("records"), own["sign"].tolist())
            ends[name] = [float(end[0]) for end in (mean.value, *mean.interval())]
    return _of_methods(ends).set_axis([f"{start} delta{end}" for end in _ENDS], axis=1)


def _of_methods(ends: Mapping[object, Sequence[float]]) -> pd.DataFrame:
    return pd.DataFrame.from_dict(dict(ends), orient="index", columns=PARTS).astype(float)


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


def reading_table(display: Display) -> TableDocument:
    """The paper's estimator on the same samples: a group of rows for each benchmark, both
    estimators for each k."""
    frame = _reading_frame(display)
    columns: list[Column] = []
    for k in sorted(set(frame["k"])):
        columns.append((f"pass@{k}", "unbiased", partial(_estimate, k)))
        columns.append((f"pass@{k}", "as in the paper", partial(_as_read, k)))
    groups = (
        (display.titles[str(benchmark)], titled_by(rows, "k"))
        for benchmark, rows in frame.groupby("benchmark", sort=False)
    )
    samples = display.evaluation.samples
    spread = (
        "as mean ± standard deviation over the evaluation seeds of a training run (not a standard "
        "error, and not an interval over problems)"
        if len(display.evaluation.seeds) > 1
        else "from one evaluation seed, so without a standard deviation"
    )
    caption = (
        f"{display.heading}: two estimators on the same samples, in percent. "
        "Unbiased: expected value over all samples of a problem. As in the paper: pass@1 from "
        f"the first sample only, pass@{samples} from all {samples} samples of a seed, {spread}."
    )
    table = table_of("Method", columns, groups, display.study)
    return TableDocument(frame, table, caption, "The paper’s estimator on the same samples")


def _reading_frame(display: Display) -> pd.DataFrame:
    """READING, a row for each benchmark, algorithm and k: the unbiased estimate with its interval,
    and the paper's with its `std` within a run (NaN for one evaluation seed)."""
    rows = pooled(display.frame("pass_at_k"), display)
    read = pooled(display.frame("paper_reading"), display)
    frames = []
    for benchmark in display.benchmarks:
        here = rows[rows["benchmark"] == benchmark]
        for k in pooled_pass_at_k.shown_ks(here, display.evaluation.samples):
            unbiased = estimates(rows, benchmark, k, display.rows)
            parts = ["value", "std", "n_eval_seeds"]
            theirs = estimates(read, benchmark, k, display.rows, parts)
            joined = unbiased.join(theirs.rename(columns={"value": "reading"}))
            joined = joined.rename_axis("algorithm").reset_index()
            frames.append(joined.assign(benchmark=benchmark, k=k))
    table = pd.concat(frames, ignore_index=True)
    table["title"] = [display.title(row) for row in table["algorithm"]]
    table["n_eval_seeds"] = table["n_eval_seeds"].fillna(0).astype(int)
    return table[READING]


def _estimate(k: int, row: Record) -> Cell:
    own = row.get(k)
    if own is None:
        return _NOTHING
    return share_cell(own["value"], own["low"], own["high"], missing=NONE)


def _as_read(k: int, row: Record) -> Cell:
    own = row.get(k)
    if own is None or pd.isna(own["value"]) or pd.isna(own["reading"]):
        return _NOTHING
    return Cell(percent(own["reading"]), "" if pd.isna(own["std"]) else f"± {percent(own['std'])}")
