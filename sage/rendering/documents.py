"""Tables as files: CSV for programs, LaTeX (booktabs and array) for papers, JSON for the page."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path

from pydantic import TypeAdapter, ValidationError

from sage.rendering.table import Cell, PageTable, Row, Table, TableDocument
from sage.runtime.faults import Damaged
from sage.runtime.files import write_text_atomic

_PAGE_TABLE = TypeAdapter(PageTable)

_ESCAPES = {
    **{character: f"\\{character}" for character in "&%$#_{}"},
    "\\": r"\textbackslash{}",
    "~": r"\textasciitilde{}",
    "^": r"\textasciicircum{}",
    "<": r"\textless{}",
    ">": r"\textgreater{}",
    "|": r"\textbar{}",
    "–": "--",
    "−": r"$-$",
    "’": "'",
    "·": r"$\cdot$",
    "≤": r"$\le$",
    "≥": r"$\ge$",
    "±": r"$\pm$",
    "×": r"$\times$",
    "≈": r"$\approx$",
    "Δ": r"$\Delta$",
    "ε": r"$\varepsilon$",
    "β": r"$\beta$",
    "α": r"$\alpha$",
    "π": r"$\pi$",
    "\u202f": r"\,",
}


def write_document(document: TableDocument, csv: Path) -> None:
    """Write a table as CSV (shares, full precision), with LaTeX and JSON for the page beside it."""
    view = PageTable(document.table, document.caption, document.summary, document.flat)
    content = json.dumps(asdict(view), ensure_ascii=False, indent=1) + "\n"
    frame = document.frame.to_csv(index=False, lineterminator="\n")
    write_text_atomic(csv, frame)
    write_text_atomic(csv.with_suffix(".tex"), latex_table(document.table, document.caption))
    write_text_atomic(csv.with_suffix(".json"), content)


def read_document(path: Path) -> PageTable:
    """Read what `write_document` wrote. Raises Damaged for any other file."""
    try:
        return _PAGE_TABLE.validate_json(path.read_bytes())
    except ValidationError as error:
        what = f"not a table written by this project ({error.errors()[0]['msg']})"
        raise Damaged(path, what) from error


def escape(text: str) -> str:
    """Plain text as LaTeX."""
    return "".join(_ESCAPES.get(character, character) for character in text)


def latex_table(table: Table, caption: str) -> str:
    """A floating table. Text is escaped; the small text of cells gets its own line.

    The best value of a column is bold, ties have a raised ≈, a method's own settings are
    underlined.
    """
    lines = [
        r"\begin{table}",
        r"\centering\small",
        r"\setlength{\tabcolsep}{4pt}",
        rf"\caption{{{escape(caption)}}}",
        rf"\begin{{tabular}}{{@{{}}l{_columns(table)}@{{}}}}",
        r"\toprule",
        *_head(table),
        r"\midrule",
        *_body(table),
        r"\bottomrule",
        r"\end{tabular}",
        r"\end{table}",
    ]
    return "\n".join(lines) + "\n"


def _columns(table: Table) -> str:
    if not table.words:
        return "c" * table.columns
    width = 0.62 / max(1, table.columns)
    return rf">{{\raggedright\arraybackslash}}p{{{width:.2f}\linewidth}}" * table.columns


def _head(table: Table) -> Iterator[str]:
    if table.grouped:
        titles, rules, start = [""], [], 2
        for head in table.heads:
            width = len(head.columns)
            titles.append(rf"\multicolumn{{{width}}}{{c}}{{{escape(head.title)}}}")
            if head.title:
                rules.append(rf"\cmidrule(lr){{{start}-{start + width - 1}}}")
            start += width
        yield _line(titles)
        yield " ".join(rules)
    columns = [column for head in table.heads for column in head.columns]
    yield _line([escape(table.first), *map(escape, columns)])


def _body(table: Table) -> Iterator[str]:
    for number, group in enumerate(table.groups):
        if number:
            yield r"\addlinespace"
        if group.title:
            width = table.columns + 1
            yield rf"\multicolumn{{{width}}}{{l}}{{\emph{{{escape(group.title)}}}}} \\"
        for place, row in enumerate(group.rows):
            yield from _row(row)
            if row.base and place + 1 < len(group.rows):
                yield r"\addlinespace"


def _row(row: Row) -> Iterator[str]:
    title = escape(row.title)
    if title.startswith(("[", "*")):  # the end of the row above would take it as its own
        title = "{}" + title
    texts = [title, *map(_text, row.cells)]
    if not any(cell.small for cell in row.cells):
        yield _line(texts)
        return
    yield _line(texts, "-2pt")
    small = [rf"{{\scriptsize {escape(c.small)}}}" if c.small else "" for c in row.cells]
    yield _line(["", *small], "3pt")


def _text(cell: Cell) -> str:
    text = escape(cell.text)
    if cell.mark == "best":
        return rf"\textbf{{{text}}}"
    if cell.mark == "tie":
        return text + r"\rlap{$^{\approx}$}"
    return rf"\underline{{{text}}}" if cell.mark == "own" else text


def _line(cells: list[str], after: str = "") -> str:
    return " & ".join(cells) + r" \\" + (f"[{after}]" if after else "")
