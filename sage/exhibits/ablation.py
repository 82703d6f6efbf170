"""The ablation grid (Table 6): pass@1 and pass@K over settings of one algorithm's guide.

No claim is made about which cell is best.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping
from typing import Annotated, Any, ClassVar, Literal

import pandas as pd
from pydantic import Field

from sage.exhibits.kind import Shown, TableMaker
from sage.exhibits.pass_at_k import MeasuredPassAtK, estimates, pooled_pass_at_k, shown_ks
from sage.fields import Name, about
from sage.rendering.labels import (
    benchmark_titles,
    exhibit_heading,
    interval_name,
    row_title,
    seeds_said,
)
from sage.rendering.table import Group, Head, Row, Table, TableDocument, share_cell
from sage.study import Algorithm, ResolvedStudy
from sage.study.exhibit import Surroundings
from sage.study.faults import nearest

_PARTS = ("value", "low", "high")


class AblationTable(MeasuredPassAtK):
    """pass@1 and pass@k over a grid of one algorithm's guide settings (Table 6)."""

    kind: Literal["ablation"]
    algorithm: Annotated[Name, about("the algorithm whose guide is varied")]
    grid: Annotated[
        dict[str, Annotated[list[float], Field(min_length=1)]],
        Field(min_length=1, max_length=2),
        about(
            "one or two settings of its guide, each with the values to try",
            unit="values of the setting",
        ),
    ]
    benchmark: Annotated[Name, about("the problem set")]

    contents: ClassVar[str] = (
        "Pass@1 and pass@K over the settings of one algorithm's guide: a row for each cell and "
        "k, as shares between 0 and 1 with 95 % intervals. `own` marks the algorithm's own "
        "settings, which every other table uses."
    )

    def cells(self) -> list[dict[str, float]]:
        """The settings of each cell; the last key changes fastest."""
        return [
            dict(zip(self.grid, values, strict=True))
            for values in itertools.product(*self.grid.values())
        ]

    def row(self, cell: Mapping[str, float], algorithms: Mapping[str, Algorithm]) -> str:
        """The row of a cell. It is the algorithm itself if the cell has the algorithm's own
        settings."""
        guide = algorithms[self.algorithm].guide
        if guide is not None and {**guide.settings, **cell} == guide.settings:
            return self.algorithm
        return "-".join([self.algorithm, *(f"{key}{value:g}" for key, value in cell.items())])

    def named(self) -> list[str]:
        """See `Exhibit`."""
        return [self.algorithm]

    def rows_of(self, study: ResolvedStudy) -> list[str]:
        """A row per cell."""
        return [self.row(cell, study.algorithms) for cell in self.cells()]

    def benchmarks_of(self, study: ResolvedStudy) -> list[str]:
        """See `Exhibit`."""
        return [self.benchmark]

    def variants(self, algorithms: Mapping[str, Algorithm]) -> dict[str, Algorithm]:
        """A row for each cell that differs from the algorithm itself."""
        parent = algorithms[self.algorithm]
        assert parent.guide is not None  # a fault otherwise
        found = {}
        for cell in self.cells():
            name = self.row(cell, algorithms)
            if name != self.algorithm:
                settings = {**parent.guide.settings, **cell}
                guide = parent.guide.model_copy(update={"settings": settings})
                words = ", ".join(f"{key} {value:g}" for key, value in cell.items())
                title = f"{parent.title} ({words})"
                found[name] = parent.model_copy(update={"guide": guide, "title": title})
        return found

    def faults(self, around: Surroundings) -> Iterator[tuple[str, str]]:
        """An algorithm without a guide, and settings that its guide does not have."""
        row = around.algorithms.get(self.algorithm)
        if row is None:
            return
        if row.guide is None:
            yield (
                "algorithm",
                (
                    f"{self.algorithm!r} has no guide, so no guide settings can be varied; name an "
                    "algorithm with a guide"
                ),
            )
            return
        known = around.guide_settings(self.algorithm)
        for setting in self.grid:
            if known and setting not in known:
                what = f"a setting of the guide {row.guide.kind!r}"
                yield f"grid.{setting}", f"{setting!r} is not {what}{nearest(setting, known)}"

    def tables(self) -> Mapping[str, TableMaker]:
        """The grid."""
        return {"": ablation_document}

    def as_in_paper(self, shown: Shown) -> pd.DataFrame:
        """pass@k of each cell."""
        frame = ablation_table(shown.frame("pass_at_k"), shown.study, shown.name)
        quantity = [f"pass@{k}" for k in frame["k"]]
        return frame.assign(benchmark=self.benchmark, quantity=quantity)


