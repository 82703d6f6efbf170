"""All contrasts of the ledger in one figure: effect and interval, a line each, margin shaded."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from sage.rendering.labels import benchmark_titles
from sage.rendering.lines import PALETTE
from sage.rendering.style import draw_figure
from sage.runtime.tables import read_frame
from sage.study import ResolvedStudy

COLOURS = {
    "supported": "green",
    "contradicted": "rust",
    "smaller than matters": "blue",
    "no difference": "blue",
}
"""Of a finding's line, by its verdict; grey for all others."""

UNITS = {"points": "Difference (points)", "percent": "Difference (%)"}


def write_contrasts(table: Path, study: ResolvedStudy, svg: Path) -> None:
    """Draw the ledger `table` (Parquet) as the SVG file `svg`, a PDF beside it."""
    draw_figure(lambda: contrasts_figure(read_frame(table), study), svg)


def contrasts_figure(frame: pd.DataFrame, study: ResolvedStudy) -> Figure:
    """Every finding of the ledger that has an effect, by claim; points and percent apart.

    A primary contrast is drawn with a square and a thick line, its margin as a band behind it;
    secondary ones with a dot and a thin line. An open mark rests on one training run. Findings in
    other units have no place here.
    """
    drawn = frame[frame["effect"].notna() & frame["unit"].isin(list(UNITS))]
    titles = benchmark_titles(study)
    groups = [(unit, rows) for unit, rows in drawn.groupby("unit", sort=False)]
    heights = [max(len(rows) + rows["claim"].nunique(), 1) for _, rows in groups] or [1]
    figure = Figure(figsize=(8.6, 0.19 * sum(heights) + 0.8), layout="constrained")
    panels = figure.subplots(len(heights), 1, squeeze=False, height_ratios=heights)[:, 0]
    if not groups:
        panels[0].text(0.5, 0.5, "No contrast has been measured yet.", ha="center")
        panels[0].set(xticks=[], yticks=[])
    for axes, (unit, rows) in zip(panels, groups, strict=False):
        _draw(axes, rows, titles)
        axes.set_xlabel(UNITS[str(unit)])
    return figure


def _draw(axes: Axes, rows: pd.DataFrame, titles: Mapping[str, str]) -> None:
    """The findings of a unit from top to bottom, claims apart."""
    labels, place = [], 0.0
    for _, of_claim in rows.groupby("claim", sort=False):
        for row in of_claim.to_dict("records"):
            _draw_finding(axes, row, place)
            labels.append((place, _label(row, titles), row["role"] == "primary"))
            place += 1.0
        place += 0.6
    axes.axvline(0.0, color=PALETTE["ink"][0], linewidth=0.8, zorder=1)
    axes.set_yticks([at for at, _, _ in labels], [text for _, text, _ in labels])
    for tick, (_, _, primary) in zip(axes.get_yticklabels(), labels, strict=True):
        tick.set(fontsize=7.5, fontweight="bold" if primary else "normal")
    axes.tick_params(axis="y", length=0)
    axes.grid(visible=False, axis="y")
    axes.set_ylim(place - 0.6, -0.8)


def _draw_finding(axes: Axes, row: Mapping[Any, Any], place: float) -> None:
    primary = row["role"] == "primary"
    verdict = row["verdict" if primary else "place_verdict"]
    colour = PALETTE[COLOURS.get(str(verdict), "grey")][0]
    if primary and row["margin"] == row["margin"]:
        margin = 100 * row["margin"]
        axes.barh(place, 2 * margin, left=-margin, height=0.9, color=PALETTE["rule"][0], zorder=0)
    if row["low"] == row["low"]:
        ends = [100 * row["low"], 100 * row["high"]]
        axes.plot(ends, [place, place], color=colour, linewidth=2.2 if primary else 1.1, zorder=2)
    axes.plot(
        [100 * row["effect"]],
        [place],
        marker="s" if primary else "o",
        markersize=5.5 if primary else 4,
        markerfacecolor=PALETTE["paper"][0] if row["runs"] == 1 else colour,
        markeredgecolor=colour,
        linestyle="",
        zorder=3,
    )


def _label(row: Mapping[Any, Any], titles: Mapping[str, str]) -> str:
    where = titles.get(str(row["place"]), str(row["place"]))
    if row["role"] == "place":
        return where
    return f"{row['says']}, {where}" if where else str(row["says"])
