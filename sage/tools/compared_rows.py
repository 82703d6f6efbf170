"""The numbers of a comparison of samples for other programs: JSON, CSV, and a gate for CI.

A row is pass@k of a method (`kind` is "pass@k") or the difference of two (`method` minus `other`).
The keys are versioned: one that goes or changes its meaning raises VERSION.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import pandas as pd

from sage.evaluation.curves import LEVEL
from sage.evaluation.foreign_samples import Method
from sage.runtime.files import write_text_atomic

VERSION = 1

SHARES = ("value", "low", "high", "p", "p_holm", "detectable", "band_low", "band_high")
"""Shares of 0 to 1, their differences, and p-values; None where a row has none. Above 1 nothing is
`detectable`."""

COUNTS = ("n_tests", "n_problems", "n_samples", "units")


def rows_of(curves: pd.DataFrame, differences: pd.DataFrame) -> Iterator[dict[str, Any]]:
    """A row of plain values for each pass@k and each difference, at every k."""
    for kind, table in (("pass@k", curves), ("difference", differences)):
        for row in table.to_dict("records"):
            named = {"version": VERSION, "kind": kind, "benchmark": row["benchmark"]}
            named |= {"method": row["algorithm"], "other": row.get("other"), "k": int(row["k"])}
            shares = {name: _known(row.get(name)) for name in SHARES}
            counts = {name: int(row[name]) if name in row else None for name in COUNTS}
            yield named | shares | counts | {"runs": len(row["train_seeds"])}


def _known(value: float | None) -> float | None:
    return None if value is None or not math.isfinite(value) else float(value)


def as_json(methods: Mapping[str, Method], rows: Sequence[Mapping[str, Any]]) -> str:
    """The rows, and what each method was read from."""
    read = {
        name: {
            "files": [str(file) for file in method.files],
            "columns": dict(zip(("problem", "correct"), method.columns, strict=True)),
            "unscored": sum(method.unscored.values()),
            "notes": list(method.notes),
        }
        for name, method in methods.items()
    }
    whole = {"version": VERSION, "level": 1 - LEVEL, "methods": read, "rows": rows}
    return json.dumps(whole, indent=1, allow_nan=False) + "\n"


def write_csv(rows: Sequence[Mapping[str, Any]], path: Path, escape: bool) -> None:
    table = pd.DataFrame(rows).astype(dict.fromkeys(COUNTS, "Int64"))
    write_text_atomic(path, (escaped(table) if escape else table).to_csv(index=False))


def is_below(differences: pd.DataFrame, first: str, ks: Sequence[int], limit: float) -> bool:
    """Whether a method minus the `first` is below `limit` with its whole 95 % interval, at one of
    `ks` on any benchmark; all are shares."""
    of_first = differences[(differences["other"] == first) & differences["k"].isin(ks)]
    return bool((of_first["high"] < limit).any())


def escaped(table: pd.DataFrame) -> pd.DataFrame:
    """`table` with an apostrophe before each text that a spreadsheet would run as a formula: one
    that begins with =, +, -, @, a tab or the end of a line. Numbers stay numbers."""
    texts = {str(name): table[name].map(_safe) for name in table if table[name].dtype.kind == "O"}
    return table.assign(**texts)


def _safe(cell: object) -> object:
    if not isinstance(cell, str) or not cell.startswith(("=", "+", "-", "@", "\t", "\r", "\n")):
        return cell
    try:
        float(cell)
    except ValueError:
        return f"'{cell}"
    return cell
