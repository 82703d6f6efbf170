"""Accuracy tables (Tables 1, 3, 4, 9): pass@1 and pass@K of every row on every benchmark.

Built from pass@k metrics and from the paired comparisons, which alone decide what is set in
bold. Shares stay in [0, 1] in the frame and in CSV; percent appear only where people read.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pandas as pd

from sage.evaluation.curves import POOLED
from sage.reporting.latex import escape, latex_table, row_of, share, small_interval
from sage.reporting.pooled import estimates, pooled_pass_at_k, require, shown_ks
from sage.reporting.wording import (
    AVERAGE,
    benchmark_titles,
    exhibit_heading,
    interval_name,
    problems_worth,
    row_title,
    seeds_said,
)
from sage.study import BASE, ResolvedStudy

LEVEL = 0.05
"""A row leads only where each comparison's p, adjusted after Holm, is below this."""

BEST, TIE = "best", "tie"
"""Marks: clearly above every other row; at the top, or not told from the row that is."""

_PARTS = ("value", "low", "high")
_COMPARED = ["model", "benchmark", "algorithm", "other", "metric", "k", "value", "p_holm"]


def accuracy_table(
    pass_at_k: pd.DataFrame, comparisons: pd.DataFrame, study: ResolvedStudy, exhibit: str
) -> pd.DataFrame:
    """The frame of an accuracy exhibit: a row per algorithm, in the exhibit's order.

    `pass_at_k` and `comparisons` have the columns of their Parquet files in metrics/. Columns:
    `algorithm`, `title`, then for each benchmark and k (1 and the largest k that its rows share,
    see `shown_ks`) four columns named ``{benchmark} pass@{k} value``, ``… low``, ``… high``
    (shares in [0, 1]; a run that is missing has NaN) and ``… mark`` (BEST, TIE or empty). With
    several benchmarks the group `average` follows, up to the k that all share; no comparison
    covers it, so it has no marks. Its interval combines those of the benchmarks. With one
    training seed these are independent, and half-widths add in squares; with several they share
    the seeds, and half-widths add as they are, which is never too narrow.

    Raises ValueError for faulty metrics and for a benchmark called `average`.
    """
    require(comparisons, _COMPARED, "comparisons")
    model, benchmarks = study.study.exhibits[exhibit].model, study.benchmarks_of(exhibit)
    if AVERAGE in benchmarks:
        raise ValueError(f"{exhibit}: the benchmark name {AVERAGE!r} is kept for the average")
    rows = pooled_pass_at_k(pass_at_k, study, exhibit)
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
            columns |= _column_group(benchmark, k, found, _marks(found["value"], here))
    if len(benchmarks) > 1:
        power = _power(pass_at_k[pass_at_k["model"] == model], algorithms)
        for k in shown_ks(rows, samples):
            parts = [estimates(rows, name, k, algorithms, _PARTS) for name in benchmarks]
            columns |= _column_group(AVERAGE, k, _averaged(parts, power), [""] * len(algorithms))
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
    """(value, low, high) of a row of an accuracy frame; NaN where the run is missing."""
    columns = [f"{benchmark} pass@{k} {part}" for part in _PARTS]
    value, low, high = table.iloc[row][columns].astype(float).tolist()
    return value, low, high


def clear_best(table: pd.DataFrame, benchmark: str, k: int) -> int | None:
    """The row that the comparisons put above every other row, or None if there is none."""
    return next(iter(_marked(table, benchmark, k, BEST)), None)


def tied(table: pd.DataFrame, benchmark: str, k: int) -> list[int]:
    """Where no row is the clear best: the highest, and all that are not told from it."""
    return _marked(table, benchmark, k, TIE)


def accuracy_caption(pass_at_k: pd.DataFrame, study: ResolvedStudy, exhibit: str) -> str:
    """What an accuracy table shows, its intervals, marks, and the worth of a problem; plain."""
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
        f"Beneath each value is its {interval_name(study)}.",
        seeds_said(study),
        problems_worth(sizes),
        f"Bold: above every other row in a paired comparison {_compared_over(study)} "
        f"(p < {LEVEL:g}, adjusted after Holm for all comparisons of this model at that k); "
        "≈: no such row, this one is the highest or not told from it.",
        "Averages are not compared." if len(sizes) > 1 else "",
    ]
    return " ".join(filter(None, sentences))


