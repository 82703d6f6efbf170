"""A table of text, independent of format: HTML (`reports/`) and LaTeX are made from the same one.

Cells are text for readers; the renderer escapes it. A table with its frame and caption is a
`TableDocument`. The page reads the JSON file that `write_document` writes.
"""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from sage.rendering.labels import row_title
from sage.rendering.latex import latex_table
from sage.rendering.lines import LineStyle, line_styles
from sage.rendering.numbers import interval, percent, plain_text
from sage.runtime.files import write_text_atomic
from sage.study import BASE, ResolvedStudy

if TYPE_CHECKING:
    import pandas as pd


@dataclass(frozen=True)
class Cell:
    """A cell's text, the small text below it, and its mark.

    Marks: best, tie, own (an algorithm's own settings), nil (no value), path, or none.
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
class TableDocument:
    """A stored table: the tidy `frame` for CSV, the `table` for readers, and its caption.

    If there is a `summary`, the page folds the table behind this line. `flat` names the cells with
    an interval of width zero, for the page's warnings.
    """

    frame: pd.DataFrame
    table: Table
    caption: str
    summary: str = ""
    flat: str = ""


@dataclass(frozen=True)
class PageTable:
    """The parts of a table document that the page shows."""

    table: Table
    caption: str
    summary: str = ""
    flat: str = ""


def write_document(document: TableDocument, csv: Path) -> None:
    """Write a table as CSV (shares, full precision), with LaTeX and JSON for the page beside it."""
    text = document.frame.to_csv(index=False, lineterminator="\n")
    write_text_atomic(csv, text)
    write_text_atomic(csv.with_suffix(".tex"), latex_table(document.table, document.caption))
    shown = PageTable(document.table, document.caption, document.summary, document.flat)
    write_text_atomic(
        csv.with_suffix(".json"), json.dumps(asdict(shown), ensure_ascii=False, indent=1) + "\n"
    )


def read_document(path: Path) -> PageTable:
    """Read what `write_document` wrote. Raises ValueError for any other file."""
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
        return PageTable(_table(content.pop("table")), **content)
    except (AttributeError, KeyError, TypeError, json.JSONDecodeError) as error:
        raise ValueError(
            f"{path}: not a table written by this project ({error!r}); delete the file and make "
            "the table again"
        ) from error


def _table(content: dict[str, Any]) -> Table:
    heads = tuple(Head(head["title"], tuple(head["columns"])) for head in content["heads"])
    groups = tuple(
        Group(group["title"], tuple(_row(row) for row in group["rows"]))
        for group in content["groups"]
    )
    return Table(content["first"], heads, groups, content["words"])


def _row(content: dict[str, Any]) -> Row:
    cells = tuple(Cell(**cell) for cell in content["cells"])
    key = content["key"]
    style = LineStyle(key["colour"], tuple(key["dashes"]), key["marker"]) if key else None
    return Row(content["title"], cells, style, content["base"])


def share_cell(value: float, low: float, high: float, mark: str = "") -> Cell:
    """A share in percent with its interval."""
    if math.isnan(value):
        return Cell("not run", mark="nil")
    return Cell(percent(value), interval(low, high), mark)


def norm_cell(value: float, low: float, high: float) -> Cell:
    """A gradient norm with the range of runs, if it has one."""
    return Cell(f"{value:.3f}", "" if math.isnan(low + high) else f"{low:.3f}–{high:.3f}")


def algorithm_row(study: ResolvedStudy, algorithm: str, cells: Sequence[Cell]) -> Row:
    """A row with its algorithm's title and line style."""
    key = line_styles(study)[algorithm]
    return Row(row_title(study, algorithm), tuple(cells), key, algorithm == BASE)


def plain_table(frame: Any, first: str, titles: dict[str, str] | None = None) -> Table:
    """A small frame as a table: the first column has the row titles, numbers have three digits."""
    columns = [str(name) for name in frame.columns[1:]]
    rows = tuple(
        Row(str(values[0]), tuple(Cell(plain_text(value)) for value in values[1:]))
        for values in frame.itertuples(index=False, name=None)
    )
    heads = (Head("", tuple((titles or {}).get(name, name) for name in columns)),)
    return Table(first, heads, (Group("", rows),), words=True)
