"""Reads Parquet files; one that cannot be used is an error that names it and the way out."""

from __future__ import annotations

import errno
import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq

from sage.runtime.faults import Damaged

_HOW: dict[str, Any] = {"partitioning": None, "page_checksum_verification": True}


def read_frame(
    path: Path | str, columns: Sequence[str] | None = None, filters: Any = None
) -> pd.DataFrame:
    """The rows of a Parquet file, or its `columns` and the rows that `filters` keeps.

    Checksums of pages are checked where the file has them. Raises FileNotFoundError,
    IsADirectoryError, and Damaged for a file that is cut short, changed or lacks a column.
    """
    with _readable(path, columns):
        names = None if columns is None else list(columns)
        return pd.read_parquet(path, columns=names, filters=filters, **_HOW)


def read_frames(paths: Sequence[Path]) -> pd.DataFrame:
    """The rows of several Parquet files, one after the other."""
    frames = [read_frame(path) for path in paths]
    return pd.concat([frame for frame in frames if len(frame)] or frames[:1], ignore_index=True)


def read_table(path: Path | str, columns: Sequence[str] | None = None) -> pa.Table:
    """The same as `read_frame`, as a table of pyarrow."""
    with _readable(path, columns):
        return pq.read_table(path, columns=None if columns is None else list(columns), **_HOW)


@contextmanager
def _readable(path: Path | str, columns: Sequence[str] | None) -> Iterator[None]:
    if Path(path).is_dir():
        raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), str(path))
    try:
        names = pq.read_schema(path).names
        if missing := [name for name in columns or () if name not in names]:
            raise Damaged(path, f"has no column {missing[0]!r} (it has {', '.join(names)})")
        yield
    except (FileNotFoundError, PermissionError, Damaged):
        raise
    except (pa.ArrowException, OSError) as error:
        said = next(iter(str(error).splitlines()), "")[:200]
        raise Damaged(path, f"is no whole Parquet file ({said})") from error
