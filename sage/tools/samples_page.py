"""The page and the figure of a comparison of samples, whatever program they come from.

    sage-rlvr compare a.csv b.csv --html page.html --figure curves.svg

`sage.tools.compare_samples` reads and compares; here is only what is shown, in the style of a
study's page.
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import matplotlib
import pandas as pd
from markupsafe import Markup
from matplotlib.figure import Figure

from sage.evaluation.curves import LEVEL
from sage.evaluation.foreign_samples import Method
from sage.rendering import markup, style
from sage.rendering.forest import Forest, difference_line, forest
from sage.rendering.lines import LineStyle, styles_in_order
from sage.rendering.numbers import NONE, interval_of_points, p_text, size_of
from sage.rendering.table import Column, Table, points_cell, share_cell, table_of, titled
from sage.report.loader import read_sources
from sage.report.page import rendered
from sage.runtime.files import ROOT, atomic_file, write_text_atomic
from sage.tools.pairing import basis, pairing, shown_k

TEMPLATE = "samples.html.j2"
REPORTS = ROOT / "reports"
"""Where the template and the style of pages are."""

ALL = "all problems"
"""A benchmark without a name."""

TOLD = 3
"""Differences that open the page, the largest ones."""


def figure(curves: pd.DataFrame) -> Figure:
    """pass@k against k with 95 % intervals, a panel for each benchmark."""
    names = list(dict.fromkeys(curves["algorithm"]))
    styles = styles_in_order(names)
    titles = {name: name or ALL.capitalize() for name in dict.fromkeys(curves["benchmark"])}
    made, panels = style.panels_of(titles, curves)
    for axes, here in panels:
        style.draw_lines(axes, here, "k", "value", names, styles, names)
        style.powers_of_two(axes, here["k"])
        style.in_percent(axes.yaxis)
        axes.set(xlabel="samples per problem, k", ylabel="pass@k (%)")
        axes.set_ylim(*style.share_limits(here))
    style.legend_below(made, list(styles.items()))
    return made


def write_figure(curves: pd.DataFrame, path: Path) -> None:
    """The figure as the file `path`: .svg, .pdf or .png, or another that matplotlib knows."""
    with matplotlib.rc_context(style.STYLE), atomic_file(path) as temporary:
        made = figure(curves)
        for artist in made.findobj():
            artist.set_gid(None)  # only the page needs to know whose they are
        made.savefig(temporary, format=path.suffix[1:], dpi=200)


def write_page(
    methods: Mapping[str, Method],
    curves: pd.DataFrame,
    differences: pd.DataFrame,
    k: int | None,
    page: Path,
) -> None:
    """One self-contained page: what differs, how sure that is, what it rests on, and all numbers.

    Raises ValueError for a k that a method does not have.
    """
    names = list(methods)
    keys = styles_in_order(names)
    shown = [
        row
        for benchmark, here in _by_benchmark(curves).items()
        for row in differences[differences["benchmark"] == benchmark].to_dict("records")
        if row["k"] in shown_k(here, k)
    ]
    label = "pass@k of each method against k; the numbers are in the table below"
    ks = sorted({int(row["k"]) for row in shown})
    text = rendered(
        TEMPLATE,
        read_sources(REPORTS),
        page,
        title=" and ".join(names) if len(names) < 4 else f"{len(names)} methods",
        sentences=_sentences(shown),
        forests=[(one, _forest([row for row in shown if row["k"] == one])) for one in ks],
        basis=[
            (benchmark or ALL, [(name, basis(methods[name], benchmark)) for name in there])
            for benchmark, here in _by_benchmark(curves).items()
            if (there := list(dict.fromkeys(here["algorithm"])))
        ],
        figure=drawn(lambda: figure(curves), "curves", label, keys),
        methods=[(name, name, look) for name, look in keys.items()],
        levels=_levels(curves),
        table=_differences(differences, curves),
    )
    write_text_atomic(page, text)


def drawn(
    draw: Callable[[], Figure], prefix: str, label: str, keys: Mapping[str, LineStyle]
) -> Markup:
    """A figure as markup for a page (`sage.rendering.markup.figure_html`)."""
    with tempfile.TemporaryDirectory() as folder:
        svg = Path(folder, "drawn.svg")
        style.draw_figure(draw, svg)
        return markup.figure_html(svg.read_text("utf-8"), prefix, label, keys)


def _by_benchmark(curves: pd.DataFrame) -> dict[str, pd.DataFrame]:
    names = dict.fromkeys(map(str, curves["benchmark"]))
    return {name: curves[curves["benchmark"] == name] for name in names}


def _sentences(rows: list[dict[Any, Any]]) -> list[str]:
    """The largest differences, one sentence each: those that are significant, else the largest."""
    clear = [row for row in rows if row["p_holm"] < LEVEL]
    largest = sorted(clear or rows, key=lambda row: -abs(row["value"]))
    return [_sentence(row) for row in largest[: TOLD if clear else 1]]


def _sentence(row: Mapping[Any, Any]) -> str:
    one, two = row["algorithm"], row["other"]
    low, high = row["low"], row["high"]
    if row["value"] < 0:
        one, two, low, high = two, one, -high, -low
    where = f"pass@{row['k']} on {row['benchmark'] or ALL}"
    size = size_of(row["value"])
    sure = "" if row["p_holm"] < LEVEL else " This is not significant after Holm."
    alone = " Each method has one training run here." if row["n_seeds"] == 1 else ""
    return (
        f"{one} has {size} points more of {where} than {two} "
        f"({interval_of_points(low, high)}).{sure}{alone}"
    )


def _forest(rows: list[dict[Any, Any]]) -> Forest | None:
    lines = [
        difference_line(
            f"{row['algorithm']} − {row['other']}",
            row["benchmark"] or ALL,
            {**row, "effect": row["value"]},
            row["p_holm"],
            row["n_seeds"],
        )
        for row in rows
    ]
    return forest(lines)


def _levels(curves: pd.DataFrame) -> Table:
    """pass@k of each method, a column for each k."""
    ks = sorted({*map(int, curves["k"])})
    columns: list[Column] = [("", f"pass@{k}", lambda row, k=k: row[k]) for k in ks]  # type: ignore[misc]
    groups = []
    for benchmark, here in _by_benchmark(curves).items():
        rows = []
        for name in dict.fromkeys(here["algorithm"]):
            own = here[here["algorithm"] == name].set_index("k")[["value", "low", "high"]]
            cells = {k: share_cell(*own.loc[k]) if k in own.index else NONE for k in ks}
            rows.append((str(name), cells))
        groups.append((benchmark or ALL, rows))
    return table_of("Method", columns, groups)


def _differences(differences: pd.DataFrame, curves: pd.DataFrame) -> Table:
    runs = []
    for row in differences.to_dict("records"):
        here = curves[(curves["benchmark"] == row["benchmark"]) & (curves["k"] == row["k"])]
        runs.append(f"{row['n_seeds']}{pairing(row, here)}")
    pairs = differences["algorithm"] + " − " + differences["other"]
    told = differences.assign(pair=pairs, runs=runs)
    columns: list[Column] = [
        ("", "k", lambda row: str(row["k"])),
        ("", "Δ", lambda row: points_cell(row["value"], row["low"], row["high"])),
        ("", "p after Holm", lambda row: p_text(row["p_holm"])),
        ("", "Detectable", lambda row: _detectable(row["detectable"])),
        ("", "Runs", lambda row: row["runs"]),
    ]
    groups = (
        (benchmark or ALL, titled(told[told["benchmark"] == benchmark], "pair"))
        for benchmark in dict.fromkeys(map(str, told["benchmark"]))
    )
    return table_of("Difference", columns, groups)


def _detectable(size: float) -> str:
    """A difference in points; a share cannot differ by more than 1."""
    return size_of(size) if size <= 1 else "none"
