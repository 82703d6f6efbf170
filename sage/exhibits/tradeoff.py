"""Accuracy against coverage: pass@1 across, pass@k up, a point per method and training run."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any, ClassVar, Literal

import pandas as pd

from sage.exhibits.kind import Display
from sage.exhibits.pass_at_k import (
    PARTS,
    OnBenchmarks,
    ShowsPassAtK,
    WithCoverage,
    pooled,
    shown_ks,
    single_runs,
)
from sage.rendering.lines import PALETTE, LineStyle, line_styles
from sage.study import BASE

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

DISTINCT = 8
"""The most methods whose colours and marks are surely different from each other at a glance."""


class TradeoffFigure(WithCoverage, OnBenchmarks, ShowsPassAtK):
    """Accuracy against coverage: pass@1 and pass@k of every method, one panel per benchmark."""

    kind: Literal["tradeoff"]
    leads: ClassVar[bool] = True
    contents: ClassVar[str] = (
        "Accuracy (pass@1) against coverage (pass@k), one panel per benchmark. Large marks are "
        "methods, pooled over training runs; small ones are single runs. Up to eight methods have "
        "95 % intervals; more of them are numbered, with lines to their runs."
    )
    caption: ClassVar[str] = (
        "Accuracy (pass@1, across) against coverage (pass@k, up). Large marks are methods, pooled "
        "over training runs; small marks are single runs. Up to eight methods have 95 % intervals "
        "as lines; more of them are numbered, and thin lines lead from a method to its runs. "
        "Right of the base and below it, accuracy was gained and coverage lost."
    )

    def figure(self, display: Display) -> Figure:
        """Each method at (pass@1, pass@k), pooled and by training run, one panel per benchmark.

        Marks of more than DISTINCT methods cannot be told apart: each is then a disc with its
        number in the legend, and thin lines lead from it to its runs.
        """
        from matplotlib.ticker import PercentFormatter

        from sage.rendering.style import add_legend, panels_of

        metrics = display.frame("pass_at_k")
        rows = pooled(metrics, display)
        names, styles = display.rows_in(rows), line_styles(display.study)
        labels, numbers = [display.title(name) for name in names], dict.fromkeys(names, "")
        runs = single_runs(metrics, names)
        titles = {benchmark: display.titles[benchmark] for benchmark in display.benchmarks}
        figure, panels = panels_of(titles, rows, len(names))
        if len(names) > DISTINCT:
            numbers = {name: str(names.index(name) + (BASE not in names)) for name in names}
            styles |= {name: replace(styles[name], dashes=(), marker="o") for name in names}
            pairs = zip(numbers.values(), labels, strict=True)
            labels = [f"{number}  {label}" for number, label in pairs]
            width, height = figure.get_size_inches()
            figure.set_size_inches(max(width, 8.0), 1.5 * height)
        for axes, here in panels:
            largest = self.k or shown_ks(here, display.evaluation.primary_k)[-1]
            singles = _points(runs[runs["benchmark"] == here["benchmark"].iloc[0]], largest)
            for name in names:
                row = _points(here[here["algorithm"] == name], largest)
                own = singles[singles["algorithm"] == name]
                if not row.empty:
                    own = own if name != BASE and len(own) > 1 else own[:0]
                    above = 4 + names.index(name) / len(names)
                    _draw_row(axes, row.iloc[0], own, styles[name], numbers[name], above)
            axes.xaxis.set_major_formatter(PercentFormatter(xmax=1))
            axes.yaxis.set_major_formatter(PercentFormatter(xmax=1))
            axes.set(xlabel="pass@1", ylabel=f"pass@{largest}")
        add_legend(figure, names, styles, display.study, markers=True, labels=labels)
        return figure


def _draw_row(
    axes: Axes, row: pd.Series, runs: pd.DataFrame, look: LineStyle, number: str, above: float
) -> None:
    """A method with its runs, and with its intervals or as a disc with its `number`.

    Intervals of many methods would cover the points. `above` is its place in the pile of marks, so
    that a number belongs to the disc below it.
    """
    x, y, paper = row["accuracy"], row["coverage"], PALETTE["paper"][0]
    if not number:
        axes.errorbar(
            x,
            y,
            xerr=[[x - row["accuracy_low"]], [row["accuracy_high"] - x]],
            yerr=[[y - row["coverage_low"]], [row["coverage_high"] - y]],
            color=look.hex,
            lw=0.8,
            alpha=0.45,
            ls="",
            zorder=2,
        )
    size = 90 if number else 58
    axes.scatter(
        [x], [y], marker=look.marker, s=size, zorder=above, color=look.hex, edgecolor=paper, lw=0.7
    )
    if number:
        font: dict[str, Any] = {"color": paper, "fontsize": 6.5, "fontweight": "bold"}
        axes.text(x, y, number, ha="center", va="center_baseline", zorder=above, **font)
        for run in runs.to_dict("records"):
            ends = [x, run["accuracy"]], [y, run["coverage"]]
            axes.plot(*ends, color=look.hex, lw=0.5, alpha=0.6, zorder=1)
    if len(runs):
        small: dict[str, Any] = {"s": 14, "alpha": 0.6, "linewidth": 0, "color": look.hex}
        axes.scatter(runs["accuracy"], runs["coverage"], marker=look.marker, **small)


def _points(rows: pd.DataFrame, k: int) -> pd.DataFrame:
    """Columns algorithm, train_seed, accuracy and coverage, each of these with low and high."""
    keys = ["algorithm", "train_seed"]
    one, many = (
        rows[rows["k"] == wanted][[*keys, *PARTS]].rename(
            columns={"value": name, "low": f"{name}_low", "high": f"{name}_high"}
        )
        for wanted, name in ((1, "accuracy"), (k, "coverage"))
    )
    return one.merge(many, on=keys)
