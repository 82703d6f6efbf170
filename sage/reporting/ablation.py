"""The ablation grid (Table 6): pass@1 and pass@K over settings of one algorithm's guide.

Which policy belongs to a cell is the study's to say; which cell is best is not claimed here.
"""

from __future__ import annotations

import math
from typing import Any

import pandas as pd

from sage.reporting.latex import NOTHING, escape, latex_table, row_of, small_interval
from sage.reporting.pooled import estimates, pooled_pass_at_k, shown_ks
from sage.reporting.wording import (
    benchmark_titles,
    exhibit_heading,
    interval_name,
    percent,
    row_title,
    seeds_said,
)
from sage.study import ResolvedStudy
from sage.study.exhibits import AblationTable

_PARTS = ("value", "low", "high")


def ablation_table(pass_at_k: pd.DataFrame, study: ResolvedStudy, exhibit: str) -> pd.DataFrame:
    """A row per cell and k, the grid's last key running fastest.

    Columns: the grid's keys, `algorithm` (the cell's row), `own` (whether these are the
    algorithm's own settings), `k`, `value`, `low`, `high` (shares; NaN where a run is missing).
    Raises TypeError if the exhibit is no ablation, and ValueError for faulty metrics.
    """
    shown = _ablation(study, exhibit)
    rows = pooled_pass_at_k(pass_at_k, study, exhibit)
    found = rows[rows["benchmark"] == shown.benchmark]
    table: list[dict[str, Any]] = []
    for k in shown_ks(found, study.evaluation(shown.model).samples):
        values = estimates(found, shown.benchmark, k, study.rows_of(exhibit), _PARTS)
        for place, cell in enumerate(shown.cells()):
            row = study.cell_row(shown, cell)
            estimate: dict[str, Any] = dict(zip(_PARTS, values.loc[row], strict=True))
            name = {"algorithm": row, "own": row == shown.algorithm, "k": k}
            table.append({"place": place, **cell, **name, **estimate})
    frame = pd.DataFrame(table).sort_values(["place", "k"], ignore_index=True)
    return frame.drop(columns="place")


def ablation_caption(table: pd.DataFrame, study: ResolvedStudy, exhibit: str) -> str:
    """What the grid shows, in plain text."""
    shown = _ablation(study, exhibit)
    first, *second = shown.grid
    ks = " / ".join(f"pass@{k}" for k in sorted(table["k"].unique()))
    layout = f"Rows: {first}; columns: {second[0]}." if second else f"Rows: {first}."
    own = " Marked: the settings of every other table." if table["own"].any() else ""
    return (
        f"{exhibit_heading(study, exhibit)}, {row_title(study, shown.algorithm)} on "
        f"{benchmark_titles(study)[shown.benchmark]}: {ks} in percent. {layout}{own} Beneath each "
        f"pair is the {interval_name(study)} of each. {seeds_said(study)} Cells are not compared: "
        "a grid has a highest cell by chance alone."
    )


def ablation_latex(table: pd.DataFrame, caption: str, study: ResolvedStudy, exhibit: str) -> str:
    """An ablation frame as a LaTeX grid: pass@1 / pass@K and their intervals in each cell."""
    grid = _ablation(study, exhibit).grid
    first, *second = grid
    across = grid[second[0]] if second else [math.nan]
    head = [row_of([escape(first), *(_setting(second, value) for value in across)])]
    body = []
    for down in grid[first]:
        values, intervals = [f"{down:g}"], [""]
        for value in across:
            cell = table[table[first] == down]
            if second:
                cell = cell[cell[second[0]] == value]
            found = cell.sort_values("k").to_dict("records")
            known = [row for row in found if not math.isnan(row["value"])]
            text = " / ".join(percent(row["value"]) for row in known) or NOTHING
            values.append(rf"\underline{{{text}}}" if cell["own"].any() else text)
            limits = [small_interval(row["low"], row["high"]) for row in known]
            intervals.append(" / ".join(limits))
        body += [row_of(values, "-2pt"), row_of(intervals, "3pt")]
    return latex_table(caption, "l" + "c" * len(across), head, body)


def _setting(keys: list[str], value: float) -> str:
    return escape(f"{keys[0]} {value:g}") if keys else "pass@k"


def _ablation(study: ResolvedStudy, exhibit: str) -> AblationTable:
    shown = study.study.exhibits[exhibit]
    if not isinstance(shown, AblationTable):
        raise TypeError(f"{exhibit} is of kind {shown.kind}, not ablation")
    return shown