def _compared_over(study: ResolvedStudy) -> str:
    if len(study.study.seeds) == 1:
        return "over problems, which speaks of these training runs and not of others"
    return "over problems and over training runs, of whose p the larger counts"


def accuracy_latex(
    table: pd.DataFrame, caption: str, titles: Mapping[str, str] | None = None
) -> str:
    """An accuracy frame as a LaTeX table; `titles` maps benchmarks to their headings."""
    groups, titles = column_groups(table), titles or {}
    heads, rules, start = [""], [], 2
    for name, ks in groups.items():
        column = rf">{{\centering\arraybackslash}}p{{{1.4 * len(ks):.1f}cm}}"
        heads.append(rf"\multicolumn{{{len(ks)}}}{{{column}}}{{{escape(titles.get(name, name))}}}")
        rules.append(rf"\cmidrule(lr){{{start}-{start + len(ks) - 1}}}")
        start += len(ks)
    places = [(name, k) for name, ks in groups.items() for k in ks]
    best = {place: clear_best(table, *place) for place in places}
    ties = {place: tied(table, *place) for place in places}
    body = []
    for row in range(len(table)):
        values, intervals = [escape(str(table.loc[row, "title"]))], [""]
        for place in places:
            value, low, high = estimate(table, row, *place)
            text = share(value)
            if best[place] == row:
                text = rf"\textbf{{{text}}}"
            elif row in ties[place]:
                text += r"\rlap{$^{\approx}$}"
            values.append(text)
            intervals.append(small_interval(low, high))
        body += [row_of(values, "-2pt"), row_of(intervals, "3pt")]
        if table.loc[row, "algorithm"] == BASE and len(table) > 1:
            body.append(r"\addlinespace")
    head = [
        row_of(heads),
        " ".join(rules),
        row_of(["Algorithm", *(f"pass@{k}" for _, k in places)]),
    ]
    return latex_table(caption, "l" + "c" * len(places), head, body)


def read_table(csv_path: Path) -> pd.DataFrame:
    """An accuracy frame from its CSV file."""
    header = pd.read_csv(csv_path, nrows=0).columns
    numbers = [name for name in header if name.endswith(tuple(f" {part}" for part in _PARTS))]
    return pd.read_csv(
        csv_path,
        dtype={name: str for name in header if name not in numbers},
        keep_default_na=False,
        na_values={name: [""] for name in numbers},
    )


def _marked(table: pd.DataFrame, benchmark: str, k: int, mark: str) -> list[int]:
    marks = table[f"{benchmark} pass@{k} mark"].tolist()
    return [row for row, found in enumerate(marks) if found == mark]


def _marks(values: pd.Series, compared: pd.DataFrame) -> list[str]:
    """Marks of the rows of `values` (by algorithm) from the comparisons at their place."""
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


def _power(pass_at_k: pd.DataFrame, algorithms: Sequence[str]) -> pd.Series:
    """How half-widths add up over benchmarks, per algorithm: 2 as squares, 1 as they are."""
    runs = pass_at_k[pass_at_k["train_seed"] != POOLED]
    seeds = runs.groupby("algorithm")["train_seed"].nunique().reindex(list(algorithms))
    return seeds.gt(1).map({True: 1.0, False: 2.0})


def _averaged(parts: Sequence[pd.DataFrame], power: pd.Series) -> pd.DataFrame:
    def combined(columns: Sequence[pd.Series], power: pd.Series) -> pd.Series:
        total = pd.concat([column**power for column in columns], axis=1).sum(axis=1, skipna=False)
        return total ** (1 / power) / len(columns)

    value = combined([part["value"] for part in parts], power**0)
    below = combined([part["value"] - part["low"] for part in parts], power)
    above = combined([part["high"] - part["value"] for part in parts], power)
    return pd.DataFrame({"value": value, "low": value - below, "high": value + above})


def _column_group(
    benchmark: str, k: int, found: pd.DataFrame, marks: Sequence[str]
) -> dict[str, list[Any]]:
    group: dict[str, list[Any]] = {
        f"{benchmark} pass@{k} {part}": found[part].tolist() for part in _PARTS
    }
    return group | {f"{benchmark} pass@{k} mark": list(marks)}
