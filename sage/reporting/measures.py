"""Tables of what is measured beyond pass@k: patterns, gradients, perplexity, time.

Each takes the frame that the analysis wrote, keeps the exhibit's rows in their order and adds
the names people read; the numbers stay as they came.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import pandas as pd

from sage.analysis.step_times import time_ratio
from sage.reporting.latex import NOTHING, escape, latex_table, row_of, share, small_interval
from sage.reporting.pooled import require
from sage.reporting.wording import benchmark_titles, exhibit_heading, listed, row_title
from sage.study import BASE, ResolvedStudy
from sage.study.exhibits import PatternTable, PerplexityFigure

PATTERN_COLUMNS = [
    "algorithm",
    "title",
    "pattern",
    "pattern_title",
    "pooled",
    "low",
    "high",
    "per_problem",
    "per_problem_low",
    "per_problem_high",
    "n_correct",
    "n_problems",
]
GRADIENT_COLUMNS = [
    "algorithm",
    "title",
    "stage",
    "value",
    "low",
    "high",
    "coverage",
    "n_seeds",
    "steps",
]
STEP_TIME_COLUMNS = ["algorithm", "title", "seconds", "excess", "low", "high", "rounds"]
TAIL_COLUMNS = ["problem_id", "algorithm", "title", "n", "median", "upper", "tail_share"]

_STAGES = {"early": "Early", "mid": "Mid", "late": "Late"}


def patterns_table(found: pd.DataFrame, study: ResolvedStudy, exhibit: str) -> pd.DataFrame:
    """Table 2 with PATTERN_COLUMNS: a row per algorithm and pattern, shares in [0, 1].

    `found` is what `sage.analysis.patterns` wrote; see there for the two readings of Eq. 13.
    """
    named = found.rename(columns={"title": "pattern_title"})
    return _titled(named, PATTERN_COLUMNS, study, exhibit)


def patterns_caption(table: pd.DataFrame, study: ResolvedStudy, exhibit: str) -> str:
    """What Table 2 shows, in plain text."""
    shown = study.study.exhibits[exhibit]
    assert isinstance(shown, PatternTable)
    which = f"the first {shown.samples} samples" if shown.samples else "all samples"
    return (
        f"{exhibit_heading(study, exhibit)} on {benchmark_titles(study)[shown.benchmark]}: share "
        f"of correct solutions that show a pattern, in percent, among {which} of each problem and "
        "evaluation seed. Beneath each value is its 95 % interval; where no solution shows a "
        "pattern, or all do, there is none. Phrase lists decide what counts, so the numbers "
        "compare within this study only."
    )


def patterns_latex(table: pd.DataFrame, caption: str) -> str:
    """A pattern frame as a LaTeX table: algorithms down, patterns across."""
    titles = dict(zip(table["pattern"], table["pattern_title"], strict=True))
    body = []
    for _, rows in table.groupby("algorithm", sort=False):
        of = rows.set_index("pattern").to_dict("index")
        values, intervals = [escape(str(rows["title"].iloc[0]))], [""]
        for name in titles:
            row = of.get(name, {})
            values.append(share(row.get("pooled", math.nan)))
            intervals.append(small_interval(row.get("low", math.nan), row.get("high", math.nan)))
        solutions = str(int(rows["n_correct"].iloc[0]))
        body += [row_of([*values, solutions], "-2pt"), row_of([*intervals, ""], "3pt")]
    head = [row_of(["Algorithm", *map(escape, titles.values()), "Correct solutions"])]
    return latex_table(caption, "l" + "c" * len(titles) + "r", head, body)


def gradient_table(found: pd.DataFrame, study: ResolvedStudy, exhibit: str) -> pd.DataFrame:
    """Table 5 with GRADIENT_COLUMNS: a row per algorithm and third of training.

    `found` is what `sage.analysis.dynamics` wrote.
    """
    return _titled(found, GRADIENT_COLUMNS, study, exhibit)


def gradient_caption(table: pd.DataFrame, study: ResolvedStudy, exhibit: str) -> str:
    """What Table 5 shows, in plain text."""
    seeds = int(table["n_seeds"].max()) if len(table) else 0
    range_ = (
        f"In brackets is the range of {seeds} training runs; it holds the median run with "
        f"probability {table['coverage'].max():g}."
        if seeds > 1
        else "There is one training run a row: nothing is known about how runs differ."
    )
    return (
        f"{exhibit_heading(study, exhibit)}: norm of the gradient before clipping, mean over each "
        f"third of training. {range_}"
    )


def gradient_latex(table: pd.DataFrame, caption: str) -> str:
    """A gradient frame as a LaTeX table: algorithms down, thirds of training across."""
    body = []
    for _, rows in table.groupby("algorithm", sort=False):
        of = rows.set_index("stage").to_dict("index")
        cells = [escape(str(rows["title"].iloc[0]))]
        body.append(row_of(cells + [_with_range(of.get(stage, {})) for stage in _STAGES]))
    return latex_table(caption, "lccc", [row_of(["Algorithm", *_STAGES.values()])], body)


def step_times_table(found: pd.DataFrame, study: ResolvedStudy, exhibit: str) -> pd.DataFrame:
    """What guides cost, with STEP_TIME_COLUMNS: median seconds, and `excess` over the first row.

    `found` is what `sage.training.stopwatch` wrote. The first row has no excess of its own.
    """
    first = study.rows_of(exhibit)[0]
    rows = []
    for row, times in found.groupby("algorithm", sort=False):
        seconds, rounds = float(times["seconds"].median()), len(times)
        excess, low, high = math.nan, math.nan, math.nan
        if row != first:
            cost = time_ratio(found, str(row), first)
            excess, low, high = cost.excess, cost.low, cost.high
        rows.append((row, seconds, excess, low, high, rounds))
    columns = [name for name in STEP_TIME_COLUMNS if name != "title"]
    return _titled(pd.DataFrame(rows, columns=columns), STEP_TIME_COLUMNS, study, exhibit)


def step_times_caption(table: pd.DataFrame, study: ResolvedStudy, exhibit: str) -> str:
    """What the table of step times shows, in plain text."""
    rounds, first = int(table["rounds"].max()) if len(table) else 0, study.rows_of(exhibit)[0]
    return (
        f"{exhibit_heading(study, exhibit)}: time for loss and gradient of the same micro-batch of "
        f"completions, in turn, {rounds} rounds on one machine. The median in seconds (of the "
        "clock on a GPU, of the processor on a CPU), and the median over rounds of the ratio to "
        f"{row_title(study, first)}, less one, in percent with its 95 % interval. Drawing the "
        "completions takes further time, the same for all rows."
    )


def step_times_latex(table: pd.DataFrame, caption: str) -> str:
    """A frame of step times as a LaTeX table."""
    body = []
    for row in table.to_dict("records"):
        cost = NOTHING
        if not math.isnan(row["excess"]):
            bounds = (f"{100 * row[name]:+.1f}" for name in ("low", "high"))
            cost = f"${100 * row['excess']:+.1f}$ (${'$ to $'.join(bounds)}$)"
        body.append(row_of([escape(row["title"]), f"{row['seconds']:.3f}", cost]))
    head = [row_of(["Algorithm", "Seconds", r"Excess (\%)"])]
    return latex_table(caption, "lrr", head, body)


def tails_table(found: pd.DataFrame, study: ResolvedStudy, exhibit: str) -> pd.DataFrame:
    """Tails of Figure 7 with TAIL_COLUMNS: a row per problem and algorithm.

    `found` is what `sage.analysis.perplexity.tail_table` returns.
    """
    problems = {name: place for place, name in enumerate(dict.fromkeys(found["problem_id"]))}
    table = _titled(found, TAIL_COLUMNS, study, exhibit)
    return table.sort_values(
        "problem_id", key=lambda names: names.map(problems), kind="stable", ignore_index=True
    )


def tails_caption(table: pd.DataFrame, study: ResolvedStudy, exhibit: str) -> str:
    """What the tails are, in plain text."""
    shown = study.study.exhibits[exhibit]
    assert isinstance(shown, PerplexityFigure)
    return (
        f"{exhibit_heading(study, exhibit)} on {benchmark_titles(study)[shown.benchmark]}: "
        f"perplexity of {shown.responses} responses to each problem under {row_title(study, BASE)}"
        ", the policy before RL. Upper: the 95th percentile of a row's responses. Beyond the "
        f"base: the share of them, in percent, above that percentile of {row_title(study, BASE)}. "
        "Each problem speaks for itself alone."
    )


def tails_latex(table: pd.DataFrame, caption: str) -> str:
    """A tail frame as a LaTeX table, a block per problem."""
    body: list[str] = []
    for number, (_, rows) in enumerate(table.groupby("problem_id", sort=False), start=1):
        body += [r"\addlinespace"] if body else []
        problem = escape(str(rows["problem_id"].iloc[0]))
        body.append(rf"\multicolumn{{4}}{{l}}{{\emph{{Problem {number} ({problem})}}}} \\")
        for row in rows.to_dict("records"):
            numbers = [f"{row['median']:.3g}", f"{row['upper']:.3g}", share(row["tail_share"])]
            body.append(row_of([escape(row["title"]), *numbers]))
    head = [row_of(["Algorithm", "Median", "Upper", "Beyond the base"])]
    return latex_table(caption, "lrrr", head, body)


def _titled(
    found: pd.DataFrame, columns: Sequence[str], study: ResolvedStudy, exhibit: str
) -> pd.DataFrame:
    """Rows of an exhibit in its order, with their titles; ValueError if there is none at all."""
    require(found, [name for name in columns if name != "title"], exhibit)
    order = {name: place for place, name in enumerate(study.rows_of(exhibit))}
    rows = found[found["algorithm"].isin(list(order))]
    if rows.empty:
        there = listed(sorted(map(str, set(found["algorithm"])))) if len(found) else "nothing"
        raise ValueError(f"{exhibit}: rows {', '.join(order)} are asked for, but there is {there}")
    rows = rows.sort_values("algorithm", key=lambda names: names.map(order), kind="stable")
    titles = [row_title(study, name) for name in rows["algorithm"]]
    return rows.assign(title=titles)[list(columns)].reset_index(drop=True)


def _with_range(row: Mapping[Any, float]) -> str:
    if not row:
        return NOTHING
    value, low, high = row["value"], row["low"], row["high"]
    text = f"{value:.3f}"
    return text if math.isnan(low + high) else f"{text} ({low:.3f}--{high:.3f})"
