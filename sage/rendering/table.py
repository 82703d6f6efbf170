"""A table of text, independent of format: HTML (`reports/`) and LaTeX are made from the same one.

Cells are text for readers; the renderer escapes it. A table with its frame and caption is a
`TableDocument`, which `sage.rendering.documents` writes.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, Any

from sage.rendering.labels import method_title
from sage.rendering.lines import LineStyle, line_styles
from sage.rendering.numbers import NONE, interval, interval_of_points, percent, plain_text, points
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
"""What a row's cells are made of: a row of a frame, by column, or several of them by a key."""

Column = tuple[str, str, Callable[[Record], Cell | str]]
"""The title of its group of columns (empty if it stands alone), its own, and what makes a cell."""


def share_cell(
    value: float, low: float, high: float, mark: str = "", missing: str = "not run"
) -> Cell:
    """A share in percent with its interval."""
    if math.isnan(value):
        return Cell(missing, mark="nil")
    return Cell(percent(value), interval(low, high), mark)


def points_cell(value: float, low: float, high: float, missing: str = NONE) -> Cell:
    """A difference of shares in points with its interval."""
    return Cell(missing if math.isnan(value) else points(value), interval_of_points(low, high))


def cell_of(
    make: Callable[..., Cell | str], *keys: Any, ends: Sequence[str] = ("value", "low", "high")
) -> Callable[[Record], Cell | str]:
    """What makes a cell, such as `share_cell`, of the `ends` of a row, or of its part at `keys`."""

    def read(row: Record) -> Cell | str:
        for key in keys:
            row = row[key]
        return make(*(row[end] for end in ends))

    return read


def titled(frame: pd.DataFrame, key: str = "algorithm") -> list[tuple[str, Record]]:
    """The rows of a frame by their value of `key`."""
    return [(str(row[key]), row) for row in frame.to_dict("records")]


def titled_by(frame: pd.DataFrame, key: str, row: str = "algorithm") -> list[tuple[str, Record]]:
    """For each value of `row`, its rows of the frame by their value of `key`."""
    groups = frame.groupby(row, sort=False)
    return [(str(name), rows.set_index(key).to_dict("index")) for name, rows in groups]


def table_of(
    first: str,
    columns: Sequence[Column],
    groups: Iterable[tuple[str, Iterable[tuple[str, Record]]]],
    study: ResolvedStudy | None = None,
    words: bool = False,
) -> Table:
    """A table with a group of rows for each heading, and a row for each title and record.

    `first` heads the titles. With `study` they are methods, shown by their title and line style.
    """
    styles = line_styles(study) if study else {}
    made = []
    for heading, records in groups:
        rows = []
        for name, record in records:
            texts = [read(record) for _, _, read in columns]
            cells = tuple(Cell(text) if isinstance(text, str) else text for text in texts)
            title = method_title(study, name) if study else name
            rows.append(Row(title, cells, styles.get(name), study is not None and name == BASE))
        made.append(Group(heading, tuple(rows)))
    heads = [
        Head(title, tuple(column for _, column, _ in group))
        for title, group in itertools.groupby(columns, key=lambda column: column[0])
    ]
    return Table(first, tuple(heads), tuple(made), words)


def filled(table: Table) -> Table:
    """The table without the columns that have no value in any row."""
    cells = [row.cells for group in table.groups for row in group.rows]
    kept = [any(row[at].text not in ("", NONE) for row in cells) for at in range(table.columns)]
    if all(kept):
        return table
    left = iter(kept)
    columns = [tuple(one for one in head.columns if next(left)) for head in table.heads]
    groups = [
        replace(
            group,
            rows=tuple(
                replace(row, cells=tuple(itertools.compress(row.cells, kept))) for row in group.rows
            ),
        )
        for group in table.groups
    ]
    named = zip(table.heads, columns, strict=True)
    heads = tuple(Head(head.title, ones) for head, ones in named if ones)
    return Table(table.first, heads, tuple(groups), table.words)


def plain_table(frame: pd.DataFrame, first: str, titles: Mapping[str, str] | None = None) -> Table:
    """A small frame as a table: the first column has the row titles, numbers have three digits."""
    key, *names = map(str, frame.columns)
    columns = [("", (titles or {}).get(name, name), partial(_plain, name)) for name in names]
    return table_of(first, columns, [("", titled(frame, key))], words=True)


def _plain(name: str, row: Record) -> str:
    return plain_text(row[name])
