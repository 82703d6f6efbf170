"""The ledger of claims as text for the page."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import pandas as pd

from sage.rendering.labels import benchmark_titles
from sage.rendering.numbers import NONE, interval_of_points, p_text, points
from sage.study import ResolvedStudy


@dataclass(frozen=True)
class LedgerRow:
    """A finding as text. `span`: how many findings its test has, 0 in all but the first of them."""

    says: str
    span: int
    place: str
    effect: str
    interval: str
    p: str
    over: str
    verdict: str


@dataclass(frozen=True)
class LedgerClaim:
    """A claim with its verdict and its findings as text.

    `because` says why it is inconclusive where more problems or samples would not help.
    """

    name: str
    text: str
    source: str
    verdict: str
    because: str
    rows: tuple[LedgerRow, ...]


def ledger_view(frame: pd.DataFrame | None, study: ResolvedStudy) -> list[LedgerClaim]:
    """The ledger as text for the page; nothing where it has not been made."""
    if frame is None:
        return []
    titles = benchmark_titles(study)
    claims = []
    for name, rows in frame.groupby("claim", sort=False):
        first = rows.iloc[0]
        again = rows["test"].duplicated()
        spans = rows.groupby("test")["test"].transform("size").mask(again, 0)
        views = [
            _row_view(row, titles, int(span))
            for row, span in zip(rows.to_dict("records"), spans, strict=True)
        ]
        texts = str(first["text"]), str(first["source"]), str(first["verdict"])
        one_run = texts[-1] == "inconclusive" and bool((rows["runs"] == 1).any())
        because = "one training run" if one_run else ""
        claims.append(LedgerClaim(str(name), *texts, because, tuple(views)))
    return claims


def _row_view(row: Mapping[Any, Any], titles: Mapping[str, str], span: int) -> LedgerRow:
    says_ = str(row["says"]) if span else ""
    if math.isnan(row["effect"]):
        return LedgerRow(says_, span, str(row["reason"]), NONE, "", NONE, "", "not run")
    effect, low, high = row["effect"], row["low"], row["high"]
    if row["unit"]:
        sign = "\u202f%" if row["unit"] == "percent" else ""
        text, limits = points(effect) + sign, interval_of_points(low, high)
    else:
        text = f"{effect:+.3g}"
        limits = "" if math.isnan(low + high) else f"{low:+.3g} to {high:+.3g}"
    place, runs = str(row["place"]), ""
    if row["runs"] == 1 and row["over"] != "training run":
        runs = ", 1 run"
    return LedgerRow(
        says=says_,
        span=span,
        place=titles.get(place, f"problem {place}" if row["over"] == "responses" else place),
        effect=text,
        interval=limits,
        p=p_text(row["p"]),
        over=f"{row['n']} {row['over']}{runs}",
        verdict=str(row["place_verdict"]),
    )
