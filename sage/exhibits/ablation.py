"""The ablation grid (Table 6): pass@1 and pass@K over settings of one method's guide.

No claim is made about which cell is best.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping, Sequence
from typing import Annotated, Any, Literal

import pandas as pd
from pydantic import Field

from sage.exhibits import pooled_pass_at_k
from sage.exhibits.kind import Display
from sage.exhibits.pooled_pass_at_k import PARTS, ShowsPassAtK, estimates, pooled
from sage.faults import type_faults
from sage.fields import Name, nearest
from sage.rendering.labels import interval_name, seeds_said
from sage.rendering.table import (
    Column,
    Table,
    TableDocument,
    cell_of,
    share_cell,
    table_of,
    titled_by,
)
from sage.study import Algorithm, Guide, ResolvedStudy
from sage.study.exhibit import Surroundings


def faults_of_varied(
    around: Surroundings,
    name: str,
    key: str,
    settings: Mapping[str, str],
    values: str,
    cells: Sequence[Mapping[str, float]],
) -> Iterator[tuple[str, str]]:
    """Why the guide of the method `name`, written under `key`, cannot be varied: it has none, or
    not one of `settings`, by the keys under which they are written, or it cannot have the settings
    of one of `cells`, which are written under `values`."""
    row = around.algorithms.get(name)
    if row is not None and row.guide is None:
        message = "has no guide, so no guide settings can be varied; name a method with a guide"
        yield key, f"{name!r} {message}"
    elif row is not None and row.guide is not None:
        guide = row.guide
        known = guide.family.settings(guide.kind).model_fields
        what = f"a setting of the guide {guide.kind!r}"
        unknown = {written: name for written, name in settings.items() if name not in known}
        for written, setting in unknown.items():
            yield written, f"{setting!r} is not {what}{nearest(setting, known)}"
        varied = [] if unknown else [{**guide.settings, **cell} for cell in cells]
        faults = (type_faults(Guide, {"kind": guide.kind, "settings": each}) for each in varied)
        for fault in dict.fromkeys(itertools.chain.from_iterable(faults)):
            yield values, fault.removeprefix("settings").lstrip(".: ")


def occurring_twice(key: str, values: Sequence[float]) -> Iterator[tuple[str, str]]:
    """A fault of `key` for each of its values with the name of an earlier one."""
    names = [f"{value:g}" for value in values]
    for place, name in enumerate(names):
        if name in names[:place]:
            yield key, f"{name} occurs twice"


class AblationTable(ShowsPassAtK):
    """pass@1 and pass@k over a grid of one method's guide settings (Table 6).

    Pass@1 and pass@K over the settings of one method's guide: a row for each cell and k, as shares
    between 0 and 1 with 95 % intervals. `own` marks the method's own settings, which every other
    table uses.
    """

    kind: Literal["ablation"]
    algorithm: Name
    """the method whose guide is varied"""
    grid: Annotated[
        dict[str, Annotated[list[float], Field(min_length=1)]], Field(min_length=1, max_length=2)
    ]
    """one or two settings of its guide, each with the values to try [values of the setting]"""
    benchmark: Name
    """the problem set"""

    def cells(self) -> list[dict[str, float]]:
        """The settings of each cell; the last key changes fastest."""
        return [
            dict(zip(self.grid, values, strict=True))
            for values in itertools.product(*self.grid.values())
        ]

    def row(self, cell: Mapping[str, float], algorithms: Mapping[str, Algorithm]) -> str:
        """The method of a cell: the varied one itself if the cell has its own settings."""
        guide = algorithms[self.algorithm].guide
        if guide is not None and {**guide.settings, **cell} == guide.settings:
            return self.algorithm
        return "-".join([self.algorithm, *(f"{key}{value:g}" for key, value in cell.items())])

    def named(self) -> list[str]:
        return [self.algorithm]

    def methods_of(self, study: ResolvedStudy) -> list[str]:
        return [self.row(cell, study.algorithms) for cell in self.cells()]

    def variants(self, algorithms: Mapping[str, Algorithm]) -> dict[str, Algorithm]:
        """A method for each cell that differs from the varied one."""
        parent = algorithms[self.algorithm]
        assert parent.guide is not None  # a fault otherwise
        rows = {}
        for cell in self.cells():
            name = self.row(cell, algorithms)
            if name != self.algorithm:
                settings = {**parent.guide.settings, **cell}
                guide = parent.guide.varied(settings=settings)
                words = ", ".join(f"{key} {value:g}" for key, value in cell.items())
                own = {"guide": guide, "title": f"{parent.title} ({words})"}
                rows[name] = parent.model_copy(update=own)
        return rows

    def faults(self, around: Surroundings) -> Iterator[tuple[str, str]]:
        settings = {f"grid.{setting}": setting for setting in self.grid}
        yield from faults_of_varied(
            around, self.algorithm, "algorithm", settings, "grid", self.cells()
        )
        for setting, values in self.grid.items():
            yield from occurring_twice(f"grid.{setting}", values)

    def table(self, display: Display) -> TableDocument:
        rows = pooled(display.frame("pass_at_k"), display)
        frame, runs = self._frame(rows, display), pooled_pass_at_k.numbers_of_runs(rows)
        first, *second = self.grid
        ks = " / ".join(f"pass@{k}" for k in sorted(frame["k"].unique()))
        layout = f"Rows: {first}; columns: {second[0]}." if second else f"Rows: {first}."
        own = " Marked: the settings used in every other table." if frame["own"].any() else ""
        caption = (
            f"{display.heading}, {display.title(self.algorithm)} on "
            f"{display.titles[self.benchmark]}: {ks} in percent. {layout}{own} Beneath each value "
            f"is its {interval_name(runs)}. {seeds_said(runs)} Cells are not compared: "
            "some cell is always the highest by chance."
        )
        return TableDocument(frame, self._view(frame), caption)

    def as_in_paper(self, display: Display) -> pd.DataFrame:
        frame = self._frame(pooled(display.frame("pass_at_k"), display), display)
        return frame.assign(benchmark=self.benchmark, quantity=[f"pass@{k}" for k in frame["k"]])

    def _frame(self, rows: pd.DataFrame, display: Display) -> pd.DataFrame:
        """A row for each cell and k of pooled pass@k; the grid's last key changes fastest.

        Columns: the grid's keys, `algorithm` (the cell's method), `own` (whether these are the
        method's own settings), `k`, `value`, `low`, `high` (shares; NaN if a run is missing).
        """
        ks = pooled_pass_at_k.shown_ks(rows, display.evaluation.primary_k)
        by_k = {k: estimates(rows, self.benchmark, k, display.rows) for k in ks}
        return pd.DataFrame(
            {**cell, "algorithm": row, "own": row == self.algorithm, "k": k, **by_k[k].loc[row]}
            for cell, row in zip(self.cells(), display.rows, strict=True)
            for k in ks
        )

    def _view(self, table: pd.DataFrame) -> Table:
        """The first setting in rows, the second in columns."""
        first, *second = self.grid
        across = self.grid[second[0]] if second else [0.0]
        ends = [*PARTS, "mark"]
        columns: list[Column] = [
            (
                f"{second[0]} {value:g}" if second else "",
                f"pass@{k}",
                cell_of(share_cell, (value, k), ends=ends),
            )
            for value in across
            for k in dict.fromkeys(table["k"])
        ]
        beside = table[second[0]] if second else [0.0] * len(table)
        at: list[Any] = [*zip(beside, table["k"], strict=True)]
        down = [f"{value:g}" for value in table[first]]
        placed = table.assign(down=down, at=at, mark=["own" * own for own in table["own"]])
        rows = titled_by(placed, "at", "down")
        return table_of(first.replace("_", " ").capitalize(), columns, [("", rows)])
