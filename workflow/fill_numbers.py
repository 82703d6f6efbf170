"""Fills the numbers of texts from kept tables: `make numbers`; with `--check` it only compares.

A number stands between two marks, which no reader sees:

    <!--n:reports/bases/bases/claims.csv,claim=guide_that_acts,role=primary,points-->…<!--/n-->

The first mark names a table, the values of columns that leave one row of it, and a form (FORMS),
behind a colon the column that is shown. Rounding and intervals are those of
`sage.rendering.numbers`. Tables are those of kept runs, and those that `workflow.kept_tables` makes
of their counts. Between `<!--tables-->` and `<!--/tables-->` stand links to the tables of a page.
"""

from __future__ import annotations

import json
import os
import re
import sys
from collections.abc import Callable, Iterator, Sequence
from functools import cache
from pathlib import Path
from typing import Any

import pandas as pd

from sage.rendering.numbers import (
    duration,
    ends,
    grouped,
    interval_of_points,
    number_text,
    p_text,
    percent,
    points,
)
from sage.runtime.files import write_text_atomic

ROOT = Path(__file__).resolve().parents[1]
TEXTS = ("README.md", "*/README.md", "reports/*/README.md", "docs/*.md")
"""Texts that may have spans."""

SPAN = re.compile(r"<!--n:(?P<query>[^\s>]*)-->(?P<text>.*?)<!--/n-->", re.DOTALL)

LINKS = re.compile(r"<!--tables-->.*?<!--/tables-->", re.DOTALL)

Row = dict[str, Any]


def _ends(row: Row, column: str) -> str:
    low, high = (row.get(f"{column}_{end}", row[end]) for end in ("low", "high"))
    return interval_of_points(low, high)


def _whole(row: Row, column: str, word: str = "") -> str:
    return f"{points(row[column])}{word} ({_ends(row, column)})"


FORMS: dict[str, Callable[[Row, str], str]] = {
    "points": lambda row, column: _whole(row, column, " points"),
    "effect": _whole,
    "aside": lambda row, column: f"{points(row[column])}, {_ends(row, column)}",
    "point": lambda row, column: points(row[column]),
    "interval": lambda row, _: interval_of_points(row["low"], row["high"]),
    "percent": lambda row, column: percent(row[column]),
    "p": lambda row, column: p_text(row[column]),
    "count": lambda row, column: grouped(row[column]),
    "number": lambda row, column: number_text(row[column], ".2g"),
    "ratio": lambda row, column: number_text(row[column], ".2f"),
    "duration": lambda row, column: duration(row[column]),
    "hours": lambda row, column: number_text(row[column] / 3600, ".1f"),
    "change": lambda row, column: (
        f"{number_text(100 * row[column], '+.0f')} % "
        f"({ends(100 * row['low'], 100 * row['high'], '+.0f')})"
    ),
    "triple": lambda row, column: _whole(
        dict(zip(("value", "low", "high"), row[column], strict=True)), "value"
    ),
    "text": lambda row, column: str(row[column]),
}
"""What a number looks like, from row and column. `points`, `effect`, `aside` (for parentheses) and
`change` (in percent) have the interval of the column, or else of the row; `triple` is a value with
its own."""

SHOWN = ("effect", "minus_base", "value")
"""The column of a form that names none: the first of these that a table has."""


def filled(text: str, folder: Path = ROOT) -> str:
    """The text of a page in `folder` with every span as its table has it, and links to the tables.

    Raises ValueError that names the span.
    """
    text = LINKS.sub(lambda _: f"<!--tables-->{links(text, folder)}<!--/tables-->", text)
    return SPAN.sub(lambda span: f"<!--n:{span['query']}-->{value(span['query'])}<!--/n-->", text)


def links(text: str, folder: Path) -> str:
    """Links from a page in `folder` to each table that its spans name, in order of path."""
    names = {re.split("[,#]", span["query"])[0] for span in SPAN.finditer(text)}
    targets = (os.path.relpath(ROOT / name, folder) for name in sorted(names))
    return ", ".join(f"[{target.removeprefix('../')}]({target})" for target in targets)


def value(query: str) -> str:
    """The number that the first mark of a span asks for."""
    name, *filters, asked = query.split(",")
    form, _, column = asked.partition(":")
    try:
        if form not in FORMS:
            raise ValueError(f"no form {form!r}; there are {', '.join(FORMS)}")
        row = row_of(name, filters)
        column = column or next((each for each in SHOWN if each in row), "")
        return FORMS[form](row, column)
    except (KeyError, OSError, TypeError, ValueError) as error:
        raise ValueError(f"span `{query}`: {type(error).__name__}: {error}") from error


