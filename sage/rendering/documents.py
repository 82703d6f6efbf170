"""Tables as files: CSV for programs, LaTeX for papers, JSON for the page."""

from __future__ import annotations

import json
from dataclasses import asdict
from pathlib import Path

from pydantic import TypeAdapter, ValidationError

from sage.rendering.latex import latex_table
from sage.rendering.table import PageTable, TableDocument
from sage.runtime.files import write_text_atomic

_PAGE_TABLE = TypeAdapter(PageTable)


def write_document(document: TableDocument, csv: Path) -> None:
    """Write a table as CSV (shares, full precision), with LaTeX and JSON for the page beside it."""
    view = PageTable(document.table, document.caption, document.summary, document.flat)
    content = json.dumps(asdict(view), ensure_ascii=False, indent=1) + "\n"
    frame = document.frame.to_csv(index=False, lineterminator="\n")
    write_text_atomic(csv, frame)
    write_text_atomic(csv.with_suffix(".tex"), latex_table(document.table, document.caption))
    write_text_atomic(csv.with_suffix(".json"), content)


def read_document(path: Path) -> PageTable:
    """Read what `write_document` wrote. Raises ValueError for any other file."""
    try:
        return _PAGE_TABLE.validate_json(path.read_bytes())
    except ValidationError as error:
        raise ValueError(
            f"{path}: not a table written by this project ({error}); delete the file and make "
            "the table again"
        ) from error
