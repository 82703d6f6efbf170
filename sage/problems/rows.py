"""Reads the rows of a file of problems or completions: CSV, JSON Lines or Parquet.

Every fault is a DataError that names the file and the line. What the columns mean is said
elsewhere: `benchmarks` for problems, `sage.evaluation.columns` for completions.
"""

from __future__ import annotations

import csv
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow
import pyarrow.parquet as parquet

from sage.problems.record import DataError

Row = dict[str, Any]


def rows_in(path: Path) -> list[Row]:
    """The rows of a CSV, JSON Lines or Parquet file, by the end of its name. Raises DataError."""
    try:
        if path.suffix == ".parquet":
            return _short_floats(parquet.read_table(path)).to_pylist()
        return list(_csv(path) if path.suffix == ".csv" else _json_lines(path))
    except UnicodeDecodeError as error:
        raise DataError(f"{path}: is not UTF-8 ({error.reason}); save it as UTF-8") from error
    except RecursionError as error:
        raise DataError(f"{path}: brackets are nested too deeply; flatten its rows") from error
    except (ValueError, OSError, csv.Error) as error:
        raise DataError(f"{path}: cannot be read, correct it: {error}") from error


def _short_floats(table: pyarrow.Table) -> pyarrow.Table:
    """`table` with columns of short floats in 64 bits, as they print: 0.1, not 0.10000000149."""
    kinds = {pyarrow.float16(): np.float16, pyarrow.float32(): np.float32}
    for at, field in enumerate(table.schema):
        if kind := kinds.get(field.type):
            values = [
                None if value is None else float(str(kind(value)))
                for value in table.column(at).to_pylist()
            ]
            table = table.set_column(at, field.name, pyarrow.array(values, pyarrow.float64()))
    return table


def _json_lines(path: Path) -> Iterator[Row]:
    with open(path, encoding="utf-8-sig") as file:
        for number, line in enumerate(file, start=1):
            if not line.strip():
                continue
            try:
                row = json.loads(line)
                if "\\u" in line:
                    json.dumps(row, ensure_ascii=False).encode()
            except UnicodeEncodeError as error:
                what = f"line {number} has {error.object[error.start]!a}, which is half a character"
                raise ValueError(what) from error
            except ValueError as error:
                raise ValueError(f"line {number} is not JSON ({error})") from error
            if not isinstance(row, dict):
                raise ValueError(f"line {number} is not a JSON object")
            yield row


def separator_of(head: str) -> str:
    """What separates the columns of a CSV file, from its first line.

    Spreadsheets of many countries write semicolons, or tabs.
    """
    return max(",;\t", key=head.count)


def _csv(path: Path) -> Iterator[Row]:
    with open(path, encoding="utf-8-sig", newline="") as file:
        csv.field_size_limit(2**31 - 1)  # a long completion is a field
        separator = separator_of(file.readline())
        file.seek(0)
        reader = csv.DictReader(file, strict=True, delimiter=separator)
        names = reader.fieldnames or []
        if twice := [name for name in names if names.count(name) > 1]:
            raise ValueError(f"line 1 names the column {twice[0]!r} twice; remove or rename one")
        for row in reader:
            if None in row or None in row.values():
                more_or_fewer = "more" if None in row else "fewer"
                raise ValueError(
                    f"line {reader.line_num} has {more_or_fewer} fields than line 1; text that "
                    f"holds {separator!r} must be in double quotes"
                )
            yield dict(row)