def ablation_document(shown: Shown) -> TableDocument:
    """The grid as a table."""
    frame = ablation_table(shown.frame("pass_at_k"), shown.study, shown.name)
    exhibit = shown.study.study.exhibits[shown.name]
    assert isinstance(exhibit, AblationTable)
    caption = ablation_caption(frame, shown.study, shown.name)
    return TableDocument(frame, ablation_view(frame, exhibit), caption)


def ablation_table(pass_at_k: pd.DataFrame, study: ResolvedStudy, exhibit: str) -> pd.DataFrame:
    """A row for each cell and k; the grid's last key changes fastest.

    Columns: the grid's keys, `algorithm` (the cell's row), `own` (whether these are the
    algorithm's own settings), `k`, `value`, `low`, `high` (shares; NaN if a run is missing).
    Raises ValueError for faulty metrics.
    """
    shown = study.study.exhibits[exhibit]
    assert isinstance(shown, AblationTable)
    rows = pooled_pass_at_k(pass_at_k, study, exhibit)
    found = rows[rows["benchmark"] == shown.benchmark]
    table: list[dict[str, Any]] = []
    for k in shown_ks(found, study.evaluation(shown.model).samples):
        values = estimates(found, shown.benchmark, k, study.rows_of(exhibit), _PARTS)
        for place, cell in enumerate(shown.cells()):
            row = shown.row(cell, study.algorithms)
            estimate: dict[str, Any] = dict(zip(_PARTS, values.loc[row], strict=True))
            name = {"algorithm": row, "own": row == shown.algorithm, "k": k}
            table.append({"place": place, **cell, **name, **estimate})
    frame = pd.DataFrame(table).sort_values(["place", "k"], ignore_index=True)
    return frame.drop(columns="place")


def ablation_caption(table: pd.DataFrame, study: ResolvedStudy, exhibit: str) -> str:
    """The caption of the grid, in plain text."""
    shown = study.study.exhibits[exhibit]
    assert isinstance(shown, AblationTable)
    first, *second = shown.grid
    ks = " / ".join(f"pass@{k}" for k in sorted(table["k"].unique()))
    layout = f"Rows: {first}; columns: {second[0]}." if second else f"Rows: {first}."
    own = " Marked: the settings used in every other table." if table["own"].any() else ""
    return (
        f"{exhibit_heading(study, exhibit)}, {row_title(study, shown.algorithm)} on "
        f"{benchmark_titles(study)[shown.benchmark]}: {ks} in percent. {layout}{own} Beneath each "
        f"value is its {interval_name(study)}. {seeds_said(study)} Cells are not compared: "
        "some cell is always the highest by chance."
    )


def ablation_view(table: pd.DataFrame, shown: AblationTable) -> Table:
    """An ablation as a grid: the first setting in rows, the second in columns."""
    first, *second = shown.grid
    across: list[float] | list[None] = shown.grid[second[0]] if second else [None]
    ks = sorted({int(k) for k in table["k"]})
    rows = []
    for down in shown.grid[first]:
        cells = []
        for value in across:
            cell = table[table[first] == down]
            if value is not None:
                cell = cell[cell[second[0]] == value]
            for k in ks:
                (found,) = cell[cell["k"] == k].to_dict("records")
                mark = "own" if found["own"] else ""
                value, low, high = (found[part] for part in _PARTS)
                cells.append(share_cell(value, low, high, mark))
        rows.append(Row(f"{down:g}", tuple(cells)))
    columns = tuple(f"pass@{k}" for k in ks)
    heads = [Head(f"{second[0]} {v:g}" if v is not None else "", columns) for v in across]
    return Table(first.replace("_", " ").capitalize(), tuple(heads), (Group("", tuple(rows)),))
