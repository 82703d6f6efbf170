"""The paper's numbers beside measured ones, for models that the paper used.

The tables are CSV files in `reports/paper`, with the columns benchmark, algorithm, quantity, value
and std as in COLUMNS; an ablation has the settings of its cells in place of algorithm.
`mapping.yaml` there says which model each table belongs to.

Both sides were measured on the same problems, so the interval of a difference is not over problems.
It covers the noise of evaluation only, from the standard deviations over evaluation seeds (Welch's
t), if both sides have them. It does not cover variation between training runs, because the paper
has one run.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Literal

import numpy as np
import pandas as pd
from pydantic import Field

from sage.exhibits.ablation import AblationTable
from sage.exhibits.kind import Display, Kind
from sage.fields import Name, Positive, Strict
from sage.rendering.numbers import NONE, interval_of_points, number_text, percent, points
from sage.rendering.table import Cell, Column, Record, Table, TableDocument, table_of, titled
from sage.study import ResolvedStudy
from sage.study.reading import read_as

COLUMNS = ["kind", "model", "benchmark", "algorithm", "quantity", "value", "std", "seeds"]
"""`quantity` is ``pass@k`` with its k, the name of a pattern or a stage of training. `algorithm`
is the row, or the row of the cell in an ablation. `benchmark` is empty if there is none. `std` is
over `seeds` evaluation seeds."""

COMPARED = [*COLUMNS, "measured", "measured_std", "difference", "low", "high", "inside"]
"""COLUMNS, the measured value with its standard deviation over evaluation seeds, and the
difference from the paper's value with its 95 % interval. `inside` says whether the interval
contains 0."""

PAPER_CAPTIONS = {
    "accuracy": (
        ", on the same problems and by the paper’s estimator: pass@1 from the first sample of a "
        "problem, pass@k from all k samples of an evaluation seed. ± is the standard deviation "
        "over evaluation seeds. The difference is measured minus paper. Its 95 % interval covers "
        "the noise of evaluating these policies. It does not cover variation between training "
        "runs, because the paper has one run. Inside: the interval contains 0, so evaluation "
        "noise alone could explain the difference."
    ),
    "ablation": (
        ". The paper gives no standard deviations here, so the difference has no interval."
    ),
    "patterns": (
        ", both as means over problems (as shares of all correct solutions the paper’s would need "
        "260 or more correct ones of 960). They are not directly comparable: the phrase lists "
        "used here are this project’s own, and the paper’s completions have up to 4,096 tokens."
    ),
    "gradient_norms": (
        ". The paper’s numbers come from one training run, so the variation between its runs is "
        "unknown."
    ),
}
"""After what all of them begin with."""

_INSIDE = {True: Cell("yes"), False: Cell("no"), None: Cell(NONE, mark="nil")}


class PaperTable(Strict):
    """One table of the paper: its file, and what it is compared with."""

    file: Annotated[str, Field(pattern=r"^\w+\.csv$")]
    kind: Literal["accuracy", "patterns", "gradient_norms", "ablation"]
    seeds: Annotated[Positive, Field(ge=2)] | None = None


def read_mapping(folder: Path) -> dict[str, list[PaperTable]]:
    """`mapping.yaml` of a folder. Raises ValueError that names the file and the fault."""
    return read_as(dict[Name, list[PaperTable]], folder / "mapping.yaml")


def in_paper(folder: Path, exhibit: Kind) -> bool:
    """Whether the paper has a table of the exhibit's kind for its model."""
    return any(table.kind == exhibit.kind for table in read_mapping(folder).get(exhibit.model, ()))


def paper_document(exhibit: Kind, display: Display) -> TableDocument:
    """The paper's numbers beside the exhibit's own.

    Raises ValueError for a kind that has no values to compare.
    """
    measured = exhibit.as_in_paper(display)
    if measured is None:
        raise ValueError(
            f"{display.name}: exhibits of kind {exhibit.kind} have no values to compare with the "
            "paper; define `as_in_paper`"
        )
    paper = paper_values(display.paper, display.study)
    paper = paper[(paper["kind"] == exhibit.kind) & (paper["model"] == exhibit.model)]
    frame = compared(paper, measured, ["benchmark", "algorithm", "quantity"])
    table = _beside(frame, display, in_percent=exhibit.kind != "gradient_norms")
    start = "The paper’s numbers (reports/paper) beside the measured ones"
    return TableDocument(frame, table, start + PAPER_CAPTIONS[exhibit.kind])


