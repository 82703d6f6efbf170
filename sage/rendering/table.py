"""A table of text that knows no format: HTML (`reports/`) and LaTeX are made from the same one.

Cells are text as people read it; whoever renders a table escapes it. A table with its frame and
caption is a `TableDocument`, of which the page reads the JSON that `write_document` leaves.
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
    """A cell's text, what stands small beneath it, and its mark.

    Marks: best, tie, own (an algorithm's own settings), nil (nothing there), path, or none.
    """

    text: str
    small: str = ""
    mark: str = ""


@dataclass(frozen=True)
class Row:
    """A row; `base` sets it apart from the rows below, `key` is its line in figures, if any."""

    title: str
    cells: tuple[Cell, ...]
    key: LineStyle | None = None
    base: bool = False


@dataclass(frozen=True)
class Head:
    """Columns under one title; without a title they stand alone."""

    title: str
    columns: tuple[str, ...]


@dataclass(frozen=True)
class Group:
    """Rows under a heading of their own; the heading may be empty."""

    title: str
    rows: tuple[Row, ...]


@dataclass(frozen=True)
class Table:
    """A table. `first` heads the column of row titles; `words`: cells are text."""

    first: str
    heads: tuple[Head, ...]
    groups: tuple[Group, ...]
    words: bool = False

    @property
    def columns(self) -> int:
        """How many columns there are beside the row titles."""
        return sum(len(head.columns) for head in self.heads)

    @property
    def grouped(self) -> bool:
        """Whether columns stand under titles."""
        return any(head.title for head in self.heads)


@dataclass(frozen=True)
class TableDocument:
    """A table as it is kept: the tidy `frame` for CSV, the `table` for readers, and its caption.

    `summary` is the line behind which the page folds it, if any. `flat` names the cells whose
    interval has no width, for the page's warnings.
    """

    frame: pd.DataFrame
    table: Table
    caption: str
    summary: str = ""
    flat: str = ""


@dataclass(frozen=True)
class PageTable:
    """What the page shows of a table document."""

    table: Table
    caption: str
    summary: str = ""
    flat: str = ""


def write_document(document: TableDocument, csv: Path) -> None:
    """Write a table as CSV (shares, full precision), and beside it LaTeX and JSON for the page."""
    text = document.frame.to_csv(index=False, lineterminator="\n")
    write_text_atomic(csv, text)
    write_text_atomic(csv.with_suffix(".tex"), latex_table(document.table, document.caption))
    shown = PageTable(document.table, document.caption, document.summary, document.flat)
    write_text_atomic(
        csv.with_suffix(".json"), json.dumps(asdict(shown), ensure_ascii=False, indent=1) + "\n"
    )


def read_document(path: Path) -> PageTable:
    """What `write_document` left for the page. Raises ValueError for a file that is none."""
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
        return PageTable(_table(content.pop("table")), **content)
    except (AttributeError, KeyError, TypeError, json.JSONDecodeError) as error:
        raise ValueError(f"{path}: not a table of this project ({error!r})") from error


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
    """A share in percent over its interval."""
    if math.isnan(value):
        return Cell("not run", mark="nil")
    return Cell(percent(value), interval(low, high), mark)


def norm_cell(value: float, low: float, high: float) -> Cell:
    """A gradient norm over the range of runs, if it has one."""
    return Cell(f"{value:.3f}", "" if math.isnan(low + high) else f"{low:.3f}–{high:.3f}")


def algorithm_row(study: ResolvedStudy, algorithm: str, cells: Sequence[Cell]) -> Row:
    """A row under its algorithm's name, with a piece of its line in figures."""
    key = line_styles(study)[algorithm]
    return Row(row_title(study, algorithm), tuple(cells), key, algorithm == BASE)


def plain_table(frame: Any, first: str, titles: dict[str, str] | None = None) -> Table:
    """A small frame as it is: its first column names the rows, numbers to three digits."""
    columns = [str(name) for name in frame.columns[1:]]
    rows = tuple(
        Row(str(values[0]), tuple(Cell(plain_text(value)) for value in values[1:]))
        for values in frame.itertuples(index=False, name=None)
    )
    heads = (Head("", tuple((titles or {}).get(name, name) for name in columns)),)
    return Table(first, heads, (Group("", rows),), words=True)
