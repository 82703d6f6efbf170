"""Rows of a measured frame in an exhibit's order, with their titles."""

from __future__ import annotations

from collections.abc import Sequence

import pandas as pd

from sage.rendering.labels import listed, row_title
from sage.study import ResolvedStudy


def titled(
    found: pd.DataFrame, columns: Sequence[str], study: ResolvedStudy, exhibit: str
) -> pd.DataFrame:
    """Rows of an exhibit in its order, with titles. Raises ValueError if there is none."""
    require(found, [name for name in columns if name != "title"], exhibit)
    order = {name: place for place, name in enumerate(study.rows_of(exhibit))}
    rows = found[found["algorithm"].isin(list(order))]
    if rows.empty:
        there = listed(sorted(map(str, set(found["algorithm"])))) if len(found) else "nothing"
        raise ValueError(f"{exhibit}: rows {', '.join(order)} are asked for, but there is {there}")
    rows = rows.sort_values("algorithm", key=lambda names: names.map(order), kind="stable")
    titles = [row_title(study, name) for name in rows["algorithm"]]
    return rows.assign(title=titles)[list(columns)].reset_index(drop=True)


def require(frame: pd.DataFrame, columns: Sequence[str], what: str) -> None:
    """Raise ValueError if a frame lacks one of `columns`."""
    lacking = [name for name in columns if name not in frame.columns]
    if lacking:
        there = ", ".join(map(str, frame.columns))
        raise ValueError(f"{what}: no column {', '.join(lacking)}; there are {there}")