def paper_values(folder: Path, study: ResolvedStudy) -> pd.DataFrame:
    """The paper's numbers for the study's models, with COLUMNS; no rows for other studies.

    Raises ValueError for a faulty mapping and FileNotFoundError for a table that it names.
    """
    mapping = read_mapping(folder)
    tables = [
        _values(pd.read_csv(folder / table.file, dtype={"benchmark": str}), table, model, study)
        for model in study.study.models
        for table in mapping.get(model, ())
    ]
    return pd.concat(tables, ignore_index=True) if tables else pd.DataFrame(columns=COLUMNS)


def compared(paper: pd.DataFrame, measured: pd.DataFrame, on: Sequence[str]) -> pd.DataFrame:
    """Rows of `paper` (COLUMNS) that `measured` also has, with COMPARED.

    `measured` has the columns `on` and value, and may have measured_std (within a run) over
    measured_seeds evaluation seeds of measured_runs runs (by default 1); shares in [0, 1]. If
    either side has no standard deviation, the interval is NaN and `inside` is None.
    """
    from scipy.special import stdtrit

    both = paper.merge(measured.rename(columns={"value": "measured"}), on=list(on), how="inner")
    both = both.dropna(subset=["measured"])
    difference = both["measured"] - both["value"]
    for name in ("std", "seeds", "measured_std", "measured_seeds"):
        both[name] = both[name].astype(float) if name in both else math.nan
    seeds, own_seeds = both["seeds"], both["measured_seeds"]
    runs = both.get("measured_runs", 1)
    noise, own_noise = both["std"] ** 2 / seeds, both["measured_std"] ** 2 / own_seeds
    variance = noise + own_noise
    degrees = variance**2 / (noise**2 / (seeds - 1) + own_noise**2 / (own_seeds - runs))
    half = np.sqrt(variance) * stdtrit(degrees, 0.975)
    both["difference"], both["low"], both["high"] = difference, difference - half, difference + half
    holds = ((both["low"] <= 0) & (both["high"] >= 0)).astype(object)
    both["inside"] = holds.where(half.notna(), None)
    return both[COMPARED]


def _values(
    frame: pd.DataFrame, table: PaperTable, model: str, study: ResolvedStudy
) -> pd.DataFrame:
    named = _of_cells(frame, model, study) if table.kind == "ablation" else frame
    named = named.assign(kind=table.kind, model=model, seeds=table.seeds)
    return named.reindex(columns=COLUMNS).fillna({"benchmark": ""})


def _beside(frame: pd.DataFrame, display: Display, in_percent: bool) -> Table:
    """Paper's value, measured value, their difference, and whether its interval contains 0."""

    def cell(value: float, std: float) -> Cell:
        number, spread = (percent(x) if in_percent else f"{x:.3f}" for x in (value, std))
        return Cell(number, "" if pd.isna(std) else f"± {spread}")

    def difference(row: Record) -> Cell:
        value = row["difference"]
        text = points(value) if in_percent else number_text(value, "+.3f")
        return Cell(text, interval_of_points(row["low"], row["high"]))

    def heading(benchmark: str, quantity: str) -> str:
        words = quantity.replace("_", " ")
        return f"{display.titles[benchmark]}, {words}" if benchmark else words.capitalize()

    columns: list[Column] = [
        ("", "Paper", lambda row: cell(row["value"], row["std"])),
        ("", "Measured", lambda row: cell(row["measured"], row["measured_std"])),
        ("", "Measured − paper", difference),
        ("", "Paper’s value inside", lambda row: _INSIDE[row["inside"]]),
    ]
    groups = (
        (heading(str(benchmark), str(quantity)), titled(rows))
        for (benchmark, quantity), rows in frame.groupby(["benchmark", "quantity"], sort=False)
    )
    return table_of("Method", columns, groups, display.study)


def _of_cells(frame: pd.DataFrame, model: str, study: ResolvedStudy) -> pd.DataFrame:
    """An ablation's table with the row of each cell; empty if there is no such exhibit."""
    keys = frame.columns.difference(COLUMNS)
    for ablation in study.exhibits(model).values():
        if isinstance(ablation, AblationTable) and set(ablation.grid) == set(keys):
            cells = frame[list(ablation.grid)].to_dict("records")
            named = [{str(key): float(value) for key, value in cell.items()} for cell in cells]
            return frame.assign(algorithm=[ablation.row(cell, study.algorithms) for cell in named])
    return frame.assign(algorithm="").iloc[:0]