def row_of(name: str, filters: Sequence[str]) -> Row:
    """The one row of a table, from the repository's root, with these values. Raises ValueError.

    The stages of a run.json have rows of their own, with the column `stage`.
    """
    table = table_of(name)
    for each in filters:
        key, _, wanted = each.partition("=")
        if key not in table:
            raise ValueError(f"{name} has no column {key!r}, only {', '.join(table)}")
        table = table[table[key].map(str) == wanted]
    if len(table) != 1:
        raise ValueError(f"{len(table)} rows of {name} have {' '.join(filters)}, not one")
    (row,) = table.to_dict("records")
    return {str(key): each for key, each in row.items()}


@cache
def table_of(name: str) -> pd.DataFrame:
    """A kept table: CSV, or JSON as one row, and of a run.json one more for each stage.

    `file.json#a.b` is what stands under these keys; a list of mappings there has a row for each.
    """
    file, _, keys = name.partition("#")
    if not file.endswith(".json"):
        return pd.read_csv(ROOT / file)
    content = json.loads((ROOT / file).read_text(encoding="utf-8"))
    for key in filter(None, keys.split(".")):
        content = content[key]
    if isinstance(content, list):
        rows = content if isinstance(content[0], dict) else [dict(enumerate(content))]
        return pd.DataFrame(rows).rename(columns=str)
    if "stages" not in content:
        return pd.DataFrame([content])
    stages = [{"stage": stage, **one} for stage, one in content["stages"].items()]
    total = {key: sum(one[key] for one in stages) for key in ("jobs", "seconds")}
    return pd.DataFrame([{"stage": "all", **total}, *stages])


def texts() -> list[Path]:
    """The files that may have spans."""
    return sorted(file for pattern in TEXTS for file in ROOT.glob(pattern))


def faults(file: Path) -> Iterator[str]:
    """Spans of a file that are not as their tables have them, a line for each."""
    text = file.read_text(encoding="utf-8")
    blocks = LINKS.findall(text)
    for span in SPAN.finditer(text):
        place = f"{file.relative_to(ROOT)}, line {text.count(chr(10), 0, span.start()) + 1}"
        try:
            wanted = value(span["query"])
        except ValueError as error:
            yield f"{place}: {error}"
            continue
        if wanted != span["text"]:
            said = f"span `{span['query']}` says {span['text']!r}, its table {wanted!r}"
            yield f"{place}: {said}; run `make numbers`"
    if any(block != f"<!--tables-->{links(text, file.parent)}<!--/tables-->" for block in blocks):
        yield f"{file.relative_to(ROOT)}: not the tables of its spans; run `make numbers`"
    if file.is_relative_to(ROOT / "reports") and SPAN.search(text) and not blocks:
        yield f"{file.relative_to(ROOT)}: no <!--tables--><!--/tables--> for links to its tables"
    if text.count("<!--n:") != len(SPAN.findall(text)):
        yield f"{file.relative_to(ROOT)}: a mark <!--n:…--> or <!--/n--> stands alone"


def main(arguments: Sequence[str]) -> int:
    """Write derived tables and fill texts, or with `--check` compare; the exit status is 1 if a
    number differs or has no table."""
    if "--check" in arguments:
        found = [fault for file in texts() for fault in faults(file)]
        print("\n".join(found) or "Every number is that of its table.")
        return int(bool(found))
    from workflow import kept_tables, verdict_tables

    for tables in (kept_tables.tables, verdict_tables.tables):  # the second read the first
        for path, table in tables().items():
            _write(path, kept_tables.text_of(table))
        table_of.cache_clear()
    for file in texts():
        try:
            _write(file, filled(file.read_text(encoding="utf-8"), file.parent))
        except ValueError as error:
            print(f"{file.relative_to(ROOT)}: {error}", file=sys.stderr)
            return 1
    return 0


def _write(path: Path, content: str) -> None:
    if not path.is_file() or path.read_text(encoding="utf-8") != content:
        write_text_atomic(path, content)
        print(f"{path.relative_to(ROOT)}: written")
    else:
        print(f"{path.relative_to(ROOT)}: unchanged")


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
