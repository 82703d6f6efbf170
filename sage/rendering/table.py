"""A table of text, independent of format: HTML (`reports/`) and LaTeX are made from the same one.

Cells are text for readers; the renderer escapes it. A table with its frame and caption is a
`TableDocument`, which `sage.rendering.documents` writes.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from sage.rendering.labels import row_title
from sage.rendering.lines import LineStyle, line_styles
from sage.rendering.numbers import interval, percent, plain_text
from sage.study import BASE, ResolvedStudy

if TYPE_CHECKING:
    import pandas as pd


@dataclass(frozen=True)
class Cell:
    """A cell's text, the small text below it, and its mark.

    Marks: best, tie, own (a method's own settings), nil (no value), path, or none.
    """

    text: str
    small: str = ""
    mark: str = ""


@dataclass(frozen=True)
class Row:
    """A row. `base` separates it from the rows below; `key` is its line style in figures."""

    title: str
    cells: tuple[Cell, ...]
    key: LineStyle | None = None
    base: bool = False


@dataclass(frozen=True)
class Head:
    """Columns under one title. Without a title they stand alone."""

    title: str
    columns: tuple[str, ...]


@dataclass(frozen=True)
class Group:
    """Rows under a heading, which may be empty."""

    title: str
    rows: tuple[Row, ...]


@dataclass(frozen=True)
class Table:
    """A table. `first` is the heading of the row titles; with `words`, cells are text."""

    first: str
    heads: tuple[Head, ...]
    groups: tuple[Group, ...]
    words: bool = False

    @property
    def columns(self) -> int:
        """The number of columns besides the row titles."""
        return sum(len(head.columns) for head in self.heads)

    @property
    def grouped(self) -> bool:
        """Whether columns have group titles."""
        return any(head.title for head in self.heads)


@dataclass(frozen=True)
class PageTable:
    """A table with its caption, as the page shows it.

    If there is a `summary`, the page folds the table behind this line. `flat` names the cells with
    an interval of width zero, for the page's warnings.
    """

    table: Table
    caption: str
    summary: str = ""
    flat: str = ""


@dataclass(frozen=True)
class TableDocument:
    """A stored table: the tidy `frame` for CSV, and the rest as in `PageTable`."""

    frame: pd.DataFrame
    table: Table
    caption: str
    summary: str = ""
    flat: str = ""


Record = Mapping[Any, Any]
"""A row of a frame, by column."""

Columns = Mapping[str, Callable[[Record], Cell | str]]
"""The function that makes a cell of a row, by the column's title."""


def share_cell(value: float, low: float, high: float, mark: str = "") -> Cell:
    """A share in percent with its interval."""
    if math.isnan(value):
        return Cell("not run", mark="nil")
    return Cell(percent(value), interval(low, high), mark)


def algorithm_row(study: ResolvedStudy, algorithm: str, cells: Sequence[Cell]) -> Row:
    """A row with its method's title and line style."""
    key = line_styles(study)[algorithm]
    return Row(row_title(study, algorithm), tuple(cells), key, algorithm == BASE)


def algorithm_table(heads: Iterable[Head], rows: Iterable[Row]) -> Table:
    """A table of methods in one group."""
    return Table("Method", tuple(heads), (Group("", tuple(rows)),))


def single_heads(titles: Iterable[str]) -> tuple[Head, ...]:
    """Columns that stand alone."""
    return tuple(Head("", (title,)) for title in titles)


def columns_table(
    first: str,
    columns: Columns,
    groups: Iterable[tuple[str, pd.DataFrame]],
    row: Callable[[Record, list[Cell]], Row],
    words: bool = False,
) -> Table:
    """A table with a group for each heading and frame, and a row for each of the frame's rows.

    `row` puts a row's cells under its title.
    """
    made = []
    for heading, frame in groups:
        rows = []
        for record in frame.to_dict("records"):
            cells = [read(record) for read in columns.values()]
            rows.append(row(record, [Cell(c) if isinstance(c, str) else c for c in cells]))
        made.append(Group(heading, tuple(rows)))
    return Table(first, single_heads(columns), tuple(made), words)


def columns_of_algorithms(
    study: ResolvedStudy,
    columns: Columns,
    groups: Iterable[tuple[str, pd.DataFrame]],
) -> Table:
    """The same for frames with a column `algorithm`, which gives each row its title and style."""

    def row(record: Record, cells: list[Cell]) -> Row:
        return algorithm_row(study, record["algorithm"], cells)

    return columns_table("Method", columns, groups, row)


def plain_table(frame: Any, first: str, titles: dict[str, str] | None = None) -> Table:
    """A small frame as a table: the first column has the row titles, numbers have three digits."""
    columns = [str(name) for name in frame.columns[1:]]
    rows = tuple(
        Row(str(values[0]), tuple(Cell(plain_text(value)) for value in values[1:]))
        for values in frame.itertuples(index=False, name=None)
    )
    heads = (Head("", tuple((titles or {}).get(name, name) for name in columns)),)
    return Table(first, heads, (Group("", rows),), words=True)
